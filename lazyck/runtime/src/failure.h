// Ways to throw the runtime's one exception.
#pragma once

#include <string>

#include "error.hpp"

namespace lazyck::rt {

// What a failed compilation adds to its message.
struct FailureParts {
    std::string blob;
    std::string log;
    std::string command;
};

[[noreturn]] void fail(const std::string& message, const FailureParts& parts = {});

// `what`: the text of errno value `error`.
[[noreturn]] void fail_system(const std::string& what, int error);

// Name of the host, for messages.
std::string host_name();

}  // namespace lazyck::rt
