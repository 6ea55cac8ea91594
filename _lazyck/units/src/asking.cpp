#include "asking.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "lazyck_units.h"
#include "process.h"
#include "source_text.h"
#include "text.h"
#include "tokens.h"

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

std::string directory_part(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Whether a line is a preprocessor's line marker, such as `# 12 "file" 1`.
bool is_line_marker(std::string_view line) {
    return line.size() > 2 && line[0] == '#' && line[1] == ' ' &&
           std::isdigit(static_cast<unsigned char>(line[2])) != 0;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// Whether the compile puts the places in the source (files and lines) into its output.
bool has_places(const Step& compile) {
    return std::any_of(compile.words.begin(), compile.words.end(), [](const std::string& word) {
        if (begins_with(word, "-g") && !begins_with(word, "-gen")) return true;  // but not -generate-line-info
        for (const char* const part : {"line-info", "lineinfo", "device-debug", "debug-info-kind"}) {
            if (contains(word, part)) return true;
        }
        return word == "-G";
    });
}

}  // namespace

Material::Material(const Job& job) : m_job(job) { add(LAZYCK_UNITS_DIGEST); }

void Material::add(const Words& words) {
    if (!is_asked_for()) return;
    bool is_path = false;
    for (std::string word : words) {
        if (is_path) word.erase(0, directory_part(word).size());
        is_path = word == "--orig_src_path_name";
        replace_all(word, m_job.directory, "@");
        drop_directory(word);
        m_text += word + '\0';
    }
    m_text += '\n';
}

void Material::drop_directory(std::string& text) const {
    if (const std::string directory = directory_part(m_job.source); !directory.empty())
        replace_all(text, directory, "");
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
    if (has_places(compile) || tells_lines_apart(text)) {
        kept = std::move(left);
        replace_all(kept, m_job.directory, "@");
    } else {
        replace_all(left, k_left_out, "");
        for_each_line(left, [&](std::string_view line) {
            if (!is_line_marker(line) && !is_blank(line)) kept.append(line).append("\n");
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
    write_file(m_job.output + ".text", m_text);
    constexpr std::string_view k_question = "text\n";
    if (send(m_job.asker, k_question.data(), k_question.size(), MSG_NOSIGNAL) < 0) return;
    char answer = '\0';
    if (recv(m_job.asker, &answer, 1, 0) == 1 && answer == 'y') throw Answered{};
}

}  // namespace lazyck::units
