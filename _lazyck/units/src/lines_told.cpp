#include "lines_told.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "tokens.h"

namespace lazyck::units {

namespace {

using TokenTexts = std::vector<std::string_view>;

constexpr std::array<std::string_view, 5> k_places = {"__builtin_LINE", "__builtin_FILE", "__builtin_FILE_NAME",
                                                      "__builtin_COLUMN", "__builtin_source_location"};

bool is_place(std::string_view token) { return std::find(k_places.begin(), k_places.end(), token) != k_places.end(); }

bool is_one_of(std::string_view token, std::string_view characters) {
    return token.size() == 1 && characters.find(token[0]) != std::string_view::npos;
}

// Returns the place of the last unmatched `open` before `at`; npos if one of `barriers` comes
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

bool has(const TokenTexts& tokens, std::size_t begin, std::size_t end, std::string_view token) {
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

// Whether the call of a builtin at `at` is a default argument of a static member function that
// nobody can call. Its class is then mentioned, outside of itself, only as the target of a
// reference or a pointer, and nobody calls a member of that name on any object.
bool is_in_vain(const TokenTexts& tokens, std::size_t at) {
    constexpr std::size_t k_none = std::string_view::npos;
    const std::size_t parameters = opening_before(tokens, at, '(', ')', ";{}");
    if (parameters == k_none || parameters == 0) return false;
    const std::string_view function = tokens[parameters - 1];
    if (!is_word_start(function[0])) return false;
    const std::size_t declaration = begin_of_declaration(tokens, parameters);
    const std::size_t body = opening_before(tokens, declaration, '{', '}', "");
    if (body == k_none || body == 0 || !has(tokens, declaration, parameters, "static")) return false;
    if (has(tokens, declaration, parameters, "template")) return false;
    const std::string_view name = tokens[body - 1];
    const std::size_t head = begin_of_declaration(tokens, body);  // a class with bases is not recognized
    if (name == function || !is_word_start(name[0]) || name == "final") return false;
    if (!has(tokens, head, body, "struct") && !has(tokens, head, body, "class")) return false;
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
    const auto mentions = [&](std::string_view name) { return text.find(name) != std::string_view::npos; };
    if (!mentions("R\"") && std::none_of(k_places.begin(), k_places.end(), mentions)) return false;
    TokenTexts tokens;
    Tokens reader(text);
    for (Token token; reader.next(token);) tokens.push_back(token.text);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (is_raw_string(tokens[i]) || (is_place(tokens[i]) && !is_in_vain(tokens, i))) return true;
    }
    return false;
}

}  // namespace lazyck::units
