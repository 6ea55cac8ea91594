#include "messages.h"

#include <atomic>

#include "files.h"
#include "text.h"

namespace lazyck::rt {

namespace {
std::atomic<bool> g_silent{false};
}

void say(const std::string& line) {
    if (!g_silent.load(std::memory_order_relaxed)) write_all(2, "lazyck: " + visible(line) + "\n");
}

void silence() { g_silent.store(true, std::memory_order_relaxed); }

}  // namespace lazyck::rt
