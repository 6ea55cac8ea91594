// Implements the exported C interface. Nothing inside the library calls these functions: with
// another lazy library in the process, such a call could reach the other library's functions.
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lazyck.h"
#include "lazyck_abi.h"
#include "library/library.h"
#include "platform/floating_point.h"

#define LAZYCK_EXPORT extern "C" __attribute__((visibility("default"), used))

using lazyck::rt::Library;

namespace {

// Each thread has a last error. It is kept under a key of pthreads, because a thread_local would
// make every lazy library need the loader itself (`__tls_get_addr`), which a library written in C
// does not.
pthread_key_t g_error_key;
pthread_once_t g_error_once = PTHREAD_ONCE_INIT;
bool g_has_error_key = false;

void make_error_key() {
    // free() belongs to the C library, so a thread that ends after this library was closed calls no
    // code of ours.
    g_has_error_key = pthread_key_create(&g_error_key, std::free) == 0;
    if (g_has_error_key) std::atexit([] { pthread_key_delete(g_error_key); });
}

void set_last_error(const char* text) {
    pthread_once(&g_error_once, make_error_key);
    if (!g_has_error_key) return;
    std::free(pthread_getspecific(g_error_key));
    pthread_setspecific(g_error_key, strdup(text));
}

const char* last_error() {
    pthread_once(&g_error_once, make_error_key);
    const void* const text = g_has_error_key ? pthread_getspecific(g_error_key) : nullptr;
    return text == nullptr ? "" : static_cast<const char*>(text);
}

// Returns the result of `work`, or -1 after it kept the text of the exception.
template <typename Work>
int guarded(Work work) {
    const lazyck::rt::DefaultFloatingPoint ours;
    try {
        return work();
    } catch (const std::exception& e) {
        set_last_error(e.what());
    } catch (...) {
        set_last_error("lazyck: unknown error");
    }
    return -1;
}

}  // namespace

LAZYCK_EXPORT int lazyck_abi_version(void) { return LAZYCK_API_VERSION; }

LAZYCK_EXPORT int lazyck_set_cache_dir(const char* path) {
    return guarded([=] {
        Library::get().set_cache_dir(path == nullptr ? "" : path);
        return 0;
    });
}

LAZYCK_EXPORT int lazyck_get_stats(lazyck_stats* stats) {
    return guarded([=] {
        if (stats == nullptr || stats->size < sizeof stats->size) throw std::runtime_error("lazyck: set `size` first");
        lazyck_stats now = Library::get().stats();
        now.size = std::min<std::uint64_t>(stats->size, sizeof now);
        std::memcpy(stats, &now, now.size);
        return 0;
    });
}

// This alias is always this library's own function, whichever library's function has the plain name
// in the process (see check_calls_back).
extern "C" __attribute__((visibility("hidden"), alias("lazyck_get_stats"))) int lazyck_own_get_stats(lazyck_stats*);

LAZYCK_EXPORT int lazyck_prefetch(const char* pattern) {
    return guarded([=] { return Library::get().prefetch(pattern == nullptr ? "*" : pattern); });
}

LAZYCK_EXPORT int lazyck_blob_count(void) {
    return guarded([] { return static_cast<int>(Library::get().blob_count()); });
}

LAZYCK_EXPORT const char* lazyck_blob_name(int index) {
    const char* name = nullptr;
    guarded([&] {
        if (index >= 0) name = Library::get().blob_name(static_cast<lazyck::rt::BlobId>(index));
        return 0;
    });
    return name;
}

LAZYCK_EXPORT int lazyck_is_cached(const char* blob) {
    return guarded([=] { return Library::get().is_cached(blob == nullptr ? "" : blob) ? 1 : 0; });
}

LAZYCK_EXPORT int lazyck_forbid_jit(int is_forbidden) {
    return guarded([=] { return Library::get().forbid_jit(is_forbidden != 0) ? 1 : 0; });
}

// This begins nothing, so that another lazy library can ask at its own first use.
LAZYCK_EXPORT int lazyck_ready(int is_ready) {
    if (is_ready < 0) return lazyck::rt::is_ready() ? 1 : 0;
    return lazyck::rt::set_ready(is_ready != 0) ? 1 : 0;
}

LAZYCK_EXPORT int lazyck_drain(double seconds) {
    return guarded([=] { return Library::get().drain(seconds) ? 1 : 0; });
}

LAZYCK_EXPORT int lazyck_record(const char* path) {
    return guarded([=] {
        Library::get().record(path == nullptr ? "" : path);
        return 0;
    });
}

LAZYCK_EXPORT int lazyck_speculate(const char* profile) {
    return guarded([=] {
        Library::get().speculate(profile == nullptr ? "" : profile);
        return 0;
    });
}

struct lazyck_job {
    std::unique_ptr<lazyck::rt::Prefetch> prefetch;
    std::string error;
};

LAZYCK_EXPORT lazyck_job* lazyck_job_start(const char* const* blobs, size_t count, unsigned workers) {
    auto job = std::make_unique<lazyck_job>();
    const int status = guarded([&] {
        job->prefetch = Library::get().prefetching().begin(lazyck::rt::Strings(blobs, blobs + count), workers);
        return 0;
    });
    return status == 0 ? job.release() : nullptr;
}

LAZYCK_EXPORT lazyck_job* lazyck_job_replay(const char* profile, unsigned workers) {
    auto job = std::make_unique<lazyck_job>();
    const int status = guarded([&] {
        job->prefetch = Library::get().prefetching().begin(std::string(profile == nullptr ? "" : profile), workers);
        return 0;
    });
    return status == 0 ? job.release() : nullptr;
}

LAZYCK_EXPORT int lazyck_job_wait(lazyck_job* job, double seconds, lazyck_progress* progress) {
    return guarded([=] {
        if (job == nullptr) throw std::runtime_error("lazyck: no job");
        const lazyck::rt::PrefetchProgress now = job->prefetch->wait(seconds);
        job->error = now.error;
        if (progress != nullptr) {
            if (progress->size < sizeof progress->size) throw std::runtime_error("lazyck: set `size` first");
            lazyck_progress out = {};
            out.size = std::min<std::uint64_t>(progress->size, sizeof out);
            out.total = now.total;
            out.ready = now.ready;
            out.failed = now.failed;
            out.is_over = now.is_over ? 1 : 0;
            out.left = now.left;
            std::memcpy(progress, &out, out.size);
        }
        return now.is_over ? 1 : 0;
    });
}

LAZYCK_EXPORT const char* lazyck_job_error(lazyck_job* job) { return job == nullptr ? "" : job->error.c_str(); }

LAZYCK_EXPORT void lazyck_job_cancel(lazyck_job* job) {
    if (job != nullptr) job->prefetch->cancel();
}

LAZYCK_EXPORT void lazyck_job_free(lazyck_job* job) { delete job; }

LAZYCK_EXPORT int lazyck_set_listener(lazyck_listener listener, void* data) {
    return guarded([=] {
        if (listener == nullptr) {
            Library::get().set_listener(nullptr);
            return 0;
        }
        Library::get().set_listener([=](bool has_ended, const lazyck::rt::Event& event) {
            lazyck_event out = {};
            out.size = sizeof out;
            out.kind = event.kind;
            out.library = event.library.c_str();
            out.blob = event.blob.c_str();
            out.arch = event.arch.c_str();
            out.what = event.what.c_str();
            out.start = event.start;
            out.seconds = event.seconds;
            out.peak_kib = static_cast<std::uint64_t>(event.peak_kib);
            out.bytes = event.size;
            out.has_ended = has_ended ? 1 : 0;
            out.has_failed = has_ended && event.has_failed ? 1 : 0;
            out.expected = event.expected;
            listener(&out, data);
        });
        return 0;
    });
}

LAZYCK_EXPORT int lazyck_clear_failures(void) {
    return guarded([] { return Library::get().clear_failures(); });
}

LAZYCK_EXPORT const char* lazyck_last_error(void) { return last_error(); }
