// Throws the runtime's one exception, of one of several kinds. Users see lazyck::CompileError only.
// The kinds below it tell the runtime whether to try again in another directory, or never. After
// any other failure, the next call tries again.
#pragma once

#include <string>

#include "base/text.h"
#include "error.hpp"

namespace lazyck::rt {

// The parts that a failed compilation adds to its message.
struct FailureParts {
    std::string blob, log, command;
};

// The compiler itself refused the code, and would refuse it again.
struct PermanentFailure : CompileError {
    using CompileError::CompileError;
};

// The compiler or a part of it had no memory, or was killed for that reason.
struct OutOfMemory : CompileError {
    using CompileError::CompileError;
};

// The dynamic loader refused a library that was found whole.
struct RefusedByLoader : CompileError {
    using CompileError::CompileError;
};

class SystemFailure : public CompileError {
 public:
    SystemFailure(const std::string& message, const FailureParts& parts, int error)
        : CompileError(visible_lines(message).c_str(), parts.blob.c_str(), parts.log.c_str(), parts.command.c_str()),
          m_error(error) {}
    int error() const { return m_error; }

 private:
    int m_error;
};

template <typename Kind = CompileError>
[[noreturn]] void fail(const std::string& message, const FailureParts& parts = {}) {
    throw Kind(visible_lines(message).c_str(), parts.blob.c_str(), parts.log.c_str(), parts.command.c_str());
}

// Throws a SystemFailure with the message "<what>: <text of errno value `error`>".
[[noreturn]] void fail_system(const std::string& what, int error);

// Returns whether `error` is a fault of the directory that was written to, so that another one may
// do. A lack of this process's memory or descriptors is not.
bool is_storage_error(int error);

// How a command that did not succeed ended.
struct CommandEnd {
    bool has_exited = false;  // by itself, with `status`
    int status = 0;
    int signal = 0;  // that ended it, unless it was sent from here
    std::string output;
};

// Returns whether the compiler ran to its end and refused the code by itself: no signal killed it
// or a part of it, and it lacked no memory, disk space or descriptor. Without any output it did not
// refuse anything. In doubt, the failure counts as temporary: that mistake costs a compile, the
// other one a result.
bool is_final(const CommandEnd& end);

// Returns whether the compiler or a part of it was killed by the signal that the kernel sends when
// memory runs out, or says that it had no memory.
bool is_of_memory(const CommandEnd& end);

// Returns the errno value for the full, read-only or broken file system that `output`, a
// compiler's, complains about, or 0.
int storage_error_in(const std::string& output);

// Returns the line of a compiler's output that tells a reader what is wrong. The driver's own
// complaint about its linker does not.
std::string first_error(const std::string& output);

// Returns "name(parameters) [mangled]", or `symbol` unchanged if it is not a mangled C++ name.
std::string readable(const std::string& symbol);

// Explains why the dynamic loader refused a blob, from the loader's `reason`: what is missing, and
// what to do about it. `library` is the path of the lazy library.
std::string explain_load_error(const std::string& reason, const std::string& library);

}  // namespace lazyck::rt
