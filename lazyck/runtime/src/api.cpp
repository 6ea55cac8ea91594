// The exported C interface. Nothing inside the library calls these functions: with another lazy library in the process,
// such a call could end up in that one.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "lazyck.h"
#include "lazyck_abi.h"
#include "library.h"

#define LAZYCK_EXPORT extern "C" __attribute__((visibility("default"), used))

namespace {

std::string& last_error() {
    thread_local std::string s_error;
    return s_error;
}

// The result of `work`, or -1 with the error kept.
template <typename Work>
int guarded(Work work) {
    try {
        return work();
    } catch (const std::exception& e) {
        last_error() = e.what();
    } catch (...) {
        last_error() = "lazyck: unknown error";
    }
    return -1;
}

}  // namespace

LAZYCK_EXPORT int lazyck_abi_version(void) { return LAZYCK_API_VERSION; }

LAZYCK_EXPORT int lazyck_set_cache_dir(const char* path) {
    return guarded([=] {
        lazyck::rt::Library::get().set_cache_dir(path == nullptr ? "" : path);
        return 0;
    });
}

LAZYCK_EXPORT int lazyck_get_stats(lazyck_stats* stats) {
    return guarded([=] {
        if (stats == nullptr || stats->size < sizeof stats->size) throw std::runtime_error("lazyck: set `size` first");
        lazyck_stats now = lazyck::rt::Library::get().stats();
        now.size = std::min<std::uint64_t>(stats->size, sizeof now);
        std::memcpy(stats, &now, now.size);
        return 0;
    });
}

LAZYCK_EXPORT int lazyck_prefetch(const char* pattern) {
    return guarded([=] { return lazyck::rt::Library::get().prefetch(pattern == nullptr ? "*" : pattern); });
}

LAZYCK_EXPORT int lazyck_clear_failures(void) {
    return guarded([] { return lazyck::rt::Library::get().clear_failures(); });
}

LAZYCK_EXPORT const char* lazyck_last_error(void) { return last_error().c_str(); }
