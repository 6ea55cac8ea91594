#include "steps.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace lazyck::units {

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
    throw std::runtime_error(what + ": " + std::strerror(error));
}

std::vector<char*> pointers(const Words& words) {
    std::vector<char*> out;
    for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
    out.push_back(nullptr);
    return out;
}

double seconds_of(const rusage& used) {
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

constexpr std::string_view k_lead = "#$ ";

bool is_assignment(std::string_view line) {
    const std::size_t at = line.find('=');
    if (at == std::string_view::npos || at == 0) return false;
    return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(at),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void sort_in(const Step& step, Steps& out) {
    const std::string program = step.program();
    const auto has_word_with = [&](std::string_view part, const auto& is_with) {
        return std::any_of(step.words.begin(), step.words.end(), [&](const auto& w) { return is_with(w, part); });
    };
    if (step.has("-E") && !step.has("-M") && !step.has("-MM")) {
        if (!has_word_with("-D__CUDA_ARCH__=", begins_with)) {
            out.preprocess_host = step;
        } else {
            out.passes.push_back({step, {}, {}});
        }
    } else if (begins_with(program, "cudafe++")) {
        out.front_end = step;
    } else if (program == "cicc") {
        for (DevicePass& pass : out.passes) {
            if (step.has(pass.preprocess.value("-o"))) pass.compile = step;
        }
    } else if (program == "ptxas") {
        for (DevicePass& pass : out.passes) {
            if (step.has(pass.compile.value("-o"))) pass.assemble.push_back(step);
        }
    } else if (program == "fatbinary") {
        out.fatbinary = step;
    } else if (step.has("-c") && has_word_with(".cudafe1.cpp", ends_with)) {
        out.compile_host = step;
    }
}

}  // namespace

Pipe::Pipe() {
    if (pipe2(m_ends, O_CLOEXEC) != 0) fail("pipe", errno);
}

Pipe::~Pipe() {
    for (const int end : m_ends) {
        if (end >= 0) close(end);
    }
}

// The program's descriptor has another number than this process's: older C libraries leave
// close-on-exec set where both are equal.
std::string Pipe::path() const { return "/proc/self/fd/" + std::to_string(number()); }

void Pipe::write(std::string_view text) {
    // Programs inherit an ignored signal, so it is ignored only during the write.
    auto* const before = std::signal(SIGPIPE, SIG_IGN);
    while (!text.empty()) {
        const ssize_t n = ::write(m_ends[1], text.data(), text.size());
        if (n < 0 && errno != EINTR) break;
        if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
    }
    std::signal(SIGPIPE, before);
    close(m_ends[1]);
    m_ends[1] = -1;
}

// Runs a program and waits for it, and returns its exit status; 128 + the signal's number if a
// signal ended it. If `output` is given, the program's standard output and standard error are
// appended to it. Only this program inherits `input`. Sets `seconds` to its CPU seconds, with those
// of the programs that it started. Throws std::runtime_error if it cannot be started.
int run_program(const Words& words, std::string* output, Pipe* input, double* seconds) {
    int ends[2] = {-1, -1};
    if (output != nullptr && pipe2(ends, O_CLOEXEC) != 0) fail("pipe", errno);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (output != nullptr) {
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    }
    if (input != nullptr) posix_spawn_file_actions_adddup2(&actions, input->m_ends[0], input->number());
    pid_t child = 0;
    const int error = posix_spawnp(&child, words[0].c_str(), &actions, nullptr, pointers(words).data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (input != nullptr) close(std::exchange(input->m_ends[0], -1));  // a write has to fail once the program has ended
    if (output != nullptr) close(ends[1]);
    if (error != 0) fail("cannot start " + words[0], error);
    char buffer[65536];
    for (ssize_t n = 1; output != nullptr && n != 0;) {
        n = read(ends[0], buffer, sizeof buffer);
        if (n < 0 && errno != EINTR) break;
        if (n > 0) output->append(buffer, static_cast<std::size_t>(n));
    }
    if (output != nullptr) close(ends[0]);
    int status = 0;
    rusage used = {};
    while (wait4(child, &status, 0, &used) < 0) {
        if (errno != EINTR) fail("waiting for " + words[0], errno);
    }
    *seconds = seconds_of(used);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

double cpu_seconds() {
    rusage used = {};
    getrusage(RUSAGE_CHILDREN, &used);
    return seconds_of(used);
}

std::string read_file(const std::string& path) {
    std::FILE* const file = std::fopen(path.c_str(), "rbe");
    if (file == nullptr) fail("cannot read " + path, errno);
    std::string text;
    char buffer[65536];
    for (std::size_t n = 1; n != 0;) {
        n = std::fread(buffer, 1, sizeof buffer, file);
        text.append(buffer, n);
    }
    std::fclose(file);
    return text;
}

void write_file(const std::string& path, std::string_view text) {
    std::FILE* const file = std::fopen(path.c_str(), "wbe");
    if (file == nullptr) fail("cannot write " + path, errno);
    const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !is_written) fail("cannot write " + path, errno);
}

Words shell_words(std::string_view line) {
    Words words;
    std::string word;
    bool is_begun = false;
    char quote = '\0';
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i], next = i + 1 < line.size() ? line[i + 1] : '\0';
        if (quote == '\0' && is_space(c)) {
            if (is_begun) words.push_back(std::exchange(word, {}));
            is_begun = false;
            continue;
        }
        is_begun = true;
        const bool is_escaped = next != '\0' && (quote == '\0' || contains("\"\\$`", std::string_view(&next, 1)));
        if (c == quote) {
            quote = '\0';
        } else if (quote == '\0' && (c == '"' || c == '\'')) {
            quote = c;
        } else if (quote == '\'') {
            word += c;
        } else if (c == '\\' && is_escaped) {
            word += line[++i];
        } else if (c == '$' && (std::isalpha(next) != 0 || next == '_')) {
            std::string name;
            while (i + 1 < line.size() && (std::isalnum(line[i + 1]) != 0 || line[i + 1] == '_')) name += line[++i];
            const char* const value = std::getenv(name.c_str());
            word += value == nullptr ? "" : value;
        } else {
            word += c;
        }
    }
    if (is_begun) words.push_back(word);
    return words;
}

std::string Step::value(const std::string& option) const {
    const auto at = std::find(words.begin(), words.end(), option);
    return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
}

void Step::set_value(const std::string& option, const std::string& value) {
    const auto at = std::find(words.begin(), words.end(), option);
    if (at != words.end() && at + 1 != words.end()) *(at + 1) = value;
}

void Step::remove(std::string_view lead) {
    const auto is_led = [&](const std::string& word) { return begins_with(word, lead); };
    words.erase(std::remove_if(words.begin(), words.end(), is_led), words.end());
}

std::string shown_steps(Words command, const Words& showing, const std::string& driver) {
    command.insert(command.end(), showing.begin(), showing.end());
    std::string shown;
    double seconds = 0;
    if (const int status = run_program(command, &shown, nullptr, &seconds); status != 0)
        throw Refused{driver + " ends with status " + std::to_string(status) + ": " +
                      shown.substr(0, shown.find('\n'))};
    return shown;
}

void set_module_id(const Step& front_end, const std::string& module_id) {
    const std::string file = front_end.value("--module_id_file_name");
    if (!file.empty()) write_file(file, module_id);
}

Steps steps_of(const Words& command, const std::string& directory) {
    Steps out;
    const std::string shown = shown_steps(command, {"--dryrun", "--keep", "--keep-dir", directory}, "nvcc --dryrun");
    for_each_line(shown, [&](std::string_view line) {
        if (!begins_with(line, k_lead)) return;
        const std::string_view rest = line.substr(k_lead.size());
        if (is_assignment(rest)) {
            const std::size_t equals = rest.find('=');
            std::string joined;
            for (const std::string& word : shell_words(rest.substr(equals + 1)))
                joined += (joined.empty() ? "" : " ") + word;
            setenv(std::string(rest.substr(0, equals)).c_str(), joined.c_str(), 1);
        } else if (Step step{shell_words(rest)}; !step.words.empty()) {
            sort_in(step, out);
        }
    });
    const auto need = [](const Step& step, const char* what) {
        if (step.words.empty()) throw Refused{std::string("nvcc --dryrun shows no ") + what};
    };
    need(out.preprocess_host, "preprocessing for the host");
    need(out.front_end, "cudafe++");
    need(out.fatbinary, "fatbinary");
    need(out.compile_host, "compile of the host's code");
    for (const DevicePass& pass : out.passes) need(pass.compile, "cicc for each arch");
    if (out.passes.empty()) throw Refused{"nvcc --dryrun shows no pass for a device"};
    return out;
}

double run(const Step& step, std::string* said, Pipe* input) {
    double seconds = 0;
    const int status = run_program(step.words, said, input, &seconds);
    if (status != 0) throw Refused{step.program() + " ends with status " + std::to_string(status)};
    return seconds;
}

std::string made_by(const Step& step) {
    run(step);
    return read_file(step.value("-o"));
}

}  // namespace lazyck::units
