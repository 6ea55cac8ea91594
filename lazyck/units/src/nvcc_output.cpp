#include "nvcc_output.h"

#include <algorithm>
#include <cstddef>

#include "text.h"

namespace lazyck::units {

namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

// Returns the offset of the `)` that closes the `(` at `open`; npos if none does.
std::size_t closing(std::string_view text, std::size_t open) {
    Tokens tokens(text.substr(open + 1));
    return tokens.skip_group('(', ')') ? open + tokens.at() : std::string_view::npos;
}

// Returns the arguments of a call as a macro splits them: at commas outside of brackets.
std::vector<std::string_view> arguments(std::string_view text) {
    std::vector<std::string_view> out;
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
        if (i < text.size() && text[i] == '(') {
            const std::size_t end = closing(text, i);
            i = end == std::string_view::npos ? text.size() - 1 : end;
        } else if (i == text.size() || text[i] == ',') {
            out.push_back(trimmed(text.substr(begin, i - begin)));
            begin = i + 1;
        }
    }
    return out;
}

// Returns `text` without the pairs of brackets that enclose all of it.
std::string_view without_brackets(std::string_view text) {
    text = trimmed(text);
    while (!text.empty() && text.front() == '(' && closing(text, 0) == text.size() - 1)
        text = trimmed(text.substr(1, text.size() - 2));
    return text;
}

void add_kernel(const std::vector<std::string_view>& words, Registrations& out) {
    if (words.size() != 4) return;
    Registrations::Kernel kernel;
    kernel.symbol = words[2];
    const std::string_view text = without_brackets(words[1]);  // `(void (*)(float *))k<(int)1>`
    const std::size_t end = !text.empty() && text.front() == '(' ? closing(text, 0) : std::string_view::npos;
    if (end != std::string_view::npos) {
        kernel.type = trimmed(text.substr(1, end - 1));
        kernel.spelling = trimmed(text.substr(end + 1));
    }
    out.kernels.push_back(std::move(kernel));
}

// Reads a registration of a variable, whose second argument is `__shadow_var(name,::spelling)`.
void add_variable(const std::vector<std::string_view>& words, Registrations& out) {
    if (words.size() < 2) return;
    const std::size_t open = words[1].find('(');
    const std::size_t end = open == std::string_view::npos ? open : closing(words[1], open);
    if (end == std::string_view::npos) return;
    const auto parts = arguments(words[1].substr(open + 1, end - open - 1));
    if (parts.size() == 2) out.variables.emplace_back(parts[0]);
}

bool is_name(char c) { return is_word(c) || c == '%' || c == '.'; }

std::string_view last_name(std::string_view text) {
    while (!text.empty() && !is_name(text.back())) text.remove_suffix(1);
    std::size_t at = text.size();
    while (at > 0 && is_name(text[at - 1])) --at;
    return text.substr(at);
}

// Calls `use` with each name in `text`, and with each other character alone.
template <class Use>
void for_each_piece(std::string_view text, const Use& use) {
    for (std::size_t i = 0, end = 0; i < text.size(); i = end) {
        for (end = i + 1; is_name(text[i]) && end < text.size() && is_name(text[end]);) ++end;
        use(text.substr(i, end - i));
    }
}

// Returns a parameter such as `.param .align 8 .b8 k_param_0[32]` without its name.
std::string shape(std::string_view parameter) {
    std::string out;
    for_each_piece(parameter, [&](std::string_view piece) {
        const char c = piece[0];
        if ((c == '.' && piece != ".param") || is_digit(c) || c == '[' || c == ']') out += piece;
    });
    return out;
}

void add_names(std::string_view text, std::string_view except, std::set<std::string>& out) {
    for_each_piece(text, [&](std::string_view word) {
        if (is_word_start(word[0]) && word != except) out.emplace(word);
    });
}

std::string read_entry(std::string_view head, Ptx& out) {
    const std::size_t at = head.find(".entry");
    const std::size_t open = head.find('(', at);
    const std::string_view name = last_name(head.substr(0, std::min(open, head.size())));
    std::string shapes;
    if (open != std::string_view::npos) {
        const std::size_t end = head.find(')', open);
        std::string_view rest = head.substr(open + 1, end - open - 1);
        while (!rest.empty()) {
            const std::size_t comma = std::min(rest.find(','), rest.size());
            const std::string one = shape(rest.substr(0, comma));
            if (!one.empty()) shapes += (shapes.empty() ? "" : ",") + one;
            rest.remove_prefix(std::min(comma + 1, rest.size()));
        }
    }
    out.entries.emplace(name, shapes);
    return std::string(name);
}

// Returns the name in a head such as `.visible .func (.param .b32 result) name(...)`.
std::string function_name(std::string_view head) {
    std::size_t at = head.find(".func") + 5;
    while (at < head.size() && is_space(head[at])) ++at;
    if (at < head.size() && head[at] == '(') at = std::min(head.find(')', at), head.size() - 1) + 1;
    return std::string(last_name(head.substr(0, std::min(head.find('(', at), head.size()))));
}

}  // namespace

Registrations read_stubs(std::string_view text) {
    Registrations out;
    constexpr std::string_view k_call = "__cudaRegister";
    for (std::size_t at = text.find(k_call); at != std::string_view::npos; at = text.find(k_call, at + 1)) {
        const std::size_t open = text.find('(', at);
        if (open == std::string_view::npos) break;
        const std::string_view name = trimmed(text.substr(at, open - at));
        const std::size_t end = closing(text, open);
        if (end == std::string_view::npos) continue;
        const auto words = arguments(text.substr(open + 1, end - open - 1));
        if (name == "__cudaRegisterEntry") add_kernel(words, out);
        if (name == "__cudaRegisterVariable" || name == "__cudaRegisterManagedVariable") add_variable(words, out);
    }
    return out;
}

Ptx read_ptx(std::string_view text) {
    Ptx out;
    // Reads one directive after another. Each ends at a `;`, or at the `{` of a body, which is read
    // separately.
    constexpr std::string_view k_between = " \t\r\n};";
    for (std::size_t at = 0; (at = text.find_first_not_of(k_between, at)) != std::string_view::npos;) {
        const std::size_t line = std::min(text.find('\n', at), text.size());
        const std::string_view word = text.substr(at, line - at);
        const bool is_comment = begins_with(word, "//");
        const bool is_code = begins_with(word, ".visible .entry") || begins_with(word, ".entry") ||
                             begins_with(word, ".weak .entry") || (!is_comment && contains(word, ".func"));
        if (is_code) {
            const std::size_t body = std::min(text.find_first_of("{;", at), text.size());
            const std::string_view head = text.substr(at, body - at);
            const bool is_entry = contains(head, ".entry");
            const std::string name = is_entry ? read_entry(head, out) : function_name(head);
            at = body;
            if (body == text.size() || text[body] == ';') continue;
            std::size_t depth = 0, end = body;
            for (; end < text.size(); ++end) {
                depth += text[end] == '{' ? 1 : 0;
                if (text[end] == '}' && --depth == 0) break;
            }
            if (!is_entry) out.functions.insert(name);
            add_names(text.substr(body, end - body), "", out.names[name]);
            at = end;
            continue;
        }
        if (is_comment || !(contains(word, ".global") || contains(word, ".const "))) {
            at = line;
            continue;
        }
        const std::size_t end = std::min(text.find(';', at), text.size());
        const std::string_view whole = text.substr(at, end - at);
        const std::size_t equals = whole.find('=');
        std::string_view head = whole.substr(0, std::min(equals, whole.size()));
        const std::size_t bracket = head.find('[');
        const std::string name(last_name(head.substr(0, std::min(bracket, head.size()))));
        (equals == std::string_view::npos ? out.uninitialized : out.initialized).insert(name);
        if (equals != std::string_view::npos) add_names(whole.substr(equals), name, out.names[name]);
        at = end;
    }
    return out;
}

std::set<std::string> Ptx::reached_by(const std::string& kernel) const {
    std::set<std::string> seen = {kernel};
    std::vector<std::string> todo = {kernel};
    while (!todo.empty()) {
        const std::string name = todo.back();
        todo.pop_back();
        const auto next = names.find(name);
        if (next == names.end()) continue;
        for (const std::string& each : next->second) {
            if (seen.insert(each).second) todo.push_back(each);
        }
    }
    return seen;
}

}  // namespace lazyck::units
