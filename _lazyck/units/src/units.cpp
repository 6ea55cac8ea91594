#include "units.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

#include "asking.h"
#include "device_text.h"
#include "elf_object.h"
#include "lazyck_abi.h"
#include "nvcc_output.h"
#include "output.h"
#include "process.h"
#include "text.h"
#include "tokens.h"

namespace lazyck::units {

namespace {

// Quotes text like `quoted`, for C++ that contains assembler text.
std::string literal(std::string_view text) {
    std::string out;
    for (const char c : quoted(text)) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    return out;
}

// Adds the files that a preprocessed text was read from.
void add_files(std::string_view text, std::set<std::string>& files) {
    for_each_line(text, [&](std::string_view line) {
        if (!begins_with(line, "# ")) return;
        const std::size_t open = line.find('"'), close = line.rfind('"');
        if (open == close || line.find_first_not_of("# 0123456789") != open) return;
        std::string name;
        for (std::size_t i = open + 1; i < close; ++i) {
            if (line[i] == '\\' && i + 1 < close) ++i;
            name += line[i];
        }
        if (!name.empty() && name[0] != '<') files.insert(name);
    });
}

constexpr char k_no_stub[] = "lazyck_no_stub";

// Returns the host code, changed to use k_no_stub where it launches an instance of a kernel that is
// not registered; {} if that is impossible. The compiler lets such a launch fail at run time. For a
// kernel template it writes a function whose body only unregistered instances use. It breaks the
// lines of that body anywhere, so tokens are compared.
std::optional<std::string> with_guarded_stubs(const std::string& text) {
    constexpr std::string_view k_stub = "__wrapper__device_stub_", k_launch = "cudaLaunchKernel";
    constexpr std::string_view k_unregistered[] = {"::", k_launch, "(", "0", ",", "0", ",", "0", ",",
                                                   "0",  ",",      "0", ",", "0", ")", ";", "}"};
    std::string out = std::string("extern \"C\" void ") + k_no_stub + "();\n";
    std::size_t at = 0;
    for (std::size_t i = text.find(k_stub); i != std::string::npos; i = text.find(k_stub, i + 1)) {
        Tokens tokens(std::string_view(text).substr(i));
        Token token;
        tokens.next(token);  // the stub's name
        if (!tokens.next(token)) return {};
        if (token.is("<")) continue;  // a call
        if (!token.is("(") || !tokens.skip_group('(', ')') || !tokens.next(token)) return {};
        if (token.is(";")) continue;  // a declaration
        if (!token.is("{")) return {};
        const std::size_t body = i + tokens.at();
        for (const std::string_view expected : k_unregistered) {
            if (!tokens.next(token) || !token.is(expected)) return {};
        }
        out.append(text, at, body - at).append("::").append(k_no_stub).append("();}");
        at = i + tokens.at();
    }
    out.append(text, at, std::string::npos);
    if (out.find("::cudaLaunchKernel(0,") != std::string::npos) return {};
    return out;
}

// Makes the fatbinary step write a file, and nothing that a compiler includes. Returns the file's
// path.
std::string make_image(const Steps& steps, const std::string& directory) {
    Step step = steps.fatbinary;
    const std::string image = directory + "/unit.fatbin";
    step.words.erase(std::remove_if(step.words.begin(), step.words.end(),
                                    [](const std::string& word) {
                                        return begins_with(word, "--embedded-fatbin") || begins_with(word, "--create");
                                    }),
                     step.words.end());
    step.words.push_back("--create=" + image);
    run(step);
    return image;
}

Library library_of(const Steps& steps) { return {steps.compile_host.words[0], ".nv_fatbin", 4}; }

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

// Writes the module id, which makes the source's internal names unique. In a source without a
// function that has a unique name, the compiler would use its process id for that.
void set_module_id(const Step& front_end, const std::string& module_id) {
    const std::string file = front_end.value("--module_id_file_name");
    if (!file.empty()) write_file(file, module_id);
}

// Compiles `text` for one arch. Returns what ties the kernel to others of its source, whatever text
// is compiled, or an empty string. Throws Refused if the text does not make the kernel.
std::string compile_pass(const DevicePass& pass, const std::string& text, const Kernel& kernel) {
    write_file(pass.preprocess.value("-o"), text);
    set_module_id(pass.compile, device_module_id());
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

}  // namespace

std::string module_id_of(const Job& job, const std::string& id) {
    constexpr std::uint64_t k_basis = 0xcbf29ce484222325, k_prime = 0x100000001b3;  // FNV-1a
    std::uint64_t value = k_basis;
    for (const unsigned char c : id + '\0' + job.source) value = (value ^ c) * k_prime;
    std::string made = LAZYCK_MODULE_ID;
    for (unsigned digit = LAZYCK_MODULE_ID_DIGITS; digit-- > 0;) made += "0123456789abcdef"[value >> 4 * digit & 0xf];
    return made;
}

std::string device_module_id() { return LAZYCK_MODULE_ID + std::string(LAZYCK_MODULE_ID_DIGITS, '0'); }

Kernel kernel_of(const std::string& line) {
    Words fields(1);
    for (const char c : line) {
        if (c == '\t')
            fields.emplace_back();
        else
            fields.back() += c;
    }
    if (fields.size() < 4) throw std::runtime_error("'" + line + "' describes no kernel");
    return {fields[0], fields[1], fields[2], fields[3], {fields.begin() + 4, fields.end()}};
}

std::vector<std::string> Kernel::words() const {
    Words all = {symbol, parameters, spelling, type};
    all.insert(all.end(), state.begin(), state.end());
    return all;
}

namespace {

// Adds the commands that make device code.
void add_steps(const Steps& steps, Material& material) {
    for (const DevicePass& pass : steps.passes) {
        material.add(pass.compile.words);
        for (const Step& step : pass.assemble) material.add(step.words);
    }
    material.add(steps.fatbinary.words);
    material.add(steps.compile_host.words[0]);
}

// Returns the table of a host unit: its kernels and variables, and the files that it was made of.
std::string table_of(const Registrations& registered, const Ptx& ptx, const std::set<std::string>& files) {
    if (registered.kernels.size() != ptx.entries.size()) {
        throw Refused{std::to_string(ptx.entries.size()) + " kernels are compiled, and " +
                      std::to_string(registered.kernels.size()) + " registered"};
    }
    std::string table = LAZYCK_KERNELS_VERSION "\n";
    for (const auto& kernel : registered.kernels) {
        const auto entry = ptx.entries.find(kernel.symbol);
        if (entry == ptx.entries.end()) throw Refused{"no device code has the registered kernel " + kernel.symbol};
        const bool is_overloaded =
            std::count_if(registered.kernels.begin(), registered.kernels.end(),
                          [&](const auto& other) { return other.spelling == kernel.spelling; }) > 1;
        table += "kernel\t" + kernel.symbol + "\t" + entry->second + "\t" + kernel.spelling + "\t" +
                 (is_overloaded ? kernel.type : "") + "\n";
    }
    table += "whole\t*\t\t\t\n";
    for (const auto& variable : registered.variables) table += "variable\t" + variable + "\n";
    for (const std::string& file : files) table += "file\t" + file + "\n";
    return table;
}

// Makes the host code include the unit's name and table, in place of what `fatbinary` makes for it.
void include_table(const Job& job, const DevicePass& pass, const std::string& id, TableIn place,
                   const std::string& table) {
    const std::string table_file = job.directory + "/kernels";
    write_file(table_file, table);
    const std::string data =
        ".section .nv_fatbin, \"a\"\n.p2align 3\nfatbinData:\n.asciz " + quoted(LAZYCK_HOST_UNIT_MARK + id) +
        (place == TableIn::data
             ? "\n.incbin " + quoted(table_file) + "\n.byte 0"
             : "\n.byte 0\n.section " LAZYCK_KERNELS_SECTION ", \"e\", %progbits\n.incbin " + quoted(table_file)) +
        "\n.text\n";
    write_file(job.directory + "/" + pass.compile.value("--include_file_name"),
               "#ifndef __SKIP_INTERNAL_FATBINARY_HEADERS\n#include \"fatbinary_section.h\"\n#endif\n"
               "asm(" +
                   literal(data) +
                   ");\n"
                   "extern \"C\" {\nextern const unsigned long long fatbinData[];\n"
                   "static const __fatBinC_Wrapper_t __fatDeviceText __attribute__((aligned(8)))\n"
                   "    __attribute__((section(\".nvFatBinSegment\"))) = {0x466243b1, 1, fatbinData, 0};\n}\n");
}

// The result of the host's front end.
struct HostText {
    std::string text;                    // the text that the compiler gets
    std::optional<std::string> guarded;  // see with_guarded_stubs
    double front_end;                    // CPU seconds
};

HostText run_front_end(const Steps& steps, const std::string& module_id) {
    HostText out = {};
    Step front_end = steps.front_end;
    const auto makes_one = std::find(front_end.words.begin(), front_end.words.end(), "--gen_module_id_file");
    if (makes_one != front_end.words.end()) front_end.words.erase(makes_one);
    set_module_id(front_end, module_id);
    out.front_end = run(front_end);
    out.text = read_file(steps.front_end.value("--gen_c_file_name"));
    out.guarded = with_guarded_stubs(out.text);
    return out;
}

// The preprocessed source, for the host and for the device.
struct Preprocessed {
    std::string host, device;
    double device_seconds;  // CPU seconds
};

Preprocessed preprocess(const Steps& steps, const DevicePass& pass) {
    Preprocessed out;
    std::string said;
    // Both run at the same time, because a first call waits for this.
    auto reads_device = std::async(std::launch::async, [&] {
        out.device_seconds = run(pass.preprocess, &said);
        out.device = read_file(pass.preprocess.value("-o"));
    });
    out.host = made_by(steps.preprocess_host);
    reads_device.wait();
    std::fputs(said.c_str(), stderr);
    reads_device.get();
    return out;
}

// Whether the host's object uses something that is not `registered`: it launches an instance of a
// kernel, or contains an instance of one of the device variables called `variables`.
bool lacks_registrations(const std::string& object, const Registrations& registered,
                         const std::vector<std::string_view>& variables) {
    if (object.find(k_no_stub) != std::string::npos) return true;
    if (variables.empty()) return false;
    const std::set<std::string_view> symbols(registered.variables.begin(), registered.variables.end());
    std::set<std::string> mangled;
    for (const std::string_view name : variables) mangled.insert(std::to_string(name.size()) + std::string(name));
    const ElfObject read(object);
    return std::any_of(read.symbols().begin(), read.symbols().end(), [&](const ElfObject::Symbol& symbol) {
        const bool is_variable = symbol.section != 0 && !symbol.is_function && symbol.name.substr(0, 2) == "_Z";
        return is_variable && symbols.count(symbol.name) == 0 &&
               std::any_of(mangled.begin(), mangled.end(),
                           [&](const std::string& name) { return symbol.name.find(name) != std::string_view::npos; });
    });
}

// Asks for the host unit that is made of these texts.
void ask_for_host_unit(const Job& job, const Steps& steps, const DevicePass& pass, const std::string& id,
                       const Preprocessed& texts) {
    Material material(job);
    material.add("entry " + id);
    for (const Step& step : {steps.front_end, pass.compile}) material.add(step.words);
    material.add_after_reading(steps.compile_host.words);
    material.add_source(texts.host, steps.compile_host);
    material.add_source(texts.device, pass.compile);
    material.ask();
}

// A compile of host code that begins before the stubs exist. The host code includes them at its
// very end.
class HostCompile {
 public:
    // `stubs` is the file that the stubs are included from.
    HostCompile(const Step& step, const std::string& stubs) {
        unlink(stubs.c_str());
        if (symlink(m_stubs.path().c_str(), stubs.c_str()) != 0) throw Refused{"cannot make the link " + stubs};
        m_ends = std::async(std::launch::async, [this, step] { run(step, &m_said, &m_stubs); });
    }
    HostCompile(const HostCompile&) = delete;
    HostCompile& operator=(const HostCompile&) = delete;
    ~HostCompile() {
        if (m_ends.valid()) m_stubs.write("#error there are no stubs\n");
    }
    // Gives the stubs to the compile and waits for it. Throws Refused if it fails.
    void finish(const std::string& stubs) {
        m_stubs.write(stubs);
        m_ends.wait();
        std::fputs(m_said.c_str(), stderr);
        m_ends.get();
    }

 private:
    Pipe m_stubs;
    std::string m_said;
    std::future<void> m_ends;
};

}  // namespace

void make_host_unit(const Job& job, const std::string& id, TableIn place) {
    const Steps steps = steps_of(job.command, job.directory);
    const DevicePass& pass = steps.pass_of_stubs();
    const Preprocessed texts = preprocess(steps, pass);
    ask_for_host_unit(job, steps, pass, id, texts);
    std::optional<StubSource> source;
    auto used_by_stubs = std::async(std::launch::async, [&] {
        source.emplace(texts.device, job.source);
        return source->text_for(StubText::used);
    });
    const HostText host = run_front_end(steps, module_id_of(job, id));
    const std::string used = used_by_stubs.get();
    std::set<std::string> files;
    add_files(texts.host, files);
    add_files(texts.device, files);
    // Returns false if the host code launches something that the stubs lack.
    const auto attempt = [&](StubText how_much) {
        const bool is_all = how_much == StubText::all;
        write_file(steps.front_end.value("--gen_c_file_name"), is_all ? host.text : *host.guarded);
        Step compile = steps.compile_host;
        compile.set_value("-o", job.output);
        HostCompile compile_host(compile, pass.compile.value("--stub_file_name"));
        write_file(pass.preprocess.value("-o"), how_much == StubText::used ? used : source->text_for(how_much));
        const std::string stub_file = job.directory + "/stubs";
        Step compile_device = pass.compile;
        compile_device.set_value("--stub_file_name", stub_file);
        // The host's pass has printed the warnings already. The option may be given only once.
        if (!compile_device.has("-w")) compile_device.words.insert(compile_device.words.begin() + 1, "-w");
        const double front_end = texts.device_seconds + run(compile_device);
        const std::string stubs = read_file(stub_file);
        const Registrations registered = read_stubs(stubs);
        const Ptx ptx = read_ptx(read_file(pass.compile.value("-o")));
        include_table(job, pass, id, place, table_of(registered, ptx, files));
        compile_host.finish(stubs);
        if (!is_all && lacks_registrations(read_file(job.output), registered, source->instantiated())) return false;
        if (place == TableIn::section) return true;
        // The device's front end takes about as long for all of the text as the host's does.
        const double all_text = is_all ? front_end : std::max(front_end, host.front_end);
        write_cost(job, "host " + std::to_string(cpu_seconds()) + " " + std::to_string(front_end) + " " +
                            std::to_string(all_text) + " " + std::to_string(registered.kernels.size()));
        return true;
    };
    if (host.guarded) {
        for (const StubText how_much : {StubText::used, StubText::lean}) {
            try {
                if (attempt(how_much)) return;
                break;  // the other text has the same bodies
            } catch (const Refused&) {
            }
        }
    }
    attempt(StubText::all);
}

namespace {

// Makes the library with the device code of all kernels.
void make_whole(const Job& job, const Steps& steps) {
    Material material(job);
    material.add("whole");
    add_steps(steps, material);
    for (const DevicePass& pass : steps.passes) {
        run(pass.preprocess);
        if (material.is_asked_for()) material.add_source(read_file(pass.preprocess.value("-o")), pass.compile);
    }
    material.ask();
    std::set<std::string> symbols = {LAZYCK_IMAGE_SYMBOL};
    for (const DevicePass& pass : steps.passes) {
        set_module_id(pass.compile, device_module_id());
        const Ptx ptx = read_ptx(made_by(pass.compile));
        for (const auto& entry : ptx.entries) symbols.insert(entry.first);
        for (const Step& step : pass.assemble) run(step);
    }
    make_library(library_of(steps), job, symbols, make_image(steps, job.directory));
    write_cost(job, "whole " + std::to_string(cpu_seconds()));
}

}  // namespace

void make_kernel_unit(const Job& job, const Kernel& kernel) {
    const Steps steps = steps_of(job.command, job.directory);
    if (kernel.symbol == "*") {
        make_whole(job, steps);
        return;
    }
    std::vector<std::string> texts;
    for (const DevicePass& pass : steps.passes) texts.push_back(made_by(pass.preprocess));
    std::string reason;
    // Returns false if another text may do better.
    const auto is_settled_by = [&](KernelText how_much) {
        try {
            reason.clear();
            std::vector<std::string> given;
            Material material(job);
            material.add(kernel.words());
            add_steps(steps, material);
            for (std::size_t i = 0; i < steps.passes.size(); ++i) {
                given.push_back(text_for_kernel(kernel, texts[i], job.source, how_much));
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
    const auto is_named = [&] {
        return can_be_asked_for(kernel) && (is_settled_by(KernelText::used) || is_settled_by(KernelText::named));
    };
    if (!is_named()) is_settled_by(KernelText::own);
    if (!reason.empty()) return make_refusal(library_of(steps), job, kernel, reason);
    make_library(library_of(steps), job, {kernel.symbol}, make_image(steps, job.directory));
    write_cost(job, "kernel " + std::to_string(cpu_seconds()));
}

}  // namespace lazyck::units
