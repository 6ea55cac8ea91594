#include "process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace lazyck::units {

namespace {

[[noreturn]] void fail(const std::string& what, int error) {
    throw std::runtime_error(what + ": " + std::strerror(error));
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
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

Ended run_program(const std::vector<std::string>& words, std::string* output, Pipe* input) {
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
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), seconds_of(used)};
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

}  // namespace lazyck::units
