#include "failure.h"

#include <unistd.h>

#include "text.h"

namespace lazyck::rt {

void fail(const std::string& message, const FailureParts& parts) {
    throw CompileError(visible_lines(message).c_str(), parts.blob.c_str(), parts.log.c_str(), parts.command.c_str());
}

void fail_system(const std::string& what, int error) { fail("lazyck: " + what + ": " + system_text(error)); }

std::string host_name() {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace lazyck::rt
