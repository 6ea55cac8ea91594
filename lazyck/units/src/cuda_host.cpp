#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <future>
#include <optional>
#include <set>

#include "elf_object.h"
#include "lazyck_abi.h"
#include "nvcc_output.h"
#include "source_text.h"
#include "units.h"

namespace lazyck::units {

namespace {

// How much of a device pass's text is kept. The bodies of kernels are always left out: what is
// registered follows from their heads.
// - `all`: everything else
// - `lean`: also without the bodies of device functions, and of host functions that seem to lead to
//   no kernel and no device variable
// - `used`: also without everything that the source's own declarations do not lead to
// Large headers take most of the front end's time. Both reductions go by names, and may miss what
// is registered in a way that no name shows.
enum class StubText { used, lean, all };

// The preprocessed text of a source, for a device pass.
class StubSource {
 public:
    // Both arguments have to outlive this.
    StubSource(std::string_view text, std::string_view source) : m_text(text), m_found(find_definitions(text, source)) {
        for (const Declared& d : m_found.all) {
            if (d.is_device_variable && d.is_template)
                m_instantiated.insert(m_instantiated.end(), d.names.begin(), d.names.end());
        }
    }

    // Names of templates of device variables. Those of their instances that are used are
    // registered.
    const std::vector<std::string_view>& instantiated() const { return m_instantiated; }

    std::string text_for(StubText how_much) const {
        const auto is_stub = [](const Definition& d) { return d.is_kernel && !d.is_instantiation; };
        if (how_much == StubText::all)
            return with_replacements(m_text, m_found, [&](const Definition& d) { return is_stub(d) ? "{}" : ""; });
        const Parts reach = that_lead_to_registrations();
        // Device functions and templates stay defined. The compiler requires that for a static
        // function that is used, and for a template that is used with a local type.
        const auto without_body = [&](const Definition& d) -> std::string_view {
            if (!d.is_device && !d.is_template) return ";";
            return m_text[d.body] == '{' ? "{}" : "";
        };
        const auto replacement = [&](const Definition& d) -> std::string_view {
            if (is_stub(d)) return "{}";
            const auto index = static_cast<std::size_t>(&d - m_found.functions.data());
            const bool is_of_device_alone = d.is_device && !d.is_host;
            return is_body_alone(d) && (is_of_device_alone || !reach.functions[index]) ? without_body(d) : "";
        };
        if (how_much == StubText::lean) return with_replacements(m_text, m_found, replacement);

        std::vector<bool> roots(m_found.all.size());
        for (std::size_t i = 0; i < roots.size(); ++i) {
            const Declared& d = m_found.all[i];
            roots[i] = d.is_own || d.is_device_variable || (d.is_made && reach.declarations[i]);
        }
        for (const Definition& d : m_found.functions) {
            if (d.is_kernel && !d.is_template) roots[d.declaration] = true;
        }
        return with_needed_parts(m_text, m_found, replacement, roots, "");
    }

 private:
    // Returns what leads to a kernel or to one of the variables, as far as names show it.
    Parts that_lead_to_registrations() const {
        std::vector<std::string_view> names = m_instantiated;
        for (const Definition& d : m_found.functions) {
            if (d.is_kernel) names.push_back(d.name);
        }
        // Functions of the CUDA runtime that take a symbol count too.
        for (const Declared& d : m_found.all) {
            for (const std::string_view name : d.names) {
                if (!d.is_enum && begins_with(name, "cuda") && contains(name, "Symbol")) names.push_back(name);
            }
        }
        return that_reach(m_text, m_found, std::move(names));
    }

    std::string_view m_text;
    Definitions m_found;
    std::vector<std::string_view> m_instantiated;
};

// Adds the files that a preprocessed text was read from.
void add_files(std::string_view text, std::set<std::string>& files) {
    for_each_line(text, [&](std::string_view line) {
        const std::string_view written = marked_file(line).value_or("");
        std::string name;
        for (std::size_t i = 0; i < written.size(); ++i) {
            if (written[i] == '\\' && i + 1 < written.size()) ++i;
            name += written[i];
        }
        if (!name.empty() && name[0] != '<') files.insert(name);
    });
}

constexpr char k_no_stub[] = "lazyck_no_stub";

// Returns the host code, changed to use k_no_stub where it launches an instance of a kernel that is
// not registered; {} if that is impossible. The compiler lets such a launch fail at run time. For a
// kernel template it writes a function whose body only unregistered instances use. That body's
// lines may break anywhere, so tokens are compared.
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

std::string module_id_of(const Unit& unit, const std::string& id) {
    constexpr std::uint64_t k_basis = 0xcbf29ce484222325, k_prime = 0x100000001b3;  // FNV-1a
    std::uint64_t value = k_basis;
    for (const unsigned char c : id + '\0' + unit.source) value = (value ^ c) * k_prime;
    std::string made = LAZYCK_MODULE_ID;
    for (unsigned digit = LAZYCK_MODULE_ID_DIGITS; digit-- > 0;) made += "0123456789abcdef"[value >> 4 * digit & 0xf];
    return made;
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
        table += LAZYCK_TABLE_KERNEL "\t" + kernel.symbol + "\t" + entry->second + "\t" + kernel.spelling + "\t" +
                 (is_overloaded ? kernel.type : "") + "\n";
    }
    table += LAZYCK_TABLE_WHOLE "\t*\t\t\t\n";
    for (const auto& variable : registered.variables) table += LAZYCK_TABLE_VARIABLE "\t" + variable + "\n";
    for (const std::string& file : files) table += LAZYCK_TABLE_FILE "\t" + file + "\n";
    return table;
}

// Makes the host code include the unit's name and table, in place of what `fatbinary` makes for it.
void include_table(const Unit& unit, const DevicePass& pass, const std::string& id, TableIn where,
                   const std::string& table) {
    const std::string table_file = unit.directory + "/kernels";
    write_file(table_file, table);
    std::string data =
        quoted(".section .nv_fatbin, \"a\"\n.p2align 3\nfatbinData:\n.asciz " + quoted(LAZYCK_HOST_UNIT_MARK + id) +
               (where == TableIn::data ? "\n.incbin " + quoted(table_file) + "\n.byte 0"
                                       : "\n.byte 0\n.section " LAZYCK_KERNELS_SECTION ", \"e\", %progbits\n.incbin " +
                                             quoted(table_file)) +
               "\n.text\n");
    replace_all(data, "\n", "\\n");
    write_file(unit.directory + "/" + pass.compile.value("--include_file_name"),
               "#ifndef __SKIP_INTERNAL_FATBINARY_HEADERS\n#include \"fatbinary_section.h\"\n#endif\n"
               "asm(" +
                   data +
                   ");\n"
                   "extern \"C\" {\nextern const unsigned long long fatbinData[];\n"
                   "static const __fatBinC_Wrapper_t __fatDeviceText __attribute__((aligned(8)))\n"
                   "    __attribute__((section(\".nvFatBinSegment\"))) = {0x466243b1, 1, fatbinData, 0};\n}\n");
}

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
void ask_for_host_unit(const Unit& unit, const Steps& steps, const DevicePass& pass, const std::string& id,
                       const Preprocessed& texts) {
    Material material(unit);
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

// Returns the pass whose stubs the host code includes. Throws Refused.
const DevicePass& pass_of_stubs(const Steps& steps) {
    const std::string stubs = file_name(steps.front_end.value("--stub_file_name"));
    for (const DevicePass& pass : steps.passes) {
        if (!stubs.empty() && file_name(pass.compile.value("--stub_file_name")) == stubs) return pass;
    }
    throw Refused{"no device pass of nvcc writes the stubs that its host pass includes"};
}

}  // namespace

void make_host_unit(const Unit& unit, const std::string& id, TableIn where) {
    const Steps steps = steps_of(unit.command, unit.directory);
    const DevicePass& pass = pass_of_stubs(steps);
    const Preprocessed texts = preprocess(steps, pass);
    ask_for_host_unit(unit, steps, pass, id, texts);
    std::optional<StubSource> source;
    auto used_by_stubs = std::async(std::launch::async, [&] {
        source.emplace(texts.device, unit.source);
        return source->text_for(StubText::used);
    });
    Step front_end = steps.front_end;
    front_end.remove("--gen_module_id_file");
    set_module_id(front_end, module_id_of(unit, id));
    const double host_seconds = run(front_end);
    const std::string host_file = front_end.value("--gen_c_file_name"), host = read_file(host_file);
    const std::optional<std::string> guarded = with_guarded_stubs(host);
    const std::string used = used_by_stubs.get();
    std::set<std::string> files;
    add_files(texts.host, files);
    add_files(texts.device, files);
    // Returns false if the host code launches something that the stubs lack.
    const auto attempt = [&](StubText how_much) {
        const bool is_all = how_much == StubText::all;
        write_file(host_file, is_all ? host : *guarded);
        Step compile = steps.compile_host;
        compile.set_value("-o", unit.output);
        HostCompile compile_host(compile, pass.compile.value("--stub_file_name"));
        write_file(pass.preprocess.value("-o"), how_much == StubText::used ? used : source->text_for(how_much));
        const std::string stub_file = unit.directory + "/stubs";
        Step compile_device = pass.compile;
        compile_device.set_value("--stub_file_name", stub_file);
        // The host's pass has printed the warnings already. The option may be given only once.
        if (!compile_device.has("-w")) compile_device.words.insert(compile_device.words.begin() + 1, "-w");
        const double device_seconds = texts.device_seconds + run(compile_device);
        const std::string stubs = read_file(stub_file);
        const Registrations registered = read_stubs(stubs);
        const Ptx ptx = read_ptx(read_file(pass.compile.value("-o")));
        include_table(unit, pass, id, where, table_of(registered, ptx, files));
        compile_host.finish(stubs);
        if (!is_all && lacks_registrations(read_file(unit.output), registered, source->instantiated())) return false;
        if (where == TableIn::section) return true;
        // The device's front end takes about as long for all of the text as the host's does.
        const double all_text = is_all ? device_seconds : std::max(device_seconds, host_seconds);
        write_cost(unit, LAZYCK_COST_HOST " " + std::to_string(cpu_seconds()) + " " + std::to_string(device_seconds) +
                             " " + std::to_string(all_text) + " " + std::to_string(registered.kernels.size()));
        return true;
    };
    if (guarded) {
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

}  // namespace lazyck::units
