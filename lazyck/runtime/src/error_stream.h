// Descriptor 2, where messages go by default, if it still is what its number says.
#pragma once

#include <string>

namespace lazyck::rt {

// Writes lines there, if it is; whether it can be written is nobody's business, nor that its reader is gone.
void write_to_error_stream(const std::string& text);

// Whether a line may be written to descriptor 2. A program that closes its standard error gets the number again for the
// next file or connection that it opens for itself, and our lines must not end up in there.
bool is_error_stream();

}  // namespace lazyck::rt
