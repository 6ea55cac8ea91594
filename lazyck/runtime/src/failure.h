// Ways to throw the runtime's one exception, and what kind of failure it is. Users see lazyck::CompileError only; the
// kinds below it are for the runtime, which tries again, elsewhere or never. All else passes: the next call tries
// again.
#pragma once

#include <string>

#include "error.hpp"
#include "text.h"

namespace lazyck::rt {

// What a failed compilation adds to its message.
struct FailureParts {
    std::string blob;
    std::string log;
    std::string command;
};

// The compiler itself said no, and would say it again.
class PermanentFailure : public CompileError {
 public:
    using CompileError::CompileError;
};

// The compiler or a part of it had no memory, or was killed for that.
class OutOfMemory : public CompileError {
 public:
    using CompileError::CompileError;
};

// The system said no.
class SystemFailure : public CompileError {
 public:
    SystemFailure(const std::string& message, const FailureParts& parts, int error)
        : CompileError(visible_lines(message).c_str(), parts.blob.c_str(), parts.log.c_str(), parts.command.c_str()),
          m_error(error) {}
    int error() const { return m_error; }

 private:
    int m_error;
};

[[noreturn]] void fail(const std::string& message, const FailureParts& parts = {});
[[noreturn]] void fail_for_good(const std::string& message, const FailureParts& parts);
[[noreturn]] void fail_for_memory(const std::string& message, const FailureParts& parts);

// `what`: the text of errno value `error`.
[[noreturn]] void fail_system(const std::string& what, int error);

// Whether `error` is a matter of the directory that was written to, so that another one may do; not of this process's
// memory or descriptors.
bool is_of_place(int error);

// How a command ended that did not succeed.
struct CommandEnd {
    bool has_exited = false;  // by itself, with `status`
    int status = 0;
    int signal = 0;  // that ended it, if it was not sent from here
    std::string output;
};

// Whether the compiler ran to its end and said no by itself: nobody killed it or a part of it, and no memory, room or
// descriptor was missing. One that says nothing has said nothing. Takes a failure for a passing one when in doubt: that
// costs a compile, the other an answer.
bool is_final(const CommandEnd& end);

// Whether the compiler or a part of it was killed by what the kernel sends where memory runs out, or says that it had
// none.
bool is_of_memory(const CommandEnd& end);

// The errno value of a full, read-only or broken file system that `output`, a compiler's, complains of; 0 if none.
int place_error_in(const std::string& output);

// Name of the host, for messages.
std::string host_name();

}  // namespace lazyck::rt
