#include "base/failure.h"

#include <cxxabi.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <memory>

namespace lazyck::rt {

namespace {

struct PassingSign {
    const char* text;
    bool is_of_memory = false;
};

// Texts that compilers, linkers and the shells around them print, in upper or lower case. Only the
// kernel, for want of memory, sends SIGKILL to a compiler's children.
constexpr PassingSign k_signs_of_passing[] = {
    {"cannot allocate memory", true},
    {"out of memory", true},
    {"memory exhausted", true},  // "virtual memory exhausted"
    {"bad_alloc", true},
    {"could not allocate", true},
    {"killed signal terminated", true},  // gcc, about the compiler proper
    {"terminated signal terminated"},    // gcc, after SIGTERM
    {"internal compiler error: killed", true},
    {"internal compiler error: terminated"},
    {"unable to execute command: killed", true},  // clang
    {"unable to execute command: terminated"},
    {"died due to signal 9", true},  // nvcc
    {"died due to signal 15"},
    {"terminated with signal 9", true},  // collect2
    {"resource temporarily unavailable"},
    {"too many open files"},
    {"text file busy"},  // a compiler that is being replaced
    {"stale file handle"},
    {"stale nfs file handle"},
    {"interrupted system call"},
    {"bus error"},  // a mapped file on a full or broken file system
};

struct StorageSign {
    const char* text;
    int error;
};

constexpr StorageSign k_storage_signs[] = {
    {"no space left on device", ENOSPC}, {"disk quota exceeded", EDQUOT}, {"input/output error", EIO},
    {"read-only file system", EROFS},    {"file too large", EFBIG},
};

// For a child that a signal ended, shells and drivers exit with this plus the signal's number.
constexpr int k_passed_on = 128;
constexpr int k_passed_on_signals[] = {1, 2, 7, 9, 14, 15, 24, 25};

constexpr std::size_t k_longest_error_line = 500;

constexpr char k_undefined[] = "undefined symbol: ";

template <class IsMeant>
bool matches(const std::string& output, IsMeant is_meant) {
    const std::string text = lower(output);
    const auto is_found = [&](const PassingSign& s) { return is_meant(s) && text.find(s.text) != std::string::npos; };
    return std::any_of(std::begin(k_signs_of_passing), std::end(k_signs_of_passing), is_found);
}

}  // namespace

void fail_system(const std::string& what, int error) {
    throw SystemFailure("lazyck: " + what + ": " + system_text(error), {}, error);
}

bool is_storage_error(int error) {
    switch (error) {
        case 0:
        case EINTR:
        case EAGAIN:
        case ENOMEM:
        case EMFILE:
        case ENFILE:
            return false;
        default:
            return true;
    }
}

bool is_final(const CommandEnd& end) {
    if (!end.has_exited || end.status == 0) return false;
    if (end.output.find_first_not_of(" \t\r\n") == std::string::npos) return false;
    const auto is_passed_on = [&](int signal) { return end.status == k_passed_on + signal; };
    if (std::any_of(std::begin(k_passed_on_signals), std::end(k_passed_on_signals), is_passed_on)) return false;
    return storage_error_in(end.output) == 0 && !matches(end.output, [](const PassingSign&) { return true; });
}

bool is_of_memory(const CommandEnd& end) {
    if (end.signal == SIGKILL || (end.has_exited && end.status == k_passed_on + SIGKILL)) return true;
    return matches(end.output, [](const PassingSign& sign) { return sign.is_of_memory; });
}

int storage_error_in(const std::string& output) {
    const std::string text = lower(output);
    for (const StorageSign& sign : k_storage_signs) {
        if (text.find(sign.text) != std::string::npos) return sign.error;
    }
    return 0;
}

std::string first_error(const std::string& output) {
    std::string last = "the compiler said nothing";
    for (const std::string& line : split(output, "\n")) {
        const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
        if (has("collect2: error") || has("linker command failed")) continue;
        if (has("error:") || has("error ") || has("Error") || has("undefined reference") || has("undefined symbol"))
            return line.substr(0, k_longest_error_line);
        if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
    }
    return last.substr(0, k_longest_error_line);
}

std::string readable(const std::string& symbol) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
    return status == 0 && name ? std::string(name.get()) + " [" + symbol + "]" : symbol;
}

std::string explain_load_error(const std::string& reason, const std::string& library) {
    const std::size_t at = reason.find(k_undefined);
    if (at == std::string::npos) return reason;
    const std::size_t begin = at + sizeof k_undefined - 1;
    const std::string symbol = reason.substr(begin, reason.find_first_of(" ,\n", begin) - begin);
    return "it needs " + readable(symbol) + ", which neither " + library +
           " nor any library that it depends on exports. Export it there (default visibility, no `local:` in a version"
           " script, no --exclude-libs), link the library that has it with -Wl,--no-as-needed, or keep the blob out of"
           " --blobs, and build again\n  (" +
           reason + ")";
}

}  // namespace lazyck::rt
