#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "lazyck_abi.h"
#include "nvcc_output.h"
#include "source_text.h"
#include "units.h"

namespace lazyck::units {

namespace {

// How much of a device pass's text is kept:
// - `own`: everything except the bodies of kernels with other names
// - `named`: also without the bodies of host functions and the source's own instantiations; an
//   added line asks for the kernel by its name
// - `used`: of the source and its headers, only what that line leads to, followed by name
// If something is missing, the compiler reports an error; it does not make other code. The reason
// is that all declarations of a name are kept, or none.
enum class KernelText { used, named, own };

// Returns the last name in a spelling such as `ns::kernel<float, 3>`.
std::string_view plain_name(std::string_view spelling) {
    std::size_t end = std::min(spelling.find('<'), spelling.size());
    // `ns<int>::kernel<3>` has several names. The last one outside of brackets counts.
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < spelling.size(); ++i) {
        const char c = spelling[i];
        if (depth == 0 && c == ':') {
            begin = i + 1;
            end = spelling.size();
        }
        if (depth == 0 && c == '<') end = std::min(end, i);
        depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
    }
    return begin <= end ? spelling.substr(begin, end - begin) : spelling;
}

std::string request_for(const Kernel& kernel) {
    std::string spelling = kernel.spelling;
    constexpr std::string_view k_anonymous = "_NV_ANON_NAMESPACE::";
    for (std::size_t at; (at = spelling.find(k_anonymous)) != std::string::npos;)
        spelling.erase(at, k_anonymous.size());
    const std::string cast = kernel.type.empty() ? "" : "static_cast<" + kernel.type + ">";
    return "\nvoid* lazyck_wanted() { return (void*)" + cast + "(" + (cast.empty() ? "" : "&") + spelling + "); }\n";
}

// Whether a kernel has a name by which a text can ask for it. A lambda among its template arguments
// has none.
bool can_be_asked_for(const Kernel& kernel) {
    for (const char* const mark : {"__nv_dl_", "lambda", "unnamed", "__nv_hdl_"}) {
        if (contains(kernel.spelling, mark)) return false;
    }
    return !kernel.spelling.empty();
}

std::string text_for_kernel(const Kernel& kernel, const std::string& text, const std::string& source,
                            KernelText how_much) {
    const std::string_view name = plain_name(kernel.spelling);
    const Definitions found = find_definitions(text, source);
    const bool is_named = how_much != KernelText::own;
    // A host function keeps its declaration, so that the compiler reports it if device code needs
    // it after all. Instances are made of what is asked for. The source's own instances of host
    // functions and classes launch kernels that are not wanted here, and an `extern` one would
    // leave the kernel itself undefined.
    const auto replacement = [&](const Definition& d) -> std::string_view {
        if (d.is_instantiation) {
            // An instantiation of a kernel may carry its launch bounds.
            const bool has_bounds = d.is_kernel && d.has_attributes;
            const bool is_left_out = !has_bounds && (d.is_kernel || d.name == name || (d.is_own && !d.is_device));
            return is_named && is_left_out ? ";" : "";
        }
        if (d.is_kernel) return d.name == name ? "" : "{}";
        // Templates in headers cost little while they are unused. In `used`, what they mention
        // would be kept as well.
        const bool costs = d.is_own || !d.is_template || how_much == KernelText::used;
        return is_named && is_body_alone(d) && !d.is_reached && costs ? ";" : "";
    };
    if (how_much == KernelText::own) return with_replacements(text, found, replacement);
    const std::string request = request_for(kernel);
    if (how_much == KernelText::named) return with_replacements(text, found, replacement) + request;
    // What is mentioned anywhere is kept with its body. A missing body would change the code; an
    // extra one only costs time.
    const std::vector<bool> roots(found.all.size());
    return with_needed_parts(text, found, replacement, roots, request) + request;
}

// Makes the fatbinary step write a file, and nothing that a compiler includes. Returns the file's
// path.
std::string make_image(const Steps& steps, const std::string& directory) {
    Step step = steps.fatbinary;
    const std::string image = directory + "/unit.fatbin";
    for (const char* const lead : {"--embedded-fatbin", "--create"}) step.remove(lead);
    step.words.push_back("--create=" + image);
    run(step);
    return image;
}

LibraryFormat library_of(const Steps& steps) { return {steps.compile_host.words[0], ".nv_fatbin", 4}; }

// Returns what ties a kernel to the others of its source, or an empty string.
std::string tie_of(const Kernel& kernel, const Ptx& ptx) {
    for (const std::string& name : ptx.reached_by(kernel.symbol)) {
        if (ptx.functions.count(name) != 0) {
            // What is known of its arguments, for example, depends on all callers.
            return "it calls " + name + ", which is optimized together with all of the file's kernels that call it";
        }
        if (ptx.uninitialized.count(name) == 0 && ptx.initialized.count(name) == 0) continue;
        if (name[0] == '$' || begins_with(name, "__unnamed_")) continue;
        const bool is_state = has(kernel.state, name);
        // Statics of functions and instances of a variable template are not registered. The
        // compiler's own tables have other names, except for those of classes.
        const bool has_mangled_name = begins_with(name, "_Z");
        const bool is_of_class = has_mangled_name && name.size() > 3 && name[2] == 'T';  // vtables and type_info
        if (is_state || (has_mangled_name && !is_of_class) || ptx.uninitialized.count(name) != 0) {
            return "it uses " + name + ", which other kernels of the file and the host may use too";
        }
    }
    return "";
}

// Makes the internal names of all device code equal.
const std::string k_device_module_id = LAZYCK_MODULE_ID + std::string(LAZYCK_MODULE_ID_DIGITS, '0');

// Compiles `text` for one arch. Returns what ties the kernel to others of its source, whatever text
// is compiled, or an empty string. Throws Refused if the text does not make the kernel.
std::string compile_pass(const DevicePass& pass, const std::string& text, const Kernel& kernel) {
    write_file(pass.preprocess.value("-o"), text);
    set_module_id(pass.compile, k_device_module_id);
    const Ptx ptx = read_ptx(made_by(pass.compile));
    const auto found = ptx.entries.find(kernel.symbol);
    if (found == ptx.entries.end()) throw Refused{"the compiler does not make it when it is asked for by name"};
    if (found->second != kernel.parameters) {
        throw Refused{"its parameters are not those that the host code has: " + found->second + " instead of " +
                      kernel.parameters};
    }
    if (std::string tie = tie_of(kernel, ptx); !tie.empty()) return tie;
    for (const Step& step : pass.assemble) run(step);
    return "";
}

// Adds the commands that make device code.
void add_steps(const Steps& steps, Material& material) {
    for (const DevicePass& pass : steps.passes) {
        material.add(pass.compile.words);
        for (const Step& step : pass.assemble) material.add(step.words);
    }
    material.add(steps.fatbinary.words);
    material.add(steps.compile_host.words[0]);
}

// Makes the library with the device code of all kernels.
void make_whole_source(const Unit& unit, const Steps& steps) {
    Material material(unit);
    material.add("whole");
    add_steps(steps, material);
    for (const DevicePass& pass : steps.passes) {
        run(pass.preprocess);
        if (material.is_asked_for()) material.add_source(read_file(pass.preprocess.value("-o")), pass.compile);
    }
    material.ask();
    std::set<std::string> symbols = {LAZYCK_IMAGE_SYMBOL};
    for (const DevicePass& pass : steps.passes) {
        set_module_id(pass.compile, k_device_module_id);
        const Ptx ptx = read_ptx(made_by(pass.compile));
        for (const auto& entry : ptx.entries) symbols.insert(entry.first);
        for (const Step& step : pass.assemble) run(step);
    }
    make_library(library_of(steps), unit, symbols, make_image(steps, unit.directory));
    write_cost(unit, LAZYCK_COST_WHOLE " " + std::to_string(cpu_seconds()));
}

}  // namespace

void make_kernel_unit(const Unit& unit, const Kernel& kernel) {
    const Steps steps = steps_of(unit.command, unit.directory);
    if (kernel.symbol == "*") {
        make_whole_source(unit, steps);
        return;
    }
    std::vector<std::string> texts;
    for (const DevicePass& pass : steps.passes) texts.push_back(made_by(pass.preprocess));
    std::string reason;
    // Returns false if the text does not make the kernel.
    const auto is_settled_by = [&](KernelText how_much) {
        try {
            reason.clear();
            std::vector<std::string> given;
            Material material(unit);
            material.add(kernel.words());
            add_steps(steps, material);
            for (std::size_t i = 0; i < steps.passes.size(); ++i) {
                given.push_back(text_for_kernel(kernel, texts[i], unit.source, how_much));
                material.add_source(given[i], steps.passes[i].compile);
            }
            material.ask();
            for (std::size_t i = 0; i < steps.passes.size() && reason.empty(); ++i)
                reason = compile_pass(steps.passes[i], given[i], kernel);
            return true;
        } catch (const Refused& refused) {
            reason = refused.reason;
            return false;
        }
    };
    // A text that holds all kernels of a name costs about as much as the source, which serves all.
    if (!can_be_asked_for(kernel))
        is_settled_by(KernelText::own);
    else if (!is_settled_by(KernelText::used))
        is_settled_by(KernelText::named);
    if (!reason.empty()) return make_refusal(library_of(steps), unit, kernel, reason);
    make_library(library_of(steps), unit, {kernel.symbol}, make_image(steps, unit.directory));
    write_cost(unit, LAZYCK_COST_KERNEL " " + std::to_string(cpu_seconds()));
}

}  // namespace lazyck::units
