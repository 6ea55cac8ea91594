// Tells whether code can observe from which lines of its text something was called.
#pragma once

#include <string_view>

namespace lazyck::units {

// Returns true if the text may observe its lines: by a function that returns a place, or because a
// raw string may contain what looks like lines of the text.
bool tells_lines_apart(std::string_view text);

}  // namespace lazyck::units
