// The exception that a call of a lazily compiled function throws when there is no function to jump to.
// Part of the public interface: header only, so that catching it needs no more than this file.
#pragma once

#include <stdexcept>

namespace lazyck {

// what() tells all: the blob, the compiler's first error line, the log, the command. The parts are kept in
// std::runtime_error objects because those copy without throwing and look alike under both of libstdc++'s string ABIs.
class __attribute__((visibility("default"))) CompileError : public std::runtime_error {
 public:
    CompileError(const char* what, const char* blob, const char* log, const char* command)
        : std::runtime_error(what), m_blob(blob), m_log(log), m_command(command) {}

    // Name of the blob, or "" when the failure concerns none.
    const char* blob() const noexcept { return m_blob.what(); }
    // Path of the compiler's kept output, or "".
    const char* log() const noexcept { return m_log.what(); }
    // A shell line that repeats the failed compilation, or "".
    const char* command() const noexcept { return m_command.what(); }

 private:
    std::runtime_error m_blob;
    std::runtime_error m_log;
    std::runtime_error m_command;
};

}  // namespace lazyck
