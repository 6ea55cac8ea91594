// Tests, splits and changes text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lazyck::units {

inline bool begins_with(std::string_view text, std::string_view lead) { return text.substr(0, lead.size()) == lead; }
inline bool ends_with(std::string_view text, std::string_view tail) {
    return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}
inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <class Range>
bool has(const Range& range, std::string_view one) {
    return std::find(std::begin(range), std::end(range), one) != std::end(range);
}

// `from` is not empty.
inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
}

// Calls `use` with each line of the text, without the newline.
template <class Use>
void for_each_line(std::string_view text, const Use& use) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        use(text.substr(at, end - at));
        at = end + 1;
    }
}

}  // namespace lazyck::units
