#include "ir_module.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "text.h"

namespace lazyck::units {

namespace {

constexpr std::size_t k_endless = 1 << 30;

bool is_list(std::string_view name) { return name == "@llvm.used" || name == "@llvm.compiler.used"; }

// Returns the end of the string that begins at `open`, behind its closing quotation mark. Within a
// string, quotation marks are written as `\22`.
std::size_t behind_string(std::string_view text, std::size_t open) {
    const std::size_t close = text.find('"', open + 1);
    return close == std::string_view::npos ? text.size() : close + 1;
}

// Returns the global name that begins at `at`: `@name` or `@"name"`.
std::string_view name_at(std::string_view text, std::size_t at) {
    std::size_t end = at + 1;
    if (end < text.size() && text[end] == '"') return text.substr(at, behind_string(text, end) - at);
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' ||
                                 text[end] == '.' || text[end] == '$' || text[end] == '-'))
        ++end;
    return text.substr(at, end - at);
}

// Calls `found` with each global name in `text`.
template <class Found>
void each_name(std::string_view text, const Found& found) {
    for (std::size_t i = 0; i < text.size();) {
        if (text[i] == '"') {
            i = behind_string(text, i);
        } else if (text[i] == '@') {
            const std::string_view name = name_at(text, i);
            found(name);
            i += name.size();
        } else {
            ++i;
        }
    }
}

// Returns a symbol's name as IR writes it.
std::string spelled(const std::string& symbol) {
    const std::string plain = "@" + symbol;
    return name_at(plain, 0) == plain ? plain : "@\"" + symbol + "\"";
}

bool has_word(std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || text[at - 1] == ' ') && (end == text.size() || text[end] == ' ')) return true;
    }
    return false;
}

// Returns what stands before the first global name in a function's head: linkage, calling
// convention and type.
std::string_view head_of(std::string_view text) { return text.substr(0, text.find('@')); }

// Returns what stands between `=` and the initializer of a variable, up to `constant` or `global`.
std::string_view kind_of(std::string_view text, std::string_view name) {
    const std::string_view rest = text.substr(name.size());
    std::size_t end = std::min(rest.find(" constant "), rest.find(" global "));
    if (end == std::string_view::npos) return rest;
    return rest.substr(0, rest.find(' ', end + 1));
}

// Returns the line `text`, a list of names, with only those that are in `kept`; an empty string if
// none is left.
std::string list_of(std::string_view text, const std::set<std::string_view>& kept) {
    const std::size_t open = text.find(" [", text.find(" x ptr]")), end = text.rfind(']');
    const std::size_t size = text.find('['), type = text.find(" x ptr]");
    if (open == std::string_view::npos || end == std::string_view::npos || open > end) return std::string(text);
    std::string elements;
    int count = 0, depth = 0;
    std::size_t begin = open + 2;
    for (std::size_t i = begin; i <= end; ++i) {
        const bool is_end = i == end || (text[i] == ',' && depth == 0);
        depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
        if (text[i] == '"') i = behind_string(text, i) - 1;
        if (!is_end) continue;
        const std::string_view element = text.substr(begin, i - begin);
        bool is_kept = false;
        each_name(element, [&](std::string_view name) { is_kept |= kept.count(name) != 0; });
        if (is_kept) {
            elements += (count++ == 0 ? "" : ",") + std::string(element);
        }
        begin = i + 1;
    }
    if (count == 0) return "";
    return std::string(text.substr(0, size + 1)) + std::to_string(count) +
           std::string(text.substr(type, open + 2 - type)) + elements + std::string(text.substr(end));
}

}  // namespace

IrModule::IrModule(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        std::string_view line = text.substr(at, end - at);
        const bool is_definition = begins_with(line, "define ");
        if (is_definition) {
            const std::size_t close = text.find("\n}\n", end - 1);
            end = close == std::string_view::npos ? text.size() : close + 3;
            line = text.substr(at, end - at);
        }
        at = end;
        const bool is_function = is_definition || begins_with(line, "declare ");
        const bool is_variable = begins_with(line, "@");
        const std::string_view name = is_function || is_variable ? name_at(line, line.find('@')) : std::string_view();
        m_lines.push_back({name, line});
        if (name.empty()) continue;
        Entity& entity = m_entities[name];
        entity.is_function = is_function;
        entity.is_kernel = is_definition && has_word(head_of(line), "amdgpu_kernel");
        if (is_variable) {
            const std::string_view kind = kind_of(line, name);
            entity.is_constant = !has_word(kind, "global");  // an alias counts as what it stands for
            entity.is_shared_memory = has_word(kind, "addrspace(3)");
        }
        if (is_definition) {
            entity.calls.clear();
            const std::size_t body = line.find('\n');
            entity.size = static_cast<std::size_t>(std::count(line.begin(), line.end(), '\n'));
            each_name(line.substr(body), [&](std::string_view used) { entity.calls.push_back(used); });
        }
        each_name(line, [&](std::string_view used) { entity.uses.insert(used); });
        if (is_list(name)) m_seen_by_host.insert(entity.uses.begin(), entity.uses.end());
    }
}

bool IrModule::has_kernel(const std::string& name) const {
    const auto found = m_entities.find(spelled(name));
    return found != m_entities.end() && found->second.is_kernel;
}

std::set<std::string_view> IrModule::reached_from(std::string_view name) const {
    std::set<std::string_view> reached;
    std::vector<std::string_view> waiting = {name};
    while (!waiting.empty()) {
        const auto found = m_entities.find(waiting.back());
        waiting.pop_back();
        if (found == m_entities.end() || !reached.insert(found->first).second) continue;
        waiting.insert(waiting.end(), found->second.uses.begin(), found->second.uses.end());
    }
    return reached;
}

std::string IrModule::state_of(const std::string& kernel) const {
    for (const std::string_view name : reached_from(spelled(kernel))) {
        const Entity& entity = m_entities.at(name);
        if (entity.is_function || entity.is_shared_memory) continue;
        if (!entity.is_constant || m_seen_by_host.count(name) != 0) return std::string(name.substr(1));
    }
    return "";
}

std::size_t IrModule::size_of(std::string_view name, std::map<std::string_view, std::size_t>& known) const {
    const auto [place, is_new] = known.emplace(name, 0);
    if (!is_new) return place->second;  // 0 if the function calls itself
    const auto found = m_entities.find(name);
    if (found == m_entities.end()) return 0;
    std::size_t size = found->second.size;
    for (const std::string_view called : found->second.calls) size = std::min(size + size_of(called, known), k_endless);
    return known[name] = size;
}

std::set<std::string> IrModule::shared_functions(const std::string& kernel, std::size_t size) const {
    std::set<std::string_view> others;
    for (const auto& [name, entity] : m_entities) {
        if (!entity.is_kernel || name == spelled(kernel)) continue;
        others.merge(reached_from(name));
    }
    std::set<std::string> found;
    std::map<std::string_view, std::size_t> known;
    for (const std::string_view name : reached_from(spelled(kernel))) {
        const Entity& entity = m_entities.at(name);
        if (entity.size == 0 || entity.is_kernel || others.count(name) == 0) continue;
        if (size_of(name, known) > size) found.emplace(name.substr(1));
    }
    return found;
}

std::string IrModule::only(const std::string& kernel) const {
    const auto kept = reached_from(spelled(kernel));
    std::string out;
    for (const Line& line : m_lines) {
        if (is_list(line.name)) {
            out += list_of(line.text, kept);
        } else if (line.name.empty() ? !begins_with(line.text, "uselistorder") : kept.count(line.name) != 0) {
            // A `uselistorder` line gives the order of all uses of a global, many of which are
            // gone.
            out += line.text;
        }
    }
    return out;
}

}  // namespace lazyck::units
