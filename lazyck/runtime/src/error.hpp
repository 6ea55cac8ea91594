// Defines the exception that a call of a lazily compiled function throws when there is no function
// to jump to. This is a part of the public interface. It is header only, so that catching the
// exception needs no more than this file.
#pragma once

#include <stdexcept>

namespace lazyck {

// what() tells everything: the blob, the first error line of the compiler, the log and the command.
// The parts are kept in std::runtime_error objects, because these copy without throwing and have
// the same layout under both of libstdc++'s string ABIs.
class __attribute__((visibility("default"))) CompileError : public std::runtime_error {
 public:
    CompileError(const char* what, const char* blob, const char* log, const char* command)
        : std::runtime_error(what), m_blob(blob), m_log(log), m_command(command) {}

    // Returns the name of the blob, or an empty string if the failure concerns none.
    const char* blob() const noexcept { return m_blob.what(); }
    // Returns the path of the compiler's kept output, or an empty string if there is none.
    const char* log() const noexcept { return m_log.what(); }
    // Returns a shell line that repeats the failed compilation, or an empty string if there is
    // none.
    const char* command() const noexcept { return m_command.what(); }

 private:
    std::runtime_error m_blob;
    std::runtime_error m_log;
    std::runtime_error m_command;
};

}  // namespace lazyck
