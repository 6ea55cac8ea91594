// A host unit comes from the compile of the host code itself, which includes the unit's name in
// place of the image of device code.
#include <algorithm>
#include <cstdio>
#include <future>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "clang_steps.h"
#include "elf_object.h"
#include "lazyck_abi.h"

namespace lazyck::units {

namespace {

constexpr std::string_view k_stub = "__device_stub__";

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

// Returns the files of a make rule that a compiler wrote.
std::set<std::string> files_of_rule(std::string_view text) {
    std::set<std::string> files;
    std::string name;
    for (std::size_t i = std::min(text.find(": "), text.size()); i < text.size(); ++i) {
        const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\n';
        if (c == '\\' && (next == ' ' || next == '#')) {
            name += text[++i];
        } else if (c == '$' && next == '$') {
            name += text[++i];
        } else if (c == ' ' || c == '\n' || (c == '\\' && next == '\n')) {
            if (!name.empty() && name != ":") files.insert(name);
            name.clear();
        } else {
            name += c;
        }
    }
    return files;
}

// Returns `step` as a preprocessing step that writes its make rule to `rule`.
Step preprocessor_of(const Step& step, const std::string& verb, const std::string& output, const std::string& rule,
                     Words more) {
    Step asked = step;
    asked.set_input("-emit-obj", verb);
    asked.set_value("-o", output);
    // The rule that this step would have written belongs to another step.
    asked.set_value("-dependency-file", rule);
    more.emplace_back("-w");
    return with_options(std::move(asked), more);
}

// Returns the preprocessed input of the compile `step`, by way of a temporary file in `directory`.
// Throws Refused.
std::string preprocessed(const Step& step, const std::string& directory) {
    const std::string text = directory + "/text";
    run(preprocessor_of(step, "-E", text, directory + "/rule", {}));
    return read_file(text);
}

// Returns the files that the compile `step` reads. They are found by preprocessing, with a
// temporary file in `directory`. Throws Refused.
std::set<std::string> files_of(const Step& step, const std::string& directory) {
    const std::string rule = directory + "/rule";
    Words more = {"-sys-header-deps"};
    if (!step.has("-dependency-file")) more.insert(more.end(), {"-dependency-file", rule, "-MT", "unit"});
    run(preprocessor_of(step, "-Eonly", "-", rule, more));
    return files_of_rule(read_file(rule));
}

}  // namespace

void make_hip_host_unit(const Unit& unit, const std::string& id, TableIn where) {
    const ClangSteps steps = clang_steps_of(unit.command, unit.directory);
    const std::string mark = std::string(LAZYCK_HOST_UNIT_MARK) + id + '\0';
    write_file(steps.image(), mark + '\0');
    Step host = steps.host;
    host.set_value("-o", unit.directory + "/host.o");
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
        table += LAZYCK_TABLE_KERNEL "\t" + std::string(kernel) + "\t" + parameters + "\t\t\n";
    }
    table += LAZYCK_TABLE_WHOLE "\t*\t\t\t\n";
    if (where == TableIn::data) {
        write_file(unit.output, registers ? object.with_contents(k_image_section, mark + table + '\0') : bytes);
        write_cost(unit,
                   LAZYCK_COST_HOST " " + std::to_string(cpu_seconds()) + " 0 0 " + std::to_string(kernels.size()));
        return;
    }
    std::set<std::string> files = files_of(steps.host, unit.directory);
    for (const Step& step : steps.device) files.merge(files_of(step, unit.directory));
    for (const std::string& file : files) table += LAZYCK_TABLE_FILE "\t" + file + "\n";
    write_file(unit.output, object.with_section(LAZYCK_KERNELS_SECTION, table));
}

void ask_for_hip_object(const Unit& unit) {
    const ClangSteps steps = clang_steps_of(unit.command, unit.directory);
    Material material(unit);
    for (const Step& step : steps.between) material.add(step.words);
    std::vector<const Step*> compiles = {&steps.host};
    for (const Step& step : steps.device) compiles.push_back(&step);
    for (const Step* compile : compiles) {
        material.add_after_reading(compile->words);
        material.add_source(preprocessed(*compile, unit.directory), *compile);
    }
    material.ask();
}

void make_hip_object(const Unit& unit) {
    const ClangSteps steps = clang_steps_of(unit.command, unit.directory);
    const std::string mark = std::string(LAZYCK_HOST_UNIT_MARK) + "object", included = unit.directory + "/mark";
    write_file(included, mark);
    std::string said;
    auto device = std::async(std::launch::async, [&] {
        for (const Step& step : steps.device) run(step, &said);
        for (const Step& step : steps.between) run(step, &said);
    });
    Step host = steps.host;
    host.set_input(steps.image(), included);
    host.set_value("-o", unit.directory + "/host.o");
    const std::string bytes = made_by(host);
    device.wait();
    std::fputs(said.c_str(), stderr);
    device.get();
    const ElfObject object(bytes);
    const std::string image = object.contents_of(k_image_section);
    if (image.empty()) return write_file(unit.output, bytes);  // it registers no device code
    if (image != mark + '\0') throw Refused{"the host code has no image of device code where one was expected"};
    write_file(unit.output, object.with_contents(k_image_section, read_file(steps.image())));
}

}  // namespace lazyck::units
