#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "source_text.h"
#include "text.h"

namespace lazyck::units {

namespace {

using Indices = std::vector<std::size_t>;

// Names that code uses without writing them: the functions of a launch, and what the language
// itself looks for.
constexpr std::string_view k_always[] = {
    "cudaConfigureCall",
    "__cudaPushCallConfiguration",
    "__cudaPopCallConfiguration",
    "cudaLaunchKernel",
    "__cudaLaunchKernel",
    "__cudaGetKernel",
    "dim3",
    "uint3",
    "size_t",
    "ptrdiff_t",
    "nullptr_t",
    "align_val_t",
    "initializer_list",
    "type_info",
    "tuple_size",
    "tuple_element",
    "get",
    "begin",
    "end",
    "operator",
    "strong_ordering",
    "weak_ordering",
    "partial_ordering",
};

// A part of a text that is left out, and its replacement.
struct Cut {
    std::size_t begin = 0, end = 0;
    std::string_view instead;
};

// Calls `f` with each word of `text` that may be a name, except for `own`, which `text` declares.
template <class F>
void for_each_word(std::string_view text, std::string_view own, const F& f) {
    Tokens tokens(text);
    // The depth of brackets in an attribute such as `__attribute__((name(argument)))`, whose name
    // belongs to the compiler.
    int depth = 0;
    bool is_attribute = false;
    for (Token token; tokens.next(token);) {
        if (is_attribute && (token.is("(") || token.is(")"))) {
            depth += token.is("(") ? 1 : -1;
            is_attribute = depth > 0;
        }
        if (!is_word_start(token.text[0]) || token.text.data() == own.data() || token.is("operator")) continue;
        if (token.is("__attribute__")) {
            is_attribute = true;
            depth = 0;
        } else if (!is_attribute || depth > 2) {
            f(token.text);
        }
    }
}

// Finds the declarations, and the functions of classes, that mention each name.
class NameUses {
 public:
    NameUses(std::string_view text, const Definitions& found) : m_text(text), m_found(found) {
        for (const Declared& each : found.all) {
            for (const std::string_view name : each.names) m_users[name];
        }
        for (const Definition& each : found.functions) m_users[each.name];
        std::vector<std::size_t> ends(found.all.size());
        for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = found.all[i].begin;
        for (std::size_t i = 0; i < found.functions.size(); ++i) {
            const Definition& d = found.functions[i];
            if (!d.is_in_class) continue;
            add(ends[d.declaration], d.begin, d.declaration, {});
            add(d.begin, d.end, found.all.size() + i, d.name);
            ends[d.declaration] = d.end;
        }
        for (std::size_t i = 0; i < ends.size(); ++i) {
            const Declared& d = found.all[i];
            add(ends[i], d.end, i, {});
        }
    }

    Parts reach(std::vector<std::string_view> open) {
        const std::size_t declarations = m_found.all.size();
        std::vector<bool> found(declarations + m_found.functions.size());
        std::unordered_set<std::string_view> names(open.begin(), open.end());
        const auto add_name = [&](std::string_view name) {
            if (names.insert(name).second) open.push_back(name);
        };
        while (!open.empty()) {
            const auto those = m_users.find(open.back());
            open.pop_back();
            if (those == m_users.end()) continue;
            for (const std::size_t user : those->second) {
                found[user] = true;
                const bool is_function = user >= declarations;
                const Definition* const function = is_function ? &m_found.functions[user - declarations] : nullptr;
                const Declared& around = m_found.all[is_function ? function->declaration : user];
                // Constructors are called by the name of their class, and some functions by none.
                if (is_function && !has(k_always, function->name) && !has(around.names, function->name)) {
                    add_name(function->name);
                    continue;
                }
                for (const std::string_view name : around.names) add_name(name);
            }
        }
        add_what_is_handed_functions(found);
        Parts out;
        out.declarations.assign(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(declarations));
        for (std::size_t i = 0; i < m_found.functions.size(); ++i) out.functions.push_back(found[user_of(i)]);
        return out;
    }

 private:
    std::size_t user_of(std::size_t function) const {
        const Definition& d = m_found.functions[function];
        return d.is_in_class ? m_found.all.size() + function : d.declaration;
    }

    // Adds function templates that one of `found` mentions and that may call what they are given
    // (`op()(...)`). Such a template does not name what it calls.
    void add_what_is_handed_functions(std::vector<bool>& found) const {
        const auto is_found = [&](std::size_t user) { return found[user]; };
        for (bool is_more = true; std::exchange(is_more, false);) {
            for (std::size_t i = 0; i < m_found.functions.size(); ++i) {
                const Definition& d = m_found.functions[i];
                if (!d.is_template || d.is_kernel || found[user_of(i)]) continue;
                const Indices& users = m_users.at(d.name);
                if (std::none_of(users.begin(), users.end(), is_found)) continue;
                if (d.is_own || calls_what_it_is_given(d)) found[user_of(i)] = is_more = true;
            }
        }
    }

    // Whether a name in the head of the function stands before an opening bracket in its body. The
    // name is a parameter's, or that of its type.
    bool calls_what_it_is_given(const Definition& d) const {
        std::unordered_set<std::string_view> names;
        for_each_word(m_text.substr(d.begin, d.body - d.begin), d.name,
                      [&](std::string_view word) { names.insert(word); });
        Tokens tokens(m_text.substr(d.body, d.end - d.body));
        std::string_view last;
        for (Token token; tokens.next(token); last = token.text) {
            if (token.is("(") && names.count(last) != 0) return true;
        }
        return false;
    }

    // Adds the mentions in a range. `own` is the name that is declared there, which is no mention.
    void add(std::size_t begin, std::size_t end, std::size_t user, std::string_view own) {
        if (begin >= end) return;
        for_each_word(m_text.substr(begin, end - begin), own, [&](std::string_view word) {
            const auto those = m_users.find(word);
            if (those != m_users.end() && (those->second.empty() || those->second.back() != user))
                those->second.push_back(user);
        });
    }

    std::string_view m_text;
    const Definitions& m_found;
    std::unordered_map<std::string_view, Indices> m_users;
};

// Follows mentions from the roots to everything that is needed.
class Users {
 public:
    Users(std::string_view text, const Definitions& found, const std::vector<Cut>& cuts)
        : m_text(text), m_found(found), m_cuts(cuts) {
        m_used.declarations.resize(found.all.size());
        m_used.functions.resize(found.functions.size());
        for (std::size_t i = 0; i < found.all.size(); ++i) {
            for (const std::string_view name : found.all[i].names) m_declared[name].push_back(i);
        }
    }

    Parts find(const std::vector<bool>& roots, std::string_view more) {
        for_each_word(more, {}, [this](std::string_view word) { mention(word); });
        for (const std::string_view name : k_always) mention(name);
        for (std::size_t i = 0; i < roots.size(); ++i) {
            if (roots[i] || m_found.all[i].names.empty()) use(i);
        }
        while (!m_open.empty()) {
            const NeededRange range = m_open.back();
            m_open.pop_back();
            read(range);
        }
        return std::move(m_used);
    }

 private:
    struct NeededRange {
        std::size_t begin, end;
        bool is_function;
    };

    void use(std::size_t declaration) {
        if (m_used.declarations[declaration]) return;
        m_used.declarations[declaration] = true;
        m_open.push_back({m_found.all[declaration].begin, m_found.all[declaration].end, false});
    }

    void mention(std::string_view name) {
        if (!m_mentioned.insert(name).second) return;
        if (const auto those = m_declared.find(name); those != m_declared.end()) {
            for (const std::size_t each : those->second) use(each);
        }
        if (const auto those = m_waiting.find(name); those != m_waiting.end()) {
            for (const std::size_t each : those->second) use_function(each);
        }
    }

    void use_function(std::size_t function) {
        m_used.functions[function] = true;
        const Definition& d = m_found.functions[function];
        m_open.push_back({d.begin, d.end, true});
    }

    // Reads a declaration without its optional functions, or one optional function.
    void read(const NeededRange& range) {
        std::size_t at = range.begin;
        auto cut = std::lower_bound(m_cuts.begin(), m_cuts.end(), at,
                                    [](const Cut& each, std::size_t offset) { return each.begin < offset; });
        auto function = std::lower_bound(m_found.functions.begin(), m_found.functions.end(), at,
                                         [](const Definition& d, std::size_t offset) { return d.begin < offset; });
        while (at < range.end) {
            const std::size_t next_cut = cut == m_cuts.end() ? range.end : std::min(cut->begin, range.end);
            const bool is_function = !range.is_function && function != m_found.functions.end() &&
                                     function->begin < range.end && function->begin <= next_cut;
            const auto index = static_cast<std::size_t>(function - m_found.functions.begin());
            if (is_function && !function->is_optional) {
                ++function;
            } else if (is_function) {
                read_words(at, function->begin);
                at = function->end;
                // The cuts in it are left out with it.
                while (cut != m_cuts.end() && cut->begin < at) ++cut;
                wait_for(index);
                ++function;
            } else {
                read_words(at, next_cut);
                at = next_cut;
                if (cut == m_cuts.end() || cut->begin >= range.end) break;
                at = (cut++)->end;
            }
        }
    }

    void wait_for(std::size_t function) {
        const std::string_view name = m_found.functions[function].name;
        if (m_mentioned.count(name) != 0)
            use_function(function);
        else
            m_waiting[name].push_back(function);
    }

    void read_words(std::size_t begin, std::size_t end) {
        if (begin >= end) return;
        for_each_word(m_text.substr(begin, end - begin), {}, [this](std::string_view word) { mention(word); });
    }

    std::string_view m_text;
    const Definitions& m_found;
    const std::vector<Cut>& m_cuts;
    std::unordered_map<std::string_view, Indices> m_declared, m_waiting;
    std::unordered_set<std::string_view> m_mentioned;
    std::vector<NeededRange> m_open;
    Parts m_used;
};

// Adds a cut of [begin, end), and cuts of the pragmas before it that apply to what follows them.
void add_with_pragmas(std::string_view text, std::size_t begin, std::size_t end, std::vector<Cut>& cuts) {
    const std::size_t first = cuts.size();
    cuts.push_back({begin, end, k_left_out});
    for (std::size_t at = begin; at > 0;) {
        const std::size_t last = text.find_last_not_of(" \n", at - 1);
        if (last == std::string_view::npos) break;
        const std::size_t line = text.rfind('\n', last) + 1;  // 0 on the first line
        const std::string_view said = text.substr(line, last + 1 - line);
        if (begins_with(said, "#pragma nv_exec_check_disable") || begins_with(said, "#pragma hd_warning_disable"))
            cuts.push_back({line, last + 1, " "});
        else if (!begins_with(said, "# "))
            break;
        at = line;
    }
    std::reverse(cuts.begin() + static_cast<std::ptrdiff_t>(first), cuts.end());
}

void add_replaced(const Definition& d, const Replacement& replacement, std::vector<Cut>& cuts) {
    const std::string_view instead = replacement(d);
    const bool has_no_head = instead == ";" && d.is_qualified && !d.is_specialization;
    if (!instead.empty()) cuts.push_back({has_no_head ? d.begin : d.body, d.end, instead});
}

std::vector<Cut> cuts_of(const Definitions& found, const Replacement& replacement) {
    std::vector<Cut> cuts;
    for (const Definition& d : found.functions) add_replaced(d, replacement, cuts);
    return cuts;
}

std::string with_cuts(std::string_view text, const std::vector<Cut>& cuts) {
    std::string out;
    out.reserve(text.size());
    std::size_t at = 0;
    for (const Cut& cut : cuts) {
        out += text.substr(at, cut.begin - at);
        out += cut.instead;
        const std::string_view gone = text.substr(cut.begin, cut.end - cut.begin);
        // Line markers in the cut are dropped. The lines that follow count from the last of them,
        // so it is repeated.
        const std::size_t marker = gone.rfind("\n# ");
        std::size_t counted = 0;
        if (marker != std::string_view::npos) {
            out += gone.substr(marker, gone.find('\n', marker + 1) - marker);
            counted = marker + 1;
        }
        out.append(
            static_cast<std::size_t>(std::count(gone.begin() + static_cast<std::ptrdiff_t>(counted), gone.end(), '\n')),
            '\n');
        at = cut.end;
    }
    out += text.substr(at);
    return out;
}

}  // namespace

std::string with_replacements(std::string_view text, const Definitions& found, const Replacement& replacement) {
    return with_cuts(text, cuts_of(found, replacement));
}

std::string with_needed_parts(std::string_view text, const Definitions& found, const Replacement& replacement,
                              const std::vector<bool>& roots, std::string_view more) {
    const std::vector<Cut> replaced = cuts_of(found, replacement);
    const Parts used = Users(text, found, replaced).find(roots, more);
    std::vector<Cut> cuts;
    std::size_t next = 0;
    const auto add_functions_before = [&](std::size_t end) {
        for (; next < found.functions.size() && found.functions[next].begin < end; ++next) {
            const Definition& d = found.functions[next];
            if (!used.declarations[d.declaration]) continue;
            if (d.is_optional && !used.functions[next])
                add_with_pragmas(text, d.begin, d.end, cuts);
            else
                add_replaced(d, replacement, cuts);
        }
    };
    for (std::size_t i = 0; i < found.all.size(); ++i) {
        if (used.declarations[i]) continue;
        add_functions_before(found.all[i].begin);
        add_with_pragmas(text, found.all[i].begin, found.all[i].end, cuts);
    }
    add_functions_before(text.size());
    return with_cuts(text, cuts);
}

Parts that_reach(std::string_view text, const Definitions& found, std::vector<std::string_view> names) {
    return NameUses(text, found).reach(std::move(names));
}

}  // namespace lazyck::units
