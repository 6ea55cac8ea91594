// Writes to descriptor 2, where messages go by default, if it still is the standard error stream.
#pragma once

#include <string>

namespace lazyck::rt {

// Writes lines there, if it is. Ignores errors, and a reader that is gone.
void write_to_error_stream(const std::string& text);

// Returns whether a line may be written to descriptor 2. When a program closes its standard error,
// the next file or connection that it opens for itself gets the number again, and our lines must
// not end up in there.
bool is_error_stream();

}  // namespace lazyck::rt
