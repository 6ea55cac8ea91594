// A kernel unit is made of LLVM IR. The device's front end runs as always. Its module, without all
// that the kernel does not reach, goes on through the very same compile. It is cut down before it
// is optimized, or afterwards where other kernels affect the optimization. The IR is text rather
// than bitcode, and this program cuts it rather than llvm-extract, because the compiler is the only
// LLVM tool that every ROCm has.
#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "clang_steps.h"
#include "elf_object.h"
#include "lazyck_abi.h"

namespace lazyck::units {

namespace {

constexpr std::string_view k_descriptor = ".kd";
constexpr std::string_view k_module_id = "-cuid=";
// The largest size, in lines of IR, of helpers such as those that return a thread's coordinates.
// These become the same code wherever they are called. How larger functions are optimized depends
// on all callers.
constexpr std::size_t k_small = 30;

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
    while (end < text.size() && (is_word(text[end]) || text[end] == '.' || text[end] == '-')) ++end;
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

// A module of LLVM IR, as text: what it defines, and which definitions refer to which. It is looked
// at for one kernel.
class IrModule {
 public:
    // `text` has to outlive this. It has the form that compilers write: each entity takes one line,
    // except for the body of a function.
    IrModule(std::string_view text, const std::string& kernel) : m_kernel(spelled(kernel)) {
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
            const bool is_global = is_function || begins_with(line, "@");
            const std::string_view name = is_global ? name_at(line, line.find('@')) : std::string_view();
            m_lines.push_back({name, line});
            if (is_global) read_entity(line, name, is_function, is_definition);
        }
        m_reached = reached_from(m_kernel);
    }

    bool has_kernel() const {
        const auto found = m_entities.find(m_kernel);
        return found != m_entities.end() && found->second.is_kernel;
    }

    // Returns a variable that the kernel can reach and that is more than a constant of its own
    // code, so that other kernels or the host may change it. The string is empty if there is none.
    std::string state() const {
        for (const std::string_view name : m_reached) {
            const Entity& entity = m_entities.at(name);
            if (entity.is_function || entity.is_shared_memory) continue;
            if (!entity.is_constant || m_seen_by_host.count(name) != 0) return std::string(name.substr(1));
        }
        return "";
    }

    // Returns the functions that the kernel reaches, that other kernels of the module reach too,
    // and that have more than `size` lines together with all that they call.
    std::set<std::string> shared_functions(std::size_t size) const {
        std::set<std::string_view> others;
        for (const auto& [name, entity] : m_entities) {
            if (entity.is_kernel && name != m_kernel) others.merge(reached_from(name));
        }
        std::set<std::string> found;
        std::map<std::string_view, std::size_t> known;
        for (const std::string_view name : m_reached) {
            const Entity& entity = m_entities.at(name);
            if (entity.size == 0 || entity.is_kernel || others.count(name) == 0) continue;
            if (size_of(name, known) > size) found.emplace(name.substr(1));
        }
        return found;
    }

    // Returns the module with only the kernel and what that can reach.
    std::string only_kernel() const {
        std::string out;
        for (const Line& line : m_lines) {
            if (is_list(line.name)) {
                out += list_of(line.text, m_reached);
            } else if (line.name.empty() ? !begins_with(line.text, "uselistorder") : m_reached.count(line.name) != 0) {
                // A `uselistorder` line gives the order of all uses of a global, many of which are
                // gone.
                out += line.text;
            }
        }
        return out;
    }

 private:
    struct Entity {
        std::set<std::string_view> uses;
        std::vector<std::string_view> calls;  // each use within a function's body
        std::size_t size = 0;                 // in lines of a function's body
        bool is_function = false, is_kernel = false, is_constant = false, is_shared_memory = false;
    };
    struct Line {
        std::string_view name;  // of what it defines or declares; empty for other lines
        std::string_view text;
    };

    void read_entity(std::string_view line, std::string_view name, bool is_function, bool is_definition) {
        Entity& entity = m_entities[name];
        entity.is_function = is_function;
        entity.is_kernel = is_definition && has_word(head_of(line), "amdgpu_kernel");
        if (!is_function) {
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

    std::set<std::string_view> reached_from(std::string_view name) const {
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

    std::size_t size_of(std::string_view name, std::map<std::string_view, std::size_t>& known) const {
        const auto [row, is_new] = known.emplace(name, 0);
        if (!is_new) return row->second;  // 0 if the function calls itself
        const auto found = m_entities.find(name);
        if (found == m_entities.end()) return 0;
        std::size_t size = found->second.size;
        for (const std::string_view called : found->second.calls)
            size = std::min(size + size_of(called, known), k_endless);
        return known[name] = size;
    }

    const std::string m_kernel;
    std::vector<Line> m_lines;  // all of the text; a function's definition is one element
    std::map<std::string_view, Entity> m_entities;
    std::set<std::string_view> m_reached;       // by the kernel
    std::set<std::string_view> m_seen_by_host;  // the variables in llvm.used and llvm.compiler.used
};

void run_between(const ClangSteps& steps) {
    for (const Step& step : steps.between) run(step);
}

LibraryFormat library_of(const ClangSteps& steps) { return {steps.host.words[0], k_image_section, 12}; }

void make_whole_source(const Unit& unit, const ClangSteps& steps, const Kernel& kernel) {
    std::set<std::string> symbols = {LAZYCK_IMAGE_SYMBOL};
    for (const Step& step : steps.device) {
        const std::string bytes = made_by(step);
        const ElfObject object(bytes);
        for (const auto& symbol : object.symbols()) {
            if (symbol.section != 0 && ends_with(symbol.name, k_descriptor))
                symbols.emplace(symbol.name.substr(0, symbol.name.size() - k_descriptor.size()));
        }
    }
    if (kernel.symbol != "*" && symbols.count(kernel.symbol) == 0) throw Refused{"the compiler does not make it"};
    run_between(steps);
    make_library(library_of(steps), unit, symbols, steps.image());
    write_cost(unit, LAZYCK_COST_WHOLE " " + std::to_string(cpu_seconds()));
}

// Returns the step with IR as text for its output. The order of uses is kept because passes depend
// on it.
Step to_ir(Step step, const std::string& output) {
    step.set_input("-emit-obj", "-emit-llvm");
    step.set_value("-o", output);
    return with_options(std::move(step), {"-emit-llvm-uselists"});
}

// Returns the front end of a device compile alone, with IR as text for its output.
Step front_end_of(const Step& compile, const std::string& output) {
    return with_options(to_ir(compile, output), {"-disable-llvm-passes"});
}

// Returns the rest of that compile, with the IR text `input`. The front end has linked the device
// libraries already.
Step back_end_of(const Step& compile, const std::string& input) {
    Step step = compile;
    Words& words = step.words;
    const auto language = std::find(words.begin(), words.end(), "-x");
    if (words.end() - language != 3) throw Refused{"clang -### shows a compile whose last words are not its input"};
    *(language + 1) = "ir";
    *(language + 2) = input;
    for (auto at = words.begin(); (at = std::find(at, words.end(), "-mlink-builtin-bitcode")) != words.end();)
        at = words.erase(at, at + 2);
    return step;
}

[[noreturn]] void refuse_shared(const std::string& function) {
    throw Refused{"it calls " + function + ", which other kernels call too: alone, its code might be another"};
}

// The device code of a kernel for one arch, between the front end and the rest of its compile.
struct Alone {
    const Step& compile;
    std::string all;               // the file with the IR text of the whole module
    std::string one;               // the file with the IR text that is compiled further
    bool is_optimized_whole;       // see generate_alone
    std::set<std::string> shared;  // functions that other kernels reach too
};

// Optimizes the whole module, and generates code for `kernel` alone. Throws Refused if that is
// impossible. A kernel that shares functions would come out differently if it were optimized alone:
// how often these are called, and with which arguments, decides how they are optimized.
void generate_alone(const Alone& part, const Kernel& kernel) {
    const std::string text = made_by(to_ir(back_end_of(part.compile, part.all), part.one));
    const IrModule module(text, kernel.symbol);
    // Names the last one: the names in some device libraries are numbers, which sort first and tell
    // nothing.
    if (const auto shared = module.shared_functions(0); !shared.empty()) refuse_shared(*shared.rbegin());
    write_file(part.one, module.only_kernel());
    run(with_options(back_end_of(part.compile, part.one), {"-disable-llvm-passes"}));
}

// Reads the source for one arch, and adds to `material` what decides the result for `kernel`.
// Throws Refused if the kernel cannot be compiled by itself.
Alone begin_alone(const Step& compile, const Kernel& kernel, const Unit& unit, std::size_t number, Material& material) {
    const std::string lead = unit.directory + "/" + std::to_string(number);
    Alone part = {compile, lead + ".all.ll", lead + ".one.ll", false, {}};
    const std::string text = made_by(front_end_of(compile, part.all));
    const IrModule module(text, kernel.symbol);
    if (!module.has_kernel()) throw Refused{"the compiler does not make it"};
    if (const std::string state = module.state(); !state.empty())
        throw Refused{"it uses " + state + ", which other kernels of the file and the host may use too"};
    part.is_optimized_whole = !module.shared_functions(k_small).empty();
    part.shared = module.shared_functions(0);
    const std::string only = module.only_kernel();
    write_file(part.one, only);
    material.add_after_reading(back_end_of(compile, part.one).words);
    material.add(Words(part.shared.begin(), part.shared.end()));
    material.add_ir(part.is_optimized_whole ? text : only);
    return part;
}

// Runs the rest of the compile. Throws Refused if `kernel` cannot be compiled by itself.
void finish_alone(const Alone& part, const Kernel& kernel) {
    if (part.is_optimized_whole) return generate_alone(part, kernel);
    const std::string bytes = made_by(back_end_of(part.compile, part.one));
    const ElfObject object(bytes);
    for (const auto& symbol : object.symbols()) {
        const std::string name(symbol.name);
        if (symbol.is_function && symbol.section != 0 && part.shared.count(name) != 0) refuse_shared(name);
    }
}

// Compiles `kernel` by itself, for all archs. Returns the CPU seconds that were spent until the
// source had been read. Throws Refused if that is impossible.
double compile_alone(const Unit& unit, const ClangSteps& steps, const Kernel& kernel) {
    Material material(unit);
    material.add(kernel.words());
    for (const Step& step : steps.between) material.add(step.words);
    material.add(steps.host.words[0]);
    std::vector<Alone> parts;
    for (std::size_t i = 0; i < steps.device.size(); ++i)
        parts.push_back(begin_alone(steps.device[i], kernel, unit, i, material));
    const double front_ends = cpu_seconds();
    material.ask();
    for (const Alone& part : parts) finish_alone(part, kernel);
    return front_ends;
}

}  // namespace

void make_hip_kernel_unit(const Unit& unit, const Kernel& kernel) {
    ClangSteps steps = clang_steps_of(unit.command, unit.directory);
    // The path of the source, and how it is compiled, are in the name `__hip_cuid_…` in device
    // code.
    for (Step& step : steps.device) {
        for (std::string& word : step.words) {
            if (begins_with(word, k_module_id)) word = std::string(k_module_id) + "0";
        }
    }
    // The runtime can join device code with that of other archs if the bundler leaves it as it is.
    for (Step& step : steps.between) step.remove("-compress");
    if (kernel.symbol == "*" || kernel.parameters == k_only_kernel) return make_whole_source(unit, steps, kernel);
    double front_ends = 0;
    try {
        front_ends = compile_alone(unit, steps, kernel);
    } catch (const Refused& refused) {
        return make_refusal(library_of(steps), unit, kernel, refused.reason);
    }
    run_between(steps);
    make_library(library_of(steps), unit, {kernel.symbol}, steps.image());
    write_cost(unit, LAZYCK_COST_ALONE " " + std::to_string(cpu_seconds()) + " " + std::to_string(front_ends));
}

}  // namespace lazyck::units
