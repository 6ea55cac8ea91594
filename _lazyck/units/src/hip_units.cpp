// A host unit comes from the compile of the host code itself, which includes the unit's name in
// place of the image of device code.
//
// A kernel unit is made of LLVM IR. The device's front end runs as always. Its module, without all
// that the kernel does not reach, goes on through the very same compile. It is cut down before it
// is optimized, or afterwards where other kernels affect the optimization. The IR is text rather
// than bitcode, and this program cuts it rather than llvm-extract, because the compiler is the only
// LLVM tool that every ROCm has.
#include <algorithm>
#include <cstdio>
#include <future>
#include <set>
#include <string_view>
#include <vector>

#include "asking.h"
#include "clang_steps.h"
#include "elf_object.h"
#include "ir_module.h"
#include "lazyck_abi.h"
#include "output.h"
#include "process.h"
#include "text.h"
#include "units.h"

namespace lazyck::units {

namespace {

constexpr std::string_view k_stub = "__device_stub__";
constexpr std::string_view k_descriptor = ".kd";
constexpr char k_image_section[] = ".hip_fatbin";
// Stands in place of a kernel's parameters if its source has no other kernel: the whole source is
// compiled for it.
constexpr char k_only_kernel[] = "only";
// The largest size, in lines of IR, of helpers such as those that return a thread's coordinates.
// These become the same code wherever they are called. How larger functions are optimized depends
// on all callers.
constexpr std::size_t k_small = 30;

// Returns the kernels that the host code registers. Each has a variable with exactly its name (its
// handle), which points to its stub, and its name is one of the strings.
std::vector<std::string_view> kernels_of(const ElfObject& object) {
    const std::string strings = '\0' + object.contents_of(".rodata");
    std::vector<std::string_view> found;
    for (const auto& symbol : object.symbols()) {
        if (symbol.section == 0 || symbol.size != sizeof(void*)) continue;
        const auto* const stub = object.function_in(symbol);
        if (stub == nullptr || stub->name.find(k_stub) == std::string_view::npos) continue;
        const std::string name = '\0' + std::string(symbol.name) + '\0';
        if (strings.find(name) == std::string::npos)
            throw Refused{"the host code does not have the name of its kernel " + std::string(symbol.name)};
        found.push_back(symbol.name);
    }
    return found;
}

// Refuses what the host code may register but a runtime cannot be told later.
void check_registrations(const ElfObject& object) {
    if (object.has_undefined("__hipRegisterManagedVar")) throw Refused{"it has managed variables"};
    for (const char* const name : {"__hipRegisterTexture", "__hipRegisterSurface"}) {
        if (object.has_undefined(name)) throw Refused{"it registers textures or surfaces"};
    }
}

void run_between(const ClangSteps& steps) {
    for (const Step& step : steps.between) run(step);
}

Library library_of(const ClangSteps& steps) { return {steps.host.words[0], k_image_section, 12}; }

void make_whole(const Job& job, const ClangSteps& steps, const Kernel& kernel) {
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
    make_library(library_of(steps), job, symbols, steps.image());
    write_cost(job, "whole " + std::to_string(cpu_seconds()));
}

Step with_options(Step step, const Words& options) {
    const auto place = std::find(step.words.begin(), step.words.end(), "-cc1");
    step.words.insert(place + 1, options.begin(), options.end());
    return step;
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

std::string shared_with_others(const std::string& function) {
    return "it calls " + function + ", which other kernels call too: alone, its code might be another";
}

// The device code of a kernel for one arch, between the front end and the rest of its compile.
struct Alone {
    const Step& compile;
    std::string all;               // the file with the IR text of the whole module
    std::string one;               // the file with the IR text that is compiled further
    bool is_optimized_whole;       // see generate_alone
    std::set<std::string> shared;  // functions that other kernels reach too
};

// Optimizes the whole module, and generates code for `kernel` alone. Returns the reason if that is
// impossible, else an empty string. A kernel that shares functions would come out differently if it
// were optimized alone: how often these are called, and with which arguments, decides how they are
// optimized.
std::string generate_alone(const Alone& part, const Kernel& kernel) {
    const std::string text = made_by(to_ir(back_end_of(part.compile, part.all), part.one));
    const IrModule module(text);
    // Names the last one: the names in some device libraries are numbers, which sort first and tell
    // nothing.
    if (const auto shared = module.shared_functions(kernel.symbol, 0); !shared.empty())
        return shared_with_others(*shared.rbegin());
    write_file(part.one, module.only(kernel.symbol));
    run(with_options(back_end_of(part.compile, part.one), {"-disable-llvm-passes"}));
    return "";
}

// Reads the source for one arch, and adds to `material` what decides the result for `kernel`. Sets
// `reason` if the kernel cannot be compiled by itself. Throws Refused.
Alone begin_alone(const Step& compile, const Kernel& kernel, const Job& job, std::size_t number, Material& material,
                  std::string& reason) {
    const std::string lead = job.directory + "/" + std::to_string(number);
    Alone part = {compile, lead + ".all.ll", lead + ".one.ll", false, {}};
    const std::string text = made_by(front_end_of(compile, part.all));
    const IrModule module(text);
    if (!module.has_kernel(kernel.symbol)) reason = "the compiler does not make it";
    if (!reason.empty()) return part;
    if (const std::string state = module.state_of(kernel.symbol); !state.empty()) {
        reason = "it uses " + state + ", which other kernels of the file and the host may use too";
        return part;
    }
    part.is_optimized_whole = !module.shared_functions(kernel.symbol, k_small).empty();
    part.shared = module.shared_functions(kernel.symbol, 0);
    const std::string only = module.only(kernel.symbol);
    write_file(part.one, only);
    material.add_after_reading(back_end_of(compile, part.one).words);
    material.add(Words(part.shared.begin(), part.shared.end()));
    material.add_ir(part.is_optimized_whole ? text : only);
    return part;
}

// Runs the rest of the compile. Returns the reason if `kernel` cannot be compiled by itself, else
// an empty string. Throws Refused.
std::string finish_alone(const Alone& part, const Kernel& kernel) {
    if (part.is_optimized_whole) return generate_alone(part, kernel);
    const std::string bytes = made_by(back_end_of(part.compile, part.one));
    const ElfObject object(bytes);
    for (const auto& symbol : object.symbols()) {
        const std::string name(symbol.name);
        if (symbol.is_function && symbol.section != 0 && part.shared.count(name) != 0) return shared_with_others(name);
    }
    return "";
}

// Compiles `kernel` by itself, for all archs. Returns the reason if that is impossible, else an
// empty string. Sets `front_end` to the CPU seconds that were spent until the source had been read.
std::string compile_alone(const Job& job, const ClangSteps& steps, const Kernel& kernel, double& front_end) {
    std::string reason;
    try {
        Material material(job);
        material.add(kernel.words());
        for (const Step& step : steps.between) material.add(step.words);
        material.add(steps.host.words[0]);
        std::vector<Alone> parts;
        for (std::size_t i = 0; i < steps.device.size() && reason.empty(); ++i)
            parts.push_back(begin_alone(steps.device[i], kernel, job, i, material, reason));
        front_end = cpu_seconds();
        if (reason.empty()) material.ask();
        for (std::size_t i = 0; i < parts.size() && reason.empty(); ++i) reason = finish_alone(parts[i], kernel);
    } catch (const Refused& refused) {
        reason = refused.reason;
    }
    return reason;
}

}  // namespace

void make_hip_host_unit(const Job& job, const std::string& id, TableIn place) {
    const ClangSteps steps = clang_steps_of(job.command, job.directory);
    const std::string mark = std::string(LAZYCK_HOST_UNIT_MARK) + id + '\0';
    write_file(steps.image(), mark + '\0');
    Step host = steps.host;
    host.set_value("-o", job.directory + "/host.o");
    const std::string bytes = made_by(host);
    const ElfObject object(bytes);
    check_registrations(object);
    // Without any device code, nothing is registered.
    const bool registers = object.has_undefined("__hipRegisterFatBinary");
    const std::string image = object.contents_of(k_image_section);
    if (registers && !begins_with(image, mark))
        throw Refused{"the host code has no image of device code where one was expected"};
    const std::vector<std::string_view> kernels = kernels_of(object);
    std::string table = LAZYCK_KERNELS_VERSION "\n";
    for (const std::string_view kernel : kernels) {
        const std::string parameters = kernels.size() == 1 ? k_only_kernel : "";
        table += "kernel\t" + std::string(kernel) + "\t" + parameters + "\t\t\n";
    }
    table += "whole\t*\t\t\t\n";
    if (place == TableIn::data) {
        write_file(job.output, registers ? object.with_contents(k_image_section, mark + table + '\0') : bytes);
        write_cost(job, "host " + std::to_string(cpu_seconds()) + " 0 0 " + std::to_string(kernels.size()));
        return;
    }
    std::set<std::string> files = files_of(steps.host, job.directory);
    for (const Step& step : steps.device) files.merge(files_of(step, job.directory));
    for (const std::string& file : files) table += "file\t" + file + "\n";
    write_file(job.output, object.with_section(LAZYCK_KERNELS_SECTION, table));
}

void ask_for_hip_object(const Job& job) {
    const ClangSteps steps = clang_steps_of(job.command, job.directory);
    Material material(job);
    for (const Step& step : steps.between) material.add(step.words);
    std::vector<const Step*> compiles = {&steps.host};
    for (const Step& step : steps.device) compiles.push_back(&step);
    for (const Step* compile : compiles) {
        material.add_after_reading(compile->words);
        material.add_source(preprocessed(*compile, job.directory), *compile);
    }
    material.ask();
}

void make_hip_object(const Job& job) {
    const ClangSteps steps = clang_steps_of(job.command, job.directory);
    const std::string mark = std::string(LAZYCK_HOST_UNIT_MARK) + "object", included = job.directory + "/mark";
    write_file(included, mark);
    std::string said;
    auto device = std::async(std::launch::async, [&] {
        for (const Step& step : steps.device) run(step, &said);
        for (const Step& step : steps.between) run(step, &said);
    });
    Step host = steps.host;
    host.set_input(steps.image(), included);
    host.set_value("-o", job.directory + "/host.o");
    const std::string bytes = made_by(host);
    device.wait();
    std::fputs(said.c_str(), stderr);
    device.get();
    const ElfObject object(bytes);
    const std::string image = object.contents_of(k_image_section);
    if (image.empty()) return write_file(job.output, bytes);  // it registers no device code
    if (image != mark + '\0') throw Refused{"the host code has no image of device code where one was expected"};
    write_file(job.output, object.with_contents(k_image_section, read_file(steps.image())));
}

void make_hip_kernel_unit(const Job& job, const Kernel& kernel) {
    ClangSteps steps = clang_steps_of(job.command, job.directory);
    steps.forget_place();
    steps.leave_uncompressed();
    if (kernel.symbol == "*" || kernel.parameters == k_only_kernel) {
        make_whole(job, steps, kernel);
        return;
    }
    double front_ends = 0;
    const std::string reason = compile_alone(job, steps, kernel, front_ends);
    if (!reason.empty()) return make_refusal(library_of(steps), job, kernel, reason);
    run_between(steps);
    make_library(library_of(steps), job, {kernel.symbol}, steps.image());
    write_cost(job, "alone " + std::to_string(cpu_seconds()) + " " + std::to_string(front_ends));
}

}  // namespace lazyck::units
