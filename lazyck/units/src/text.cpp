#include "text.h"

#include <vector>

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
    } else {
        // A `>=` closes no template's arguments.
        constexpr std::string_view k_pairs[] = {"::", "->", "<=", ">=", "==", "!="};
        m_at += has(k_pairs, m_text.substr(m_at, 2)) ? 2 : 1;
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
            if (const auto file = marked_file(m_text.substr(m_at, end - m_at))) m_is_in_source = *file == m_source;
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

std::optional<std::string_view> marked_file(std::string_view line) {
    const std::size_t open = line.find('"'), close = line.rfind('"');
    const bool is_marker = begins_with(line, "#") && open != close && line.find_first_of("0123456789") < open &&
                           line.find_first_not_of("# \tline0123456789") == open;
    return is_marker ? std::optional(line.substr(open + 1, close - open - 1)) : std::nullopt;
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

namespace {

using TokenTexts = std::vector<std::string_view>;

constexpr std::string_view k_location_words[] = {"__builtin_LINE", "__builtin_FILE", "__builtin_FILE_NAME",
                                                 "__builtin_COLUMN", "__builtin_source_location"};

bool is_one_of(std::string_view token, std::string_view characters) {
    return token.size() == 1 && characters.find(token[0]) != std::string_view::npos;
}

// Returns the offset of the last unmatched `open` before `at`; npos if one of `barriers` comes
// first.
std::size_t opening_before(const TokenTexts& tokens, std::size_t at, char open, char close, std::string_view barriers) {
    std::size_t depth = 0;
    while (at-- > 0) {
        if (is_one_of(tokens[at], std::string_view(&close, 1))) ++depth;
        if (is_one_of(tokens[at], std::string_view(&open, 1)) && depth-- == 0) return at;
        if (depth == 0 && is_one_of(tokens[at], barriers)) break;
    }
    return std::string_view::npos;
}

// Returns the first token of the declaration that the token at `at` belongs to.
std::size_t begin_of_declaration(const TokenTexts& tokens, std::size_t at) {
    while (at > 0 && !is_one_of(tokens[at - 1], ";{}:")) --at;
    return at;
}

bool has_between(const TokenTexts& tokens, std::size_t begin, std::size_t end, std::string_view token) {
    return std::find(tokens.data() + begin, tokens.data() + end, token) != tokens.data() + end;
}

// Whether the member named at `at` is called. Closing brackets may stand between the name and the
// call.
bool is_called(const TokenTexts& tokens, std::size_t at) {
    do {
        ++at;
    } while (at < tokens.size() && is_one_of(tokens[at], ")"));
    return at < tokens.size() && is_one_of(tokens[at], "(");
}

// Whether the call of a builtin at `at` is a default argument of a static member function that no
// code can call. Its class is then mentioned, outside of itself, only as the target of a reference
// or a pointer, and no code calls a member of that name on any object.
bool is_in_vain(const TokenTexts& tokens, std::size_t at) {
    constexpr std::size_t k_none = std::string_view::npos;
    const std::size_t parameters = opening_before(tokens, at, '(', ')', ";{}");
    if (parameters == k_none || parameters == 0) return false;
    const std::string_view function = tokens[parameters - 1];
    if (!is_word_start(function[0])) return false;
    const std::size_t declaration = begin_of_declaration(tokens, parameters);
    const std::size_t body = opening_before(tokens, declaration, '{', '}', "");
    if (body == k_none || body == 0 || !has_between(tokens, declaration, parameters, "static")) return false;
    if (has_between(tokens, declaration, parameters, "template")) return false;
    const std::string_view name = tokens[body - 1];
    const std::size_t head = begin_of_declaration(tokens, body);  // a class with bases is not recognized
    if (name == function || !is_word_start(name[0]) || name == "final") return false;
    if (!has_between(tokens, head, body, "struct") && !has_between(tokens, head, body, "class")) return false;
    std::size_t end = body, depth = 0;
    do {
        if (is_one_of(tokens[end], "{")) ++depth;
        if (is_one_of(tokens[end], "}")) --depth;
    } while (++end < tokens.size() && depth > 0);
    for (std::size_t i = 1; i < tokens.size(); ++i) {
        const bool is_inside = body < i && i < end;
        const std::string_view before = tokens[i - 1], after = i + 1 < tokens.size() ? tokens[i + 1] : ";";
        if (tokens[i] == function && i != parameters - 1) {
            if (is_inside || before == "::") return false;
            if ((before == "." || before == "->") && is_called(tokens, i)) return false;
        }
        if (tokens[i] == name && !is_inside && i != body - 1 && !is_one_of(after, "&*")) return false;
    }
    return true;
}

// Whether a token is a raw string, which may contain what looks like lines of the text.
bool is_raw_string(std::string_view token) { return token.back() == '"' && token.find("R\"") < token.find('"'); }

}  // namespace

bool tells_lines_apart(std::string_view text) {
    const auto mentions = [&](std::string_view name) { return contains(text, name); };
    if (!mentions("R\"") && std::none_of(std::begin(k_location_words), std::end(k_location_words), mentions))
        return false;
    TokenTexts tokens;
    Tokens reader(text);
    for (Token token; reader.next(token);) tokens.push_back(token.text);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (is_raw_string(tokens[i]) || (has(k_location_words, tokens[i]) && !is_in_vain(tokens, i))) return true;
    }
    return false;
}

}  // namespace lazyck::units
