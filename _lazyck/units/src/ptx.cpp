#include "ptx.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

namespace lazyck::units {

namespace {

bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' || c == '.';
}

std::string_view last_name(std::string_view text) {
    while (!text.empty() && !is_name(text.back())) text.remove_suffix(1);
    std::size_t at = text.size();
    while (at > 0 && is_name(text[at - 1])) --at;
    return text.substr(at);
}

// Returns a parameter such as `.param .align 8 .b8 k_param_0[32]` without its name.
std::string shape(std::string_view parameter) {
    std::string out;
    for (std::size_t i = 0; i < parameter.size();) {
        const char c = parameter[i];
        if (std::isspace(static_cast<unsigned char>(c)) != 0) {
            ++i;
        } else if (is_name(c)) {
            std::size_t end = i;
            while (end < parameter.size() && is_name(parameter[end])) ++end;
            const std::string_view word = parameter.substr(i, end - i);
            const bool is_number = std::isdigit(static_cast<unsigned char>(c)) != 0;
            if ((c == '.' && word != ".param") || is_number) out += word;
            i = end;
        } else {
            if (c == '[' || c == ']') out += c;
            ++i;
        }
    }
    return out;
}

// Adds the names in `text` to `out`, except for `except`.
void add_names(std::string_view text, std::string_view except, std::set<std::string>& out) {
    for (std::size_t i = 0; i < text.size();) {
        if (!is_name(text[i])) {
            ++i;
            continue;
        }
        std::size_t end = i;
        while (end < text.size() && is_name(text[end])) ++end;
        const std::string_view word = text.substr(i, end - i);
        const bool may_be = word[0] == '_' || word[0] == '$' || std::isalpha(static_cast<unsigned char>(word[0])) != 0;
        if (may_be && word != except) out.emplace(word);
        i = end;
    }
}

// Reads the head of a kernel and returns its name.
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
    while (at < head.size() && std::isspace(static_cast<unsigned char>(head[at])) != 0) ++at;
    if (at < head.size() && head[at] == '(') at = std::min(head.find(')', at), head.size() - 1) + 1;
    return std::string(last_name(head.substr(0, std::min(head.find('(', at), head.size()))));
}

}  // namespace

Ptx read_ptx(std::string_view text) {
    Ptx out;
    // Reads one directive after another. Each ends at a `;`, or at the `{` of a body, which is read
    // separately.
    for (std::size_t at = 0; at < text.size();) {
        const char c = text[at];
        if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '}' || c == ';') {
            ++at;
            continue;
        }
        if (text.substr(at, 2) == "//") {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        const std::size_t line = std::min(text.find('\n', at), text.size());
        const std::string_view word = text.substr(at, line - at);
        const auto begins = [&](std::string_view lead) { return word.substr(0, lead.size()) == lead; };
        const bool is_code = begins(".visible .entry") || begins(".entry") || begins(".weak .entry") ||
                             word.find(".func") != std::string_view::npos;
        if (is_code) {
            const std::size_t body = std::min(text.find_first_of("{;", at), text.size());
            const std::string_view head = text.substr(at, body - at);
            const bool is_entry = head.find(".entry") != std::string_view::npos;
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
        const bool is_variable =
            word.find(".global") != std::string_view::npos || word.find(".const ") != std::string_view::npos;
        if (!is_variable) {
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
