#include "source_text.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

namespace lazyck::units {

namespace {

bool is_word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }
bool is_word(char c) { return is_word_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

struct Token {
    std::string_view text;
    std::size_t begin = 0;
    std::size_t end() const { return begin + text.size(); }
    bool is(std::string_view other) const { return text == other; }
};

// Reads tokens of a preprocessed text; line markers say which file a token stands in.
class Tokens {
 public:
    Tokens(std::string_view text, std::string_view source) : m_text(text), m_source(source) {}

    // False at the end.
    bool next(Token& out) {
        skip_space();
        if (m_at >= m_text.size()) return false;
        const std::size_t begin = m_at;
        const char c = m_text[begin];
        if (is_word_start(c)) {
            while (m_at < m_text.size() && is_word(m_text[m_at])) ++m_at;
            const std::string_view word = m_text.substr(begin, m_at - begin);
            const bool is_raw = !word.empty() && word.back() == 'R' && word.size() <= 3;
            if (m_at < m_text.size() && m_text[m_at] == '"' && is_raw) skip_raw();
        } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
            // with the separators of 1'000 and the signs of 1e-5
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
        } else {
            ++m_at;
        }
        out = {m_text.substr(begin, m_at - begin), begin};
        return true;
    }

    bool is_in_source() const { return m_is_in_source; }
    std::size_t at() const { return m_at; }

    // Goes behind the bracket that closes the one just read. False where the text ends before.
    bool skip_group(char open, char close) {
        Token token;
        for (int depth = 1; next(token);) {
            if (token.text.size() != 1) continue;
            depth += token.text[0] == open ? 1 : token.text[0] == close ? -1 : 0;
            if (depth == 0) return true;
        }
        return false;
    }

 private:
    void skip_space() {
        while (m_at < m_text.size()) {
            const char c = m_text[m_at];
            if (c == '#' && is_at_line_start()) {
                const std::size_t end = std::min(m_text.find('\n', m_at), m_text.size());
                read_marker(m_text.substr(m_at, end - m_at));
                m_at = end;
            } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '\\') {
                ++m_at;
            } else {
                return;
            }
        }
    }

    bool is_at_line_start() const {
        for (std::size_t i = m_at; i > 0; --i) {
            if (m_text[i - 1] == '\n') return true;
            if (std::isspace(static_cast<unsigned char>(m_text[i - 1])) == 0) return false;
        }
        return true;
    }

    // # 12 "file" 2
    void read_marker(std::string_view line) {
        const std::size_t digit = line.find_first_of("0123456789");
        const std::size_t open = line.find('"');
        if (digit == std::string_view::npos || open == std::string_view::npos || digit > open) return;
        if (line.find_first_not_of("# \tline0123456789") != open) return;
        const std::size_t close = line.rfind('"');
        m_is_in_source = line.substr(open + 1, close - open - 1) == m_source;
    }

    void skip_quoted(char quote) {
        for (++m_at; m_at < m_text.size() && m_text[m_at] != quote; ++m_at) {
            if (m_text[m_at] == '\\') ++m_at;
        }
        m_at = std::min(m_at + 1, m_text.size());
    }

    void skip_raw() {
        const std::size_t open = m_text.find('(', m_at);
        if (open == std::string_view::npos) {
            m_at = m_text.size();
            return;
        }
        const std::string close = ")" + std::string(m_text.substr(m_at + 1, open - m_at - 1)) + "\"";
        const std::size_t end = m_text.find(close, open);
        m_at = end == std::string_view::npos ? m_text.size() : end + close.size();
    }

    std::string_view m_text, m_source;
    std::size_t m_at = 0;
    bool m_is_in_source = false;
};

// One declaration in a namespace or in a class, as far as it was read.
struct Declaration {
    Definition found;
    std::string_view last_word;
    std::string_view name;  // of what is no function
    bool is_empty = true;
    bool is_namespace = false, is_linkage = false, is_class = false, has_value = false, has_parameters = false;
    bool has_bases = false;        // what a class is derived from was begun
    bool has_members = false;      // or enumerators, or a value in braces
    bool is_odd = false;           // it may look like a function that it is not
    std::size_t initializers = 0;  // where a constructor's begin
    bool is_operator = false;
    bool is_template = false, has_template_head = false;
    bool is_behind_scope = false;         // the last token was `::`, or that with `~`
    bool is_last_word_qualified = false;  // a `::` was before it
    bool wants_arguments = false;         // of a template's name, which may contain brackets

    // `text` with its brackets, of the word before them.
    void read_attribute(std::string_view word, std::string_view text) {
        const auto has = [&](std::string_view word) {
            for (std::size_t i = text.find(word); i != std::string_view::npos; i = text.find(word, i + 1)) {
                const bool is_begun = i == 0 || !is_word(text[i - 1]) || text[i - 1] == '_';
                const std::size_t end = i + word.size();
                if (is_begun && (end == text.size() || !is_word(text[end]) || text[end] == '_')) return true;
            }
            return false;
        };
        found.is_kernel |= has("global");
        found.is_device |= has("device");
        // ((global)), ((__device__)); launch bounds and the like are more
        const bool is_place = word.substr(0, 11) == "__attribute" && text.find('(', 2) == std::string_view::npos &&
                              (has("global") || has("device") || has("host"));
        found.has_attributes |= !is_place;
    }
};

constexpr std::string_view k_takes_group[] = {
    "__attribute__", "__attribute", "__declspec", "alignas",  "decltype", "noexcept",          "__launch_bounds__",
    "requires",      "explicit",    "__typeof__", "typeof",   "throw",    "__maxnreg__",       "__cluster_dims__",
    "sizeof",        "_Alignas",    "__asm__",    "asm",      "__asm",    "__block_size__",    "__grid_constant__",
    "static_assert", "_Pragma",     "__pragma",   "__typeof", "if",       "__underlying_type",
};

bool takes_group(std::string_view word) {
    return std::find(std::begin(k_takes_group), std::end(k_takes_group), word) != std::end(k_takes_group);
}

class Finder {
 public:
    Finder(std::string_view text, std::string_view source) : m_text(text), m_tokens(text, source) {}

    Definitions find() {
        Declaration now;
        Token token;
        while (m_tokens.next(token)) {
            if (now.is_empty) {
                now.is_empty = false;
                now.found.begin = token.begin;
                now.found.is_own = m_tokens.is_in_source();
            }
            if (!read(token, now)) break;
        }
        if (!m_classes.empty()) {  // it ends within
            now = m_classes.front();
            m_classes.clear();
            close(now, m_tokens.at());
        }
        return std::move(m_out);
    }

 private:
    bool read(const Token& token, Declaration& now) {
        const char c = token.text[0];
        const bool is_behind_scope = now.is_behind_scope;
        now.is_behind_scope = token.is("::") || (c == '~' && is_behind_scope);
        if (is_word_start(c)) {
            read_word(token.text, now);
            if (!now.is_operator || token.is("operator")) now.is_last_word_qualified = is_behind_scope;
            return true;
        }
        switch (c) {
            case ';':
                if (now.is_template && !now.has_template_head && (now.has_parameters || now.is_class)) {
                    now.found.is_instantiation = true;
                    now.found.body = now.found.begin;
                    now.found.end = m_tokens.at();
                    add(now.found);
                }
                close(now, m_tokens.at());
                return true;
            case '}':  // of a namespace or a class
                if (m_classes.empty()) {
                    now = {};
                } else {
                    now = m_classes.back();
                    m_classes.pop_back();
                }
                return true;
            case '(':
                return read_group(token, now);
            case '[':
                return m_tokens.skip_group('[', ']');
            case '<':
                return read_angles(now);
            case '{':
                return read_braces(token, now);
            case '=':
                if (!now.is_operator) {
                    now.has_value = true;
                    if (now.name.empty()) now.name = now.last_word;
                }
                return true;
            case ':':
                if (token.text.size() == 1) read_colon(token, now);
                return true;
            case '"':
                now.is_linkage |= now.last_word == "extern";
                return true;
            default:
                return true;
        }
    }

    static void read_word(std::string_view word, Declaration& now) {
        if (word == "template" && (now.last_word.empty() || now.last_word == "extern")) now.is_template = true;
        if (word == "final" && now.is_class && now.name.empty()) now.name = now.last_word;
        now.last_word = word;
        if (word == "namespace") now.is_namespace = true;
        if (word == "class" || word == "struct" || word == "union" || word == "enum") now.is_class = true;
        // what stands in braces is no class: enumerators, a constructor's way to catch what its initializers throw
        if (word == "enum" || word == "try" || word == "catch") now.is_odd = true;
        if (word == "constexpr" || word == "consteval") now.found.is_constant = true;
        if (word == "auto" || word == "decltype") now.found.is_deduced = true;
        if (word == "virtual" || word == "override" || word == "final") now.found.is_virtual = true;
        if (word == "operator") now.is_operator = true;
        if (word == "__global__") now.found.is_kernel = true;
        if (word == "__device__") now.found.is_device = true;
    }

    void read_colon(const Token& colon, Declaration& now) {
        if (now.has_parameters) {
            if (now.initializers == 0) now.initializers = colon.begin;
        } else if (now.is_class) {
            if (now.name.empty()) now.name = now.last_word;
            now.has_bases = true;
        } else if (now.last_word == "public" || now.last_word == "protected" || now.last_word == "private") {
            now = {};
        }
    }

    bool read_group(const Token& open, Declaration& now) {
        const std::string_view word = now.last_word;
        if (!m_tokens.skip_group('(', ')')) return false;
        if (takes_group(word)) {
            if (word != "decltype" && word != "requires") {
                now.read_attribute(word, m_text.substr(open.begin, m_tokens.at() - open.begin));
            }
        } else if (!now.has_parameters && !now.has_value && !now.has_bases) {
            // a pointer to a function, in its brackets
            const std::size_t first = m_text.find_first_not_of(" \n", open.begin + 1);
            now.is_odd |= m_text[first] == '*' || m_text[first] == '&';
            now.has_parameters = true;
            now.found.name = word;
            now.found.is_qualified = now.is_last_word_qualified;
        }
        now.last_word = {};
        return true;
    }

    // Template parameters or arguments: a name's, which stays the last word. A `<` that nothing closes before the
    // declaration ends was a comparison, and what follows it is read as if it were not there.
    bool read_angles(Declaration& now) {
        if (now.last_word.empty() || now.is_operator || now.has_parameters) return true;
        const Tokens here = m_tokens;
        if (!skip_angles()) {
            m_tokens = here;
            now.last_word = {};
            return true;
        }
        if (now.last_word == "template") {
            now.has_template_head = true;
            const std::string_view read = m_text.substr(here.at(), m_tokens.at() - here.at());
            now.found.is_specialization |= read.find_first_not_of(" \n>") == std::string_view::npos;
        }
        return true;
    }

    // Goes behind the `>` that belongs to the `<` just read. False where there is none.
    bool skip_angles() {
        Token token;
        bool is_behind_group = false;
        for (int depth = 1; depth > 0;) {
            if (!m_tokens.next(token)) return false;
            const char c = token.text.size() == 1 ? token.text[0] : '\0';
            const bool is_body = c == '{' && is_behind_group;
            if (c == ';' || c == ')' || c == ']' || c == '}' || is_body) return false;
            if (c == '(' && !m_tokens.skip_group('(', ')')) return false;
            if (c == '[' && !m_tokens.skip_group('[', ']')) return false;
            if (c == '{' && !m_tokens.skip_group('{', '}')) return false;
            is_behind_group = c == '(';
            depth += c == '<' ? 1 : c == '>' ? -1 : 0;
        }
        return true;
    }

    bool read_braces(const Token& open, Declaration& now) {
        const bool is_function = now.has_parameters && !now.has_value;
        if (!is_function && (now.is_namespace || now.is_linkage)) {
            now = {};  // what stands in it is read as what stands around it
            return true;
        }
        if (now.name.empty()) now.name = now.last_word;
        if (now.is_class && !is_function && !now.has_value && !now.has_members && !now.is_template && !now.is_odd) {
            now.has_members = true;
            now.last_word = {};
            m_classes.push_back(now);
            now = {};
            return true;
        }
        if (!m_tokens.skip_group('{', '}')) return false;
        if (!is_function) {
            now.has_members = true;
            now.last_word = {};
            return true;  // a class or a value: a `;` follows
        }
        if (now.initializers != 0) {
            // Members in braces, and the body last.
            now.last_word = {};
            Token next;
            const Tokens here = m_tokens;
            const bool is_next = m_tokens.next(next);
            m_tokens = here;
            if (is_next && (next.is("{") || next.is(",") || next.is("."))) return true;
        }
        Definition found = now.found;
        found.is_template = now.has_template_head;
        found.body = now.initializers != 0 ? now.initializers : open.begin;
        found.end = m_tokens.at();
        if (!found.name.empty() && !now.is_odd) add(found);
        close(now, m_tokens.at());
        return true;
    }

    void add(Definition& found) {
        found.declaration = m_out.all.size();
        m_out.functions.push_back(found);
    }

    // A declaration ends at `end`.
    void close(Declaration& now, std::size_t end) {
        if (m_classes.empty() && !now.is_empty) {
            const bool is_function = now.has_parameters && !now.has_value;
            const std::string_view name = is_function ? now.found.name : now.name.empty() ? now.last_word : now.name;
            const bool is_template = now.has_template_head && now.found.is_device && !is_function && !now.is_class;
            m_out.all.push_back({now.is_operator ? std::string_view() : name, now.found.begin, end, is_template});
        }
        now = {};
    }

    std::string_view m_text;
    Tokens m_tokens;
    std::vector<Declaration> m_classes;  // that what is read stands in
    Definitions m_out;
};

}  // namespace

Definitions find_definitions(std::string_view text, std::string_view source) { return Finder(text, source).find(); }

std::vector<bool> that_reach(std::string_view text, const std::vector<Declared>& all,
                             std::set<std::string_view> names) {
    std::unordered_map<std::string_view, std::vector<std::size_t>> users;
    for (std::size_t i = 0; i < all.size(); ++i) {
        Tokens tokens(text.substr(all[i].begin, all[i].end - all[i].begin), {});
        Token token;
        while (tokens.next(token)) {
            if (!is_word_start(token.text[0])) continue;
            std::vector<std::size_t>& those = users[token.text];
            if (those.empty() || those.back() != i) those.push_back(i);
        }
    }
    std::vector<bool> found(all.size());
    std::vector<std::string_view> open(names.begin(), names.end());
    while (!open.empty()) {
        const auto those = users.find(open.back());
        open.pop_back();
        if (those == users.end()) continue;
        for (const std::size_t user : those->second) {
            found[user] = true;
            if (!all[user].name.empty() && names.insert(all[user].name).second) open.push_back(all[user].name);
        }
    }
    return found;
}

std::string with_bodies_replaced(std::string_view text, const std::vector<Definition>& definitions,
                                 const std::function<std::string_view(const Definition&)>& replacement) {
    std::string out;
    out.reserve(text.size());
    std::size_t at = 0;
    for (const Definition& definition : definitions) {
        const std::string_view instead = replacement(definition);
        if (instead.empty()) continue;
        out += text.substr(at, definition.body - at);
        out += instead;
        const std::string_view body = text.substr(definition.body, definition.end - definition.body);
        // Line markers within it go too: the lines that follow count from the last one, which is said again.
        std::size_t marker = body.rfind("\n# ");
        if (marker != std::string_view::npos) {
            out += body.substr(marker, body.find('\n', marker + 1) - marker);
            out.append(static_cast<std::size_t>(
                           std::count(body.begin() + static_cast<std::ptrdiff_t>(marker) + 1, body.end(), '\n')),
                       '\n');
        } else {
            out.append(static_cast<std::size_t>(std::count(body.begin(), body.end(), '\n')), '\n');
        }
        at = definition.end;
    }
    out += text.substr(at);
    return out;
}

}  // namespace lazyck::units
