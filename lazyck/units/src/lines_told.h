// Whether a text's code can tell from which lines of it something was called.
#pragma once

#include <string_view>

namespace lazyck::units {

// By a function that gives a place, or in a string.
bool tells_lines_apart(std::string_view text);

}  // namespace lazyck::units
