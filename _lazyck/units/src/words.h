// Tests how words begin and end.
#pragma once

#include <string_view>

namespace lazyck::units {

inline bool begins_with(std::string_view text, std::string_view lead) { return text.substr(0, lead.size()) == lead; }
inline bool ends_with(std::string_view text, std::string_view tail) {
    return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

}  // namespace lazyck::units
