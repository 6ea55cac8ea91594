// A record is <cache>/.compilers/<library>-<16 digits>: "<digest> <name> <header>\n". The digits
// are of the host and the recipe; the digest is of all that decides the name, with the status of
// every file; the header is the first that is another one than the build's.
#include "store/compilers.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/hash.h"
#include "bundle/readable.h"
#include "bundle/recipe.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/files.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

constexpr double k_version_seconds = 60;
constexpr std::size_t k_longest_version = 64 << 10, k_most_read = 1 << 20, k_digits = 12, k_longest_record = 8192;
constexpr std::size_t k_header_digits = 64;
constexpr unsigned k_depth_of_records = 1, k_most_readers = 8;
constexpr char k_white[] = " \t\n\r\v\f", k_build_id[] = ".note.gnu.build-id";
constexpr std::string_view k_elf_of_64_bits = "\177ELF\2\1";

bool is_numeral(char c) { return c >= '0' && c <= '9'; }

// Returns whether a line of `--version` tells a place or a date rather than a compiler.
bool is_place(const std::string& line) {
    const std::string low = lower(line);
    for (const char* lead : {"installeddir", "configured with", "collect_", "configuration file", "built on"}) {
        if (low.compare(0, std::strlen(lead), lead) == 0) return true;
    }
    for (std::size_t at = 0; (at = line.find('/', at)) != std::string::npos; ++at) {
        const bool is_begin = at == 0 || std::strchr(" \t\r\v\f:=", line[at - 1]) != nullptr;
        if (is_begin && at + 1 < line.size() && std::strchr(k_white, line[at + 1]) == nullptr) return true;
    }
    return false;
}

// Returns the version number at `at`, or an empty string if there is none.
std::string number_at(const std::string& text, std::size_t at) {
    if (at >= text.size() || !is_numeral(text[at])) return "";
    std::size_t end = at;
    const auto is_part = [](char c) { return is_numeral(c) || c == '_' || c == '.' || (c | 32) - 'a' + 0U < 26; };
    while (end < text.size() && is_part(text[end])) ++end;
    return text.substr(at, end - at);
}

std::string number_after(const std::string& text, std::string_view lead) {
    std::string number;
    for (std::size_t at = 0; number.empty() && (at = text.find(lead, at)) != std::string::npos; ++at)
        number = number_at(text, at + lead.size());
    return number;
}

// Returns the number behind "release 13.0, V".
std::string number_of_nvcc(const std::string& text) {
    constexpr std::string_view k_lead = "release ", k_then = ", V";
    std::string number;
    for (std::size_t at = 0; number.empty() && (at = text.find(k_lead, at)) != std::string::npos; ++at) {
        const std::size_t end = text.find_first_not_of("0123456789.", at + k_lead.size());
        if (end != std::string::npos && end > at + k_lead.size() && text.compare(end, k_then.size(), k_then) == 0)
            number = number_at(text, end + k_then.size());
    }
    return number;
}

// Returns the number in a line like "x86_64-linux-gnu-g++-12 (Debian 12.2.0-14) 12.2.0".
std::string number_of_gcc(const Strings& lines) {
    for (const std::string& line : lines) {
        const std::size_t blank = line.find_first_of(k_white);
        if (blank == std::string::npos || line.compare(blank, 2, " (") != 0) continue;
        const std::string word = line.substr(0, blank);
        if (word.find("cc") == std::string::npos && word.find("g++") == std::string::npos &&
            word.find("c++") == std::string::npos)
            continue;
        for (std::size_t at = line.size(); (at = line.rfind(") ", at)) != std::string::npos && at > blank; --at) {
            const std::string number = number_at(line, at + 2);
            if (!number.empty()) return number;
        }
    }
    return "";
}

// Returns the build id of an open ELF file of 64 bits, or an empty string (`_build_id` in
// identity.py). Reads little of the file: compilers have tens of megabytes.
std::string build_id_of(int fd) {
    const auto at = [&](std::uint64_t offset, std::uint64_t size) {
        return read_text(fd, offset, std::min<std::uint64_t>(size, k_most_read));
    };
    Elf64_Ehdr header;
    const std::string head = at(0, sizeof header);
    if (head.size() < sizeof header || head.compare(0, k_elf_of_64_bits.size(), k_elf_of_64_bits) != 0) return "";
    std::memcpy(&header, head.data(), sizeof header);
    const std::string rows = at(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
    std::vector<Elf64_Shdr> sections(rows.size() / sizeof(Elf64_Shdr));
    if (header.e_shstrndx >= sections.size()) return "";
    std::memcpy(sections.data(), rows.data(), sections.size() * sizeof(Elf64_Shdr));
    std::string id;
    const Elf64_Shdr& texts = sections[header.e_shstrndx];
    const std::string names = at(texts.sh_offset, texts.sh_size);
    for (const Elf64_Shdr& section : sections) {
        if (section.sh_name >= names.size() || std::strcmp(names.c_str() + section.sh_name, k_build_id) != 0) continue;
        for (const char byte : at(section.sh_offset, section.sh_size)) id += hex(static_cast<unsigned char>(byte));
        break;
    }
    return id;
}

// Returns what tells a file of a compiler from others, wherever it is (`mark_of` in identity.py).
std::string mark_of(const std::string& path) {
    const UniqueFd file = path.empty() ? UniqueFd() : open_file(path, O_RDONLY | O_NONBLOCK);
    struct stat st;
    if (!file || fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "-";
    std::string id = build_id_of(file.get());
    if (!id.empty()) return id;
    if (static_cast<std::size_t>(st.st_size) > k_most_read) return std::to_string(st.st_size);
    const std::string whole = read_text(file.get(), 0, k_most_read);
    std::string_view text = whole;
    if (text.substr(0, 2) == "#!") text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    return sha256_hex(text.data(), text.size());
}

// A header that the build read: its SHA-256 then, and where it is here.
struct Header {
    std::string digest, name, path;
};

// How the compiler of a recipe is asked on this machine, and which files decide the answer.
struct Question {
    Strings argv, environment, programs;
    std::vector<Header> headers;
    std::string words;  // all that is asked, as text
};

std::string path_of(const std::string& program, const Strings& directories) {
    if (program.find('/') != std::string::npos) return program;
    for (const std::string& directory : directories) {
        if (is_file(directory + "/" + program)) return directory + "/" + program;
    }
    return "";
}

std::vector<Header> read_headers(const std::string& path, const RecipeRow& recipe, const std::string& home) {
    std::vector<Header> headers;
    if (recipe.headers.empty()) return headers;
    const std::string text = read_text(path);
    if (sha256_hex(text.data(), text.size()) != recipe.headers)
        fail("lazyck: the bundle is not as it was when the library was built: '" + path +
             "' was changed; install the library again");
    Strings records = split(text, std::string_view("\0", 1));
    if (records.empty() || records[0] != LAZYCK_HEADERS_VERSION)
        fail("lazyck: '" + path + "' is of another version of lazyck; build the library again");
    const std::string own = recipe.home + "/";
    for (std::size_t i = 1; i < records.size(); ++i) {
        std::string name = records[i].substr(std::min(records[i].size(), k_header_digits + 1));
        const bool is_below = own.size() > 1 && name.compare(0, own.size(), own) == 0;
        std::string here = is_below ? home + name.substr(recipe.home.size()) : name;
        headers.push_back({records[i].substr(0, k_header_digits), std::move(name), std::move(here)});
    }
    return headers;
}

Question question_of(const RecipeRow& recipe, const std::string& root, const std::string& library) {
    RecipeRow asking = recipe;
    asking.compile = compiler_of(recipe);
    asking.compile.emplace_back("--version");
    asking.link = recipe.programs;
    RecipeValues values;
    values.root = root;
    values.toolchain = find_toolchain(recipe);
    const CompilePlan plan = make_plan(asking, values);
    Question question;
    question.argv = plan.compile;
    const std::string path = Readable(recipe, values.toolchain, {}).path;
    question.environment = plan_environment(plan, path);
    const Strings directories = split(search_path(path), ":");
    for (const std::string& program : plan.link) question.programs.push_back(path_of(program, directories));
    question.headers = read_headers(root + "/" + library + "/tree/.lazyck/" + recipe.toolchain + LAZYCK_BUNDLE_HEADERS,
                                    recipe, values.toolchain);
    for (const Strings& part : {plan.compile, plan.set, plan.link, Strings{path, recipe.headers, recipe.toolchain_id}})
        question.words += shell_join(part) + "\n";
    return question;
}

// Returns a digest of the question and of the status of every file that decides the answer.
std::string digest_of(const Question& question) {
    std::string all = question.words;
    const auto add = [&](const std::string& path) {
        struct stat st = {};
        if (path.empty() || stat(path.c_str(), &st) != 0) st = {};
        for (const auto number :
             {static_cast<std::int64_t>(st.st_dev), static_cast<std::int64_t>(st.st_ino),
              static_cast<std::int64_t>(st.st_size), static_cast<std::int64_t>(st.st_mtim.tv_sec),
              static_cast<std::int64_t>(st.st_mtim.tv_nsec), static_cast<std::int64_t>(st.st_ctim.tv_sec),
              static_cast<std::int64_t>(st.st_ctim.tv_nsec)})
            all.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    for (const std::string& program : question.programs) add(program);
    for (const Header& header : question.headers) add(header.path);
    return hash(all).hex();
}

std::string version_text(const Question& question, const BlobRow& blob) {
    const UniqueFd said(memfd_create("lazyck-version", MFD_CLOEXEC)),
        errors(memfd_create("lazyck-errors", MFD_CLOEXEC));
    const std::string what =
        "cannot compile blob '" + visible(blob.name) + "': its compiler cannot be asked which it is";
    if (!said || !errors) fail_system(what, errno);
    Command command;
    command.argv = question.argv;
    command.environment = question.environment;
    command.output = said.get();
    command.errors = errors.get();
    command.timeout_seconds = k_version_seconds;
    const Outcome outcome = run_command(command);
    const std::string text = read_text(said.get(), 0, k_longest_version);
    if (outcome.ending == Ending::succeeded || (outcome.ending == Ending::unknown && !text.empty())) return text;
    const std::string why = read_text(errors.get(), 0, k_longest_version);
    const bool is_its_own = outcome.is_missing || is_final({outcome.signal == 0, outcome.exit_status, 0, why});
    fail("lazyck: " + what + ": `" + shell_join(question.argv) + "`: " + outcome.text +
             (why.empty() ? "" : ": " + visible(why.substr(0, why.find('\n')))) + (is_its_own ? k_install_advice : ""),
         {blob.name, "", ""});
}

// Returns the header that differs first, or an empty string, and adds to `name` what tells these
// headers from the build's.
std::string find_other_header(const Question& question, unsigned jobs, std::string& name) {
    Strings digests(question.headers.size());
    for_each_in_parallel(digests.size(), std::min(jobs, k_most_readers), [&](std::size_t i) {
        MappedFile file;
        const bool is_there = file.read(question.headers[i].path, true) == 0;
        digests[i] = is_there ? sha256_hex(file.data(), file.size()) : "-";
    });
    std::string first, all;
    for (std::size_t i = 0; i < digests.size(); ++i) {
        const Header& header = question.headers[i];
        if (digests[i] == header.digest) continue;
        if (first.empty()) first = header.path;
        all += digests[i] + " " + header.name + "\n";
    }
    if (!all.empty()) name += LAZYCK_HEADERS_MARK + hash(all).hex().substr(0, k_digits);
    return first;
}

// What was found of a compiler, and its record.
struct Found {
    std::string name, header;

    std::string record(const std::string& digest) const { return digest + " " + name + " " + header + "\n"; }
};

// Returns what the record `text` says if it is whole and of this digest; else an empty name.
Found recall_record(const std::string& text, const std::string& digest) {
    Found found;
    const std::size_t begin = digest.size() + 1, end = text.find(' ', std::min(begin, text.size()));
    if (end == std::string::npos || text.back() != '\n') return found;
    found = {text.substr(begin, end - begin), text.substr(end + 1, text.size() - end - 2)};
    return found.record(digest) == text ? found : Found();
}

void say_other(const Question& question, const RecipeRow& recipe, const Found& found) {
    const std::string compiler = found.name.substr(0, found.name.find(LAZYCK_HEADERS_MARK));
    std::string what;
    if (compiler != recipe.toolchain_id)
        what = "'" + question.argv[0] + "' is " + compiler + ", but the library was built with " + recipe.toolchain_id;
    if (!found.header.empty())
        what += (what.empty() ? "" : "; ") + ("'" + found.header + "' is not as the library was built with");
    log_message(Level::info, what + ": entries that are compiled here have keys of their own");
}

}  // namespace

std::string compiler_name(std::string_view version_text, const Strings& marks) {
    Strings kept;
    for (const std::string& line : split(version_text, "\n\r\v\f")) {
        const std::size_t begin = line.find_first_not_of(k_white);
        if (begin == std::string::npos) continue;
        std::string stripped = line.substr(begin, line.find_last_not_of(k_white) + 1 - begin);
        if (!is_place(stripped)) kept.push_back(std::move(stripped));
    }
    std::string text = join(kept, "\n");
    const std::pair<const char*, std::string> kinds[] = {{"clang", number_after(text, "clang version ")},
                                                         {"nvcc", number_of_nvcc(text)},
                                                         {"gcc", number_of_gcc(kept)},
                                                         {"hip", number_after(text, "HIP version: ")},
                                                         {"llvm", number_after(text, "LLVM version ")}};
    std::string name = "cc";
    for (const auto& [kind, number] : kinds) {
        if (number.empty()) continue;
        name = kind + number;
        const std::size_t blank = text.find_first_of(k_white);
        // g++ and c++ are names of one compiler.
        if (std::string_view(kind) == "gcc" && blank != std::string::npos && text.compare(blank, 2, " (") == 0)
            text.replace(0, blank, "gcc");
        break;
    }
    for (const std::string& mark : marks) text += "\n" + mark;
    return name + "-" + sha256_hex(text.data(), text.size()).substr(0, k_digits);
}

std::string Compilers::find_name(const ManifestRow& at, Cache& cache) {
    const std::uint32_t number = at.blob().recipe;
    const RecipeRow recipe = at.manifest.recipe(number);
    const SourceFile source = m_sources.find(at, cache);
    const Question question = question_of(recipe, source.root, at.manifest.library());
    const std::string digest = digest_of(question);
    const std::string record = safe_name(at.manifest.library()) + "-" +
                               hash(host_name() + "\n" + std::to_string(number)).hex().substr(0, LAZYCK_DIGEST_DIGITS);
    UniqueFd records;
    try {
        records = open_trusted_directory(cache.make_own_directory(LAZYCK_CACHE_COMPILERS), k_depth_of_records);
    } catch (const CompileError&) {
        // Without a place for records, the compiler is asked.
    }
    const UniqueFd kept = records ? open_own_at(records.get(), record, O_RDONLY) : UniqueFd();
    Found found = recall_record(kept ? read_text(kept.get(), 0, k_longest_record) : "", digest);
    if (found.name.empty()) {
        Strings marks;
        for (const std::string& program : question.programs) marks.push_back(mark_of(program));
        found.name = compiler_name(version_text(question, at.blob()), marks);
        found.header = find_other_header(question, m_jobs, found.name);
        // If the compiler is all that is listed, it may start others, which no record would notice.
        const bool is_whole = records && question.programs.size() > 1;
        const UniqueFd file = is_whole ? open_own_at(records.get(), record, O_WRONLY | O_CREAT | O_TRUNC) : UniqueFd();
        if (file) write_all(file.get(), found.record(digest));
    }
    if (found.name != recipe.toolchain_id) say_other(question, recipe, found);
    return found.name;
}

std::string Compilers::name(const ManifestRow& at, Cache& cache) {
    std::string name = known(at);
    if (!name.empty()) return name;
    name = find_name(at, cache);
    const std::lock_guard<std::mutex> guard(m_mutex);
    return m_names[at.blob().recipe] = name;
}

std::string Compilers::known(const ManifestRow& at) {
    const std::uint32_t number = at.blob().recipe;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        const auto found = m_names.find(number);
        if (found != m_names.end()) return found->second;
    }
    const RecipeRow recipe = at.manifest.recipe(number);
    return recipe.programs.empty() ? recipe.toolchain_id : "";
}

}  // namespace lazyck::rt
