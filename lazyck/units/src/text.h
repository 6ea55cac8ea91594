// Tests, splits and changes text, and splits preprocessed C++ into tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
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

inline std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// These tests follow the "C" locale whatever the process's locale is. They are inline because they
// run for every character of megabytes.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool is_word_start(char c) {
    const char lower = static_cast<char>(c | 32);
    return (lower >= 'a' && lower <= 'z') || c == '_' || c == '$';
}
inline bool is_word(char c) { return is_word_start(c) || is_digit(c); }

struct Token {
    std::string_view text;
    std::size_t begin = 0;
    std::size_t end() const { return begin + text.size(); }
    bool is(std::string_view other) const { return text == other; }
};

// Reads the tokens of a preprocessed text. Line markers say which file a token stands in.
class Tokens {
 public:
    explicit Tokens(std::string_view text, std::string_view source = {}) : m_text(text), m_source(source) {}

    // Reads the next token. Returns false at the end of the text.
    bool next(Token& out);

    bool is_in_source() const { return m_is_in_source; }
    std::size_t at() const { return m_at; }

    // Moves behind the bracket that closes the one just read. Returns false if the text ends first.
    bool skip_group(char open, char close);

 private:
    void skip_space();
    bool is_at_line_start() const;
    void skip_quoted(char quote);
    void skip_raw();

    std::string_view m_text, m_source;
    std::size_t m_at = 0;
    bool m_is_in_source = false;
};

// Returns the file that a line marker names (`# 12 "file" 2`), as it is written there; {} if `line`
// is none.
std::optional<std::string_view> marked_file(std::string_view line);

// Returns true if the text may observe from which of its lines something was called: by a function
// that returns a line or a file, or because a raw string may contain what looks like lines of the
// text.
bool tells_lines_apart(std::string_view text);

}  // namespace lazyck::units
