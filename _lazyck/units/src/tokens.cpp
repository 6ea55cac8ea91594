#include "tokens.h"

#include <algorithm>
#include <string>

namespace lazyck::units {

bool Tokens::next(Token& out) {
    skip_space();
    if (m_at >= m_text.size()) return false;
    const std::size_t begin = m_at;
    const char c = m_text[begin];
    if (is_word_start(c)) {
        while (m_at < m_text.size() && is_word(m_text[m_at])) ++m_at;
        const std::string_view word = m_text.substr(begin, m_at - begin);
        const bool is_raw = !word.empty() && word.back() == 'R' && word.size() <= 3;
        if (m_at < m_text.size() && m_text[m_at] == '"' && is_raw) skip_raw();
    } else if (is_digit(c)) {
        // A number may contain separators, as in 1'000, and letters, as in 0x1F and 1e5.
        while (m_at < m_text.size() &&
               (is_word(m_text[m_at]) || m_text[m_at] == '.' ||
                (m_text[m_at] == '\'' && m_at + 1 < m_text.size() && is_word(m_text[m_at + 1]))))
            ++m_at;
    } else if (c == '"' || c == '\'') {
        skip_quoted(c);
    } else if (c == ':' && m_text.substr(m_at, 2) == "::") {
        m_at += 2;
    } else if (c == '-' && m_text.substr(m_at, 2) == "->") {
        m_at += 2;
    } else if (std::string_view("<>=!").find(c) != std::string_view::npos && m_text.substr(m_at + 1, 1) == "=") {
        m_at += 2;  // a `>=` closes no template's arguments
    } else {
        ++m_at;
    }
    out = {m_text.substr(begin, m_at - begin), begin};
    return true;
}

bool Tokens::skip_group(char open, char close) {
    Token token;
    for (int depth = 1; next(token);) {
        if (token.text.size() != 1) continue;
        depth += token.text[0] == open ? 1 : token.text[0] == close ? -1 : 0;
        if (depth == 0) return true;
    }
    return false;
}

void Tokens::skip_space() {
    while (m_at < m_text.size()) {
        const char c = m_text[m_at];
        if (c == '#' && is_at_line_start()) {
            const std::size_t end = std::min(m_text.find('\n', m_at), m_text.size());
            read_marker(m_text.substr(m_at, end - m_at));
            m_at = end;
        } else if (is_space(c) || c == '\\') {
            ++m_at;
        } else {
            return;
        }
    }
}

bool Tokens::is_at_line_start() const {
    for (std::size_t i = m_at; i > 0; --i) {
        if (m_text[i - 1] == '\n') return true;
        if (!is_space(m_text[i - 1])) return false;
    }
    return true;
}

// Reads a line marker: # 12 "file" 2
void Tokens::read_marker(std::string_view line) {
    const std::size_t digit = line.find_first_of("0123456789");
    const std::size_t open = line.find('"');
    if (digit == std::string_view::npos || open == std::string_view::npos || digit > open) return;
    if (line.find_first_not_of("# \tline0123456789") != open) return;
    const std::size_t close = line.rfind('"');
    m_is_in_source = line.substr(open + 1, close - open - 1) == m_source;
}

void Tokens::skip_quoted(char quote) {
    for (++m_at; m_at < m_text.size() && m_text[m_at] != quote; ++m_at) {
        if (m_text[m_at] == '\\') ++m_at;
    }
    m_at = std::min(m_at + 1, m_text.size());
}

void Tokens::skip_raw() {
    const std::size_t open = m_text.find('(', m_at);
    if (open == std::string_view::npos) {
        m_at = m_text.size();
        return;
    }
    const std::string close = ")" + std::string(m_text.substr(m_at + 1, open - m_at - 1)) + "\"";
    const std::size_t end = m_text.find(close, open);
    m_at = end == std::string_view::npos ? m_text.size() : end + close.size();
}

}  // namespace lazyck::units
