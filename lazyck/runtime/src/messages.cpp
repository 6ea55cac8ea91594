#include "messages.h"

#include <atomic>

#include "config.h"
#include "files.h"
#include "text.h"

namespace lazyck::rt {

namespace {
std::atomic<bool> g_silent{false};
}

void say(const std::string& line) {
    if (g_silent.load(std::memory_order_relaxed)) return;
    const std::string rank = rank_name();
    write_all(2, (rank.empty() ? "lazyck: " : "lazyck: [" + rank + "] ") + visible(line) + "\n");
}

void silence() { g_silent.store(true, std::memory_order_relaxed); }

}  // namespace lazyck::rt
