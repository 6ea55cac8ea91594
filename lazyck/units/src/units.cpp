#include "units.h"

#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

#include "lazyck_abi.h"
#include "source_text.h"

namespace lazyck::units {

namespace {

// Options of clang and gcc that say where headers are, what is read, and where a compile takes
// place.
constexpr std::string_view k_with_value[] = {"-I",
                                             "-D",
                                             "-U",
                                             "-include",
                                             "-isystem",
                                             "-iquote",
                                             "-idirafter",
                                             "-isysroot",
                                             "-internal-isystem",
                                             "-internal-externc-isystem",
                                             "-mlink-builtin-bitcode",
                                             "-cxx-isystem",
                                             "-resource-dir",
                                             "-MT",
                                             "-dependency-file",
                                             "-main-file-name"};
constexpr std::string_view k_in_one_word[] = {"-I", "-D", "-U",
                                              "-fdebug-compilation-dir=", "-fcoverage-compilation-dir="};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// Whether the compile puts file names and line numbers of the source into its output.
bool names_locations(const Step& compile) {
    return std::any_of(compile.words.begin(), compile.words.end(), [](const std::string& word) {
        if (begins_with(word, "-g") && !begins_with(word, "-gen")) return true;  // but not -generate-line-info
        for (const char* const part : {"line-info", "lineinfo", "device-debug", "debug-info-kind"}) {
            if (contains(word, part)) return true;
        }
        return word == "-G";
    });
}

void make_library_of(const std::string& content, const LibraryFormat& library, const Unit& unit,
                     const std::set<std::string>& symbols) {
    std::string text = " .section " + library.section + ",\"a\"\n .p2align " + std::to_string(library.alignment) + "\n";
    for (const std::string& symbol : symbols) {
        const std::string name = quoted(symbol);
        text += " .globl " + name + "\n .type " + name + ",%function\n" + name + ":\n";
    }
    text += content + " .section .note.GNU-stack,\"\",%progbits\n";
    const std::string assembler = unit.directory + "/unit.s";
    write_file(assembler, text);
    run({{library.compiler, "-shared", "-nostdlib", "-Wl,--build-id=none", "-x", "assembler", assembler, "-o",
          unit.output}});
}

}  // namespace

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

Material::Material(const Unit& unit) : m_unit(unit) { add(LAZYCK_UNITS_DIGEST); }

void Material::add(const Words& words) {
    if (!is_asked_for()) return;
    bool is_path = false;
    for (std::string word : words) {
        if (is_path) word = file_name(word);
        is_path = word == "--orig_src_path_name";
        replace_all(word, m_unit.directory, "@");
        drop_directory(word);
        m_text += word + '\0';
    }
    m_text += '\n';
}

void Material::drop_directory(std::string& text) const {
    const std::string directory = m_unit.source.substr(0, m_unit.source.rfind('/') + 1);
    if (!directory.empty()) replace_all(text, directory, "");
}

void Material::add_after_reading(const Words& words) {
    Words kept;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto is_led = [&](std::string_view lead) { return begins_with(words[i], lead); };
        if (has(k_with_value, words[i]))
            ++i;
        else if (std::none_of(std::begin(k_in_one_word), std::end(k_in_one_word), is_led))
            kept.push_back(words[i]);
    }
    add(kept);
}

void Material::add_source(std::string_view text, const Step& compile) {
    if (!is_asked_for()) return;
    // File names that count are compared without the directory of the source, which depends on
    // where the source is unpacked.
    std::string left(text), kept;
    drop_directory(left);
    if (names_locations(compile) || tells_lines_apart(text)) {
        kept = std::move(left);
        replace_all(kept, m_unit.directory, "@");
    } else {
        replace_all(left, k_left_out, "");
        for_each_line(left, [&](std::string_view line) {
            if (!marked_file(line) && !is_blank(line)) kept.append(line).append("\n");
        });
    }
    m_text += std::to_string(kept.size()) + '\n' + kept;
}

void Material::add_ir(std::string_view text) {
    if (!is_asked_for()) return;
    std::string kept;
    for_each_line(text, [&](std::string_view line) {
        if (!begins_with(line, "; ModuleID = ") && !begins_with(line, "source_filename = "))
            kept.append(line).append("\n");
    });
    m_text += std::to_string(kept.size()) + '\n' + kept;
}

void Material::ask() const {
    if (!is_asked_for()) return;
    write_file(m_unit.output + LAZYCK_SUFFIX_TEXT, m_text);
    constexpr std::string_view k_question = "text\n";
    if (send(m_unit.asker, k_question.data(), k_question.size(), MSG_NOSIGNAL) < 0) return;
    char answer = '\0';
    if (recv(m_unit.asker, &answer, 1, 0) == 1 && answer == 'y') throw Answered{};
}

std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + "\"";
}

void write_cost(const Unit& unit, const std::string& what) {
    write_file(unit.output + LAZYCK_SUFFIX_COST, what + "\n");
}

void make_library(const LibraryFormat& library, const Unit& unit, const std::set<std::string>& symbols,
                  const std::string& image) {
    make_library_of(" .incbin " + quoted(image) + "\n", library, unit, symbols);
}

void make_refusal(const LibraryFormat& library, const Unit& unit, const Kernel& kernel, const std::string& reason) {
    const LibraryFormat refusing = {library.compiler, LAZYCK_WHOLE_SOURCE_SECTION, library.alignment};
    make_library_of(" .asciz " + quoted(LAZYCK_WHOLE_SOURCE_MARK + reason) + "\n", refusing, unit, {kernel.symbol});
    write_cost(unit, LAZYCK_COST_REFUSED " " + std::to_string(cpu_seconds()));
}

}  // namespace lazyck::units
