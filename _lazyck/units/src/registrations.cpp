#include "registrations.h"

#include <cctype>
#include <cstddef>

namespace lazyck::units {

namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
    return text;
}

// Returns the place of the bracket that closes the one at `open`; npos if none does.
std::size_t closing(std::string_view text, std::size_t open) {
    std::size_t depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '"' || c == '\'') {
            for (++i; i < text.size() && text[i] != c; ++i) i += text[i] == '\\' ? 1 : 0;
            continue;
        }
        depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
        if (c != ')' && c != ']' && c != '}') continue;
        if (--depth == 0) return i;
    }
    return std::string_view::npos;
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
    if (parts.size() == 2) out.variables.push_back({std::string(parts[0]), std::string(without_brackets(parts[1]))});
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

}  // namespace lazyck::units
