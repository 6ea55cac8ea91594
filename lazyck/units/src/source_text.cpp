#include "source_text.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text.h"

namespace lazyck::units {

namespace {

// A declaration in a namespace or in a class, as far as it has been read.
struct Declaration {
    Definition found;
    std::string_view last_word;
    std::string function;    // the name of a function; of an operator with its sign or type
    std::string_view name;   // if it is not a function
    std::string_view other;  // a second name: `struct name {} other = {}`
    std::vector<std::string_view> enumerators;
    bool is_empty = true;
    bool is_namespace = false, is_linkage = false, is_class = false, has_value = false, has_parameters = false;
    bool has_bases = false;                                 // a class's list of bases has begun
    bool has_members = false;                               // members, enumerators or a value in braces were read
    bool is_odd = false;                                    // it may look like a function although it is none
    bool has_more_names = false;                            // it declares names that were not read
    std::size_t initializers = 0;                           // where a constructor's initializers begin
    std::size_t operator_at = 0;                            // where the word `operator` stands
    bool has_requirements = false, is_requirement = false;  // after `requires requires`, braces follow
    bool is_operator = false, is_enum = false;
    bool is_template = false, has_template_head = false;
    bool is_asked_for = false;            // inline, static, extern: the compiler makes it if something uses it
    bool names_a_type = false;            // typedef, using
    bool is_behind_scope = false;         // the last token was `::`, or `~` after it
    bool is_last_word_qualified = false;  // a `::` was before it
    bool is_in_memory = false;            // device, constant or managed: a variable is in device memory

    // Reads an attribute: `word`, and the brackets `text` behind it.
    void read_attribute(std::string_view word, std::string_view text) {
        const auto has_mark = [&](std::string_view word) {
            for (std::size_t i = text.find(word); i != std::string_view::npos; i = text.find(word, i + 1)) {
                const bool is_begun = i == 0 || !is_word(text[i - 1]) || text[i - 1] == '_';
                const std::size_t end = i + word.size();
                if (is_begun && (end == text.size() || !is_word(text[end]) || text[end] == '_')) return true;
            }
            return false;
        };
        found.is_kernel |= has_mark("global");
        found.is_device |= has_mark("device");
        found.is_host |= has_mark("host");
        is_in_memory |= has_mark("device") || has_mark("constant") || has_mark("managed");
        // ((global)) and ((__device__)) only say where it runs. Launch bounds and the like say
        // more.
        const bool is_target = word.substr(0, 11) == "__attribute" && text.find('(', 2) == std::string_view::npos &&
                               (has_mark("global") || has_mark("device") || has_mark("host"));
        found.has_attributes |= !is_target;
    }
};

constexpr std::string_view k_asked_for[] = {"inline", "__inline__", "__inline", "static", "extern", "constexpr"};

constexpr std::string_view k_takes_group[] = {
    "__attribute__", "__attribute", "__declspec", "alignas",  "decltype", "noexcept",          "__launch_bounds__",
    "requires",      "explicit",    "__typeof__", "typeof",   "throw",    "__maxnreg__",       "__cluster_dims__",
    "sizeof",        "_Alignas",    "__asm__",    "asm",      "__asm",    "__block_size__",    "__grid_constant__",
    "static_assert", "_Pragma",     "__pragma",   "__typeof", "if",       "__underlying_type",
};

// Words that may stand where a name was looked for. The name is then not known.
constexpr std::string_view k_no_names[] = {
    "struct", "class",  "union",  "enum",     "void", "bool",  "char",     "short",   "int",    "long",
    "float",  "double", "signed", "unsigned", "auto", "const", "noexcept", "default", "delete", "operator",
};

bool is_no_name(std::string_view word) { return word.empty() || has(k_no_names, word); }

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    Tokens tokens(text);
    for (Token token; tokens.next(token);) {
        if (is_word_start(token.text[0])) words.push_back(token.text);
    }
    return words;
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
        if (!m_classes.empty()) {  // the text ends within a class
            now = m_classes.front();
            m_classes.clear();
            close(now, m_tokens.at());
        }
        // A later definition need not repeat `__device__`.
        for (std::size_t i = 0; i < m_functions.size(); ++i)
            m_out.functions[i].is_reached = m_device_functions.count(m_functions[i]) != 0;
        return std::move(m_out);
    }

 private:
    bool read(const Token& token, Declaration& now) {
        const char c = token.text[0];
        const bool is_behind_scope = now.is_behind_scope;
        now.is_behind_scope = token.is("::") || (c == '~' && is_behind_scope);
        if (is_word_start(c)) {
            read_word(token.text, now);
            if (token.is("operator")) now.operator_at = token.begin;
            if (!now.is_operator || token.is("operator")) now.is_last_word_qualified = is_behind_scope;
            return true;
        }
        switch (c) {
            case ';':
                if (now.is_template && !now.has_template_head && (now.has_parameters || now.is_class)) {
                    now.found.is_instantiation = true;
                    add(now, now.found.begin);
                } else if (!m_classes.empty() && now.has_parameters && !now.has_value && !now.is_odd &&
                           !now.found.is_kernel) {
                    add(now, m_tokens.at());
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
                return token.text.size() > 1 || read_angles(now);
            case '{':
                return read_braces(token, now);
            case '=':
                if (token.text.size() == 1) read_value(now);
                return true;
            case ':':
                if (token.text.size() == 1) read_colon(token, now);
                return true;
            case ',':
                now.has_more_names |= now.initializers == 0 && !now.has_bases;
                return true;
            case '"':
                now.is_linkage |= now.last_word == "extern";
                return true;
            default:
                return true;
        }
    }

    // Reads a `=`. In a function, `= delete` and the like are not values.
    static void read_value(Declaration& now) {
        if (now.is_operator || (now.has_parameters && !now.is_odd)) return;
        now.has_value = true;
        (now.name.empty() ? now.name : now.other) = now.last_word;
    }

    static void read_word(std::string_view word, Declaration& now) {
        if (word == "template" && (now.last_word.empty() || now.last_word == "extern")) now.is_template = true;
        if (word == "final" && now.is_class && now.name.empty()) now.name = now.last_word;
        now.last_word = word;
        if (word == "namespace") now.is_namespace = true;
        if (word == "class" || word == "struct" || word == "union" || word == "enum") now.is_class = true;
        // Their braces contain no members of a class: an enum has enumerators, and a function's try
        // block catches what a constructor's initializers throw.
        if (word == "enum" || word == "try" || word == "catch") now.is_odd = true;
        if (word == "enum") now.is_enum = true;
        now.is_requirement = word == "requires" && std::exchange(now.has_requirements, true);
        if (word == "typedef" || word == "using") now.names_a_type = true;
        if (word == "static_assert") now.name = "static_assert()";  // a name that no text mentions
        now.is_asked_for |= has(k_asked_for, word);
        if (word == "constexpr" || word == "consteval") now.found.is_constant = true;
        if (word == "auto" || word == "decltype") now.found.is_deduced = true;
        if (word == "virtual" || word == "override" || word == "final") now.found.is_virtual = true;
        if (word == "operator") now.is_operator = true;
        if (word == "__global__") now.found.is_kernel = true;
        if (word == "__device__") now.found.is_device = true;
        if (word == "__device__" || word == "__constant__" || word == "__managed__") now.is_in_memory = true;
        if (word == "__host__") now.found.is_host = true;
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
        // `int (f)(int)` and pointers to members are not understood.
        const std::string_view read = m_text.substr(open.begin, m_tokens.at() - open.begin);
        now.has_more_names |= (now.has_parameters && word.empty()) || read.find("::*") != std::string_view::npos;
        if (has(k_takes_group, word)) {
            if (word != "decltype" && word != "requires") now.read_attribute(word, read);
        } else if (!now.has_parameters && !now.has_value && !now.has_bases) {
            // A pointer to a function has its name in the brackets.
            const std::size_t first = m_text.find_first_not_of(" \n", open.begin + 1);
            const bool is_pointer = m_text[first] == '*' || m_text[first] == '&';
            now.is_odd |= is_pointer;
            now.has_parameters = true;
            now.found.name = is_pointer        ? name_in(m_text.substr(first, m_tokens.at() - first))
                             : now.is_operator ? std::string_view("operator")
                                               : word;
            now.found.is_qualified = now.is_last_word_qualified;
            now.function = now.found.name;
            if (now.is_operator) {
                now.function = m_text.substr(now.operator_at, open.begin - now.operator_at);
                now.function.erase(std::remove_if(now.function.begin(), now.function.end(), is_space),
                                   now.function.end());
            }
        }
        now.last_word = {};
        return true;
    }

    // Returns the name that a group such as `*name)(int)` declares.
    static std::string_view name_in(std::string_view group) {
        Tokens tokens(group);
        for (Token token; tokens.next(token);) {
            if (is_word_start(token.text[0]) && token.text != "const" && token.text != "volatile") return token.text;
        }
        return {};
    }

    // Skips template parameters or arguments. The name before them stays the last word. A `<` that
    // nothing closes before the declaration ends is a comparison, and is ignored.
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

    // Moves behind the `>` that belongs to the `<` just read. Returns false if there is none.
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
            now = {};  // its contents are read as if they stood around it
            return true;
        }
        if (std::exchange(now.is_requirement, false)) return m_tokens.skip_group('{', '}');
        if (now.name.empty()) now.name = now.last_word;
        const bool is_instance = now.is_template && !now.has_template_head;
        if (now.is_class && !is_function && !now.has_value && !now.has_members && !is_instance && !now.is_odd) {
            now.has_members = true;
            now.last_word = {};
            m_classes.push_back(now);
            now = {};
            return true;
        }
        if (!m_tokens.skip_group('{', '}')) return false;
        if (!is_function) {
            if (now.is_enum) now.enumerators = words_of(m_text.substr(open.begin, m_tokens.at() - open.begin));
            now.has_members = true;
            now.last_word = {};
            return true;  // a class or a value, which a `;` ends
        }
        if (now.initializers != 0) {
            // Members may be initialized in braces. The body comes last.
            now.last_word = {};
            Token next;
            const Tokens here = m_tokens;
            const bool is_next = m_tokens.next(next);
            m_tokens = here;
            if (is_next && (next.is("{") || next.is(",") || next.is("."))) return true;
        }
        now.found.end = m_tokens.at();
        if (!now.found.name.empty() && !now.is_odd) add(now, now.initializers != 0 ? now.initializers : open.begin);
        close(now, m_tokens.at());
        return true;
    }

    // Adds a function that ends here.
    void add(const Declaration& now, std::size_t body) {
        Definition found = now.found;
        found.body = body;
        found.end = m_tokens.at();
        found.is_template = now.has_template_head;
        for (const Declaration& around : m_classes) found.is_template |= around.has_template_head;
        found.is_in_class = !m_classes.empty();
        found.is_optional = found.is_in_class && !found.is_virtual && !found.is_kernel && !found.is_instantiation &&
                            !now.names_a_type && !now.has_members && !now.has_more_names && !is_no_name(found.name);
        found.declaration = m_out.all.size();
        m_out.functions.push_back(found);
        m_functions.push_back(now.function);
    }

    void close(Declaration& now, std::size_t end) {
        if (now.found.is_device && now.has_parameters) m_device_functions.insert(now.function);
        if (m_classes.empty() && !now.is_empty) m_out.all.push_back(declared(now, end));
        now = {};
    }

    static Declared declared(const Declaration& now, std::size_t end) {
        const bool is_function = now.has_parameters && !now.has_value;
        const bool is_object = !is_function && !now.is_class && !now.is_namespace && !now.names_a_type;
        Declared out;
        out.begin = now.found.begin;
        out.end = end;
        out.is_own = now.found.is_own;
        out.is_device_variable = is_object && now.is_in_memory;
        out.is_enum = now.is_enum;
        out.is_template = now.has_template_head && !now.found.is_specialization;
        const bool is_code = is_object || (is_function && now.found.end != 0) || (now.is_template && !out.is_template);
        out.is_made = is_code && !out.is_template && !now.is_asked_for;
        // `using namespace` names a whole namespace.
        if (now.is_operator || now.is_namespace || now.has_more_names) return out;
        out.names = now.enumerators;
        if (is_function) {
            out.names.push_back(now.found.name);
        } else {
            out.names.push_back(now.name.empty() ? now.last_word : now.name);
            const std::string_view other = now.has_value ? now.other : now.last_word;
            if (!other.empty() && other != out.names.back()) out.names.push_back(other);
        }
        if (std::any_of(out.names.begin(), out.names.end(), is_no_name)) out.names.clear();
        return out;
    }

    std::string_view m_text;
    Tokens m_tokens;
    std::vector<Declaration> m_classes;  // the enclosing classes of what is read
    std::unordered_set<std::string> m_device_functions;
    std::vector<std::string> m_functions;  // the name of each function in m_out
    Definitions m_out;
};

}  // namespace

Definitions find_definitions(std::string_view text, std::string_view source) { return Finder(text, source).find(); }

bool is_body_alone(const Definition& d) {
    const bool has_body = d.body != d.end;
    return has_body && !d.is_kernel && !d.is_constant && !d.is_deduced && !d.is_virtual && !d.is_instantiation;
}

}  // namespace lazyck::units
