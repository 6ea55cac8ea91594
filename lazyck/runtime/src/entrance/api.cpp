// Implements the exported C interface. Nothing inside the library calls these functions: with
// another lazy library in the process, such a call could reach the other library's functions.
#include <fnmatch.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "base/failure.h"
#include "lazyck.h"
#include "lazyck_abi.h"
#include "library/library.h"
#include "platform/threads.h"

#define LAZYCK_EXPORT extern "C" __attribute__((visibility("default"), used))

struct lazyck_job {
    lazyck::rt::Prefetch prefetch;
    std::string error;
};

namespace lazyck::rt {

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

// Returns the result of `work`, or 0 if it has none, or -1 after it kept the text of the exception.
template <typename Work>
int guarded(Work work) {
    const Visit visit;
    try {
        if constexpr (!std::is_void_v<decltype(work())>) return work();
        work();
        return 0;
    } catch (const std::exception& e) {
        set_last_error(e.what());
    } catch (...) {
        set_last_error("lazyck: unknown error");
    }
    return -1;
}

// Fills a struct of the interface, of which the caller has `to->size` bytes, with what `make`
// returns.
template <typename T, typename Make>
void fill(T* to, Make make) {
    if (to == nullptr || to->size < sizeof to->size) throw std::runtime_error("lazyck: set `size` first");
    T made = make();
    made.size = std::min<std::uint64_t>(to->size, sizeof made);
    std::memcpy(static_cast<void*>(to), &made, made.size);
}

// Returns a job for what `rows` returns, or null after it kept the text of the exception.
template <typename Rows>
lazyck_job* begin_prefetch(unsigned workers, Rows rows) {
    lazyck_job* job = nullptr;
    guarded([&] {
        Library& library = Library::get();
        job = new lazyck_job{Prefetch(library.core, library.readiness, rows(library.core.blobs), workers), ""};
    });
    return job;
}

int clear_failures(Core& core) {
    core.store.caches(core.blobs.manifest())->retry_own_cache();
    int count = 0;
    const std::lock_guard<std::mutex> guard(core.states.mutex);
    for (auto& state : core.states.all) {
        count += state.second.is_failure_final ? 1 : 0;
        state.second.is_failure_final = false;
    }
    return count;
}

}  // namespace

LAZYCK_EXPORT int lazyck_abi_version(void) { return LAZYCK_API_VERSION; }

LAZYCK_EXPORT int lazyck_set_cache_dir(const char* path) {
    return guarded([=] {
        Core& core = Library::get().core;
        core.store.set_cache_dir(path == nullptr ? "" : path);
        clear_failures(core);  // this cache may have what could not be compiled
    });
}

LAZYCK_EXPORT int lazyck_get_stats(lazyck_stats* stats) {
    const auto make = [] {
        Core& core = Library::get().core;
        lazyck_stats out = {};
        out.blobs = core.blobs.count();
        out.symbols = lazyck_slot_count;
        const Counters& counters = core.store.counters;
        out.hits = counters.hits;
        out.misses = counters.misses;
        out.compiles = counters.compiles;
        out.failures = counters.failures;
        out.damaged = counters.damaged;
        out.compile_ns = counters.compile_ns;
        out.remote_hits = counters.remote_hits;
        out.remote_refused = counters.remote_refused;
        out.remote_skipped = counters.remote_skipped;
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        for (const auto& state : core.states.all) out.loaded += state.second.is_loaded ? 1 : 0;
        return out;
    };
    return guarded([=] { fill(stats, make); });
}

// This alias is always this library's own function, whichever library's function has the plain name
// in the process (see check_calls_back).
extern "C" __attribute__((visibility("hidden"), alias("lazyck_get_stats"))) int lazyck_own_get_stats(lazyck_stats*);

LAZYCK_EXPORT int lazyck_prefetch(const char* pattern) {
    return guarded([=] {
        Library& library = Library::get();
        const Blobs& blobs = library.core.blobs;
        const Activity activity(library.core.states);
        const std::string wanted_name = pattern == nullptr ? "*" : pattern;
        std::vector<BlobId> chosen;
        for (BlobId i = 0; i < blobs.count(); ++i) {
            if (fnmatch(wanted_name.c_str(), blobs.name(i), 0) == 0) chosen.push_back(i);
        }
        if (chosen.empty()) fail("lazyck: no blob of " + blobs.path() + " matches '" + wanted_name + "'");
        const std::vector<Wanted> wanted = blobs.wanted_here(chosen);
        for_each_in_parallel(wanted.size(), library.core.store.config.jobs,
                             [&](std::size_t i) { library.readiness.make_ready(wanted[i]); });
        return static_cast<int>(wanted.size());
    });
}

LAZYCK_EXPORT int lazyck_blob_count(void) {
    return guarded([] { return static_cast<int>(Library::get().core.blobs.count()); });
}

LAZYCK_EXPORT const char* lazyck_blob_name(int index) {
    const char* name = nullptr;
    guarded([&] {
        if (index >= 0) name = Library::get().core.blobs.name(static_cast<BlobId>(index));
    });
    return name;
}

LAZYCK_EXPORT int lazyck_is_cached(const char* blob) {
    return guarded([=] {
        Core& core = Library::get().core;
        const std::string name = blob == nullptr ? "" : blob;
        const auto id = core.blobs.find(name);
        if (!id) fail("lazyck: " + core.blobs.path() + " has no blob '" + visible(name) + "'");
        const Strings archs = core.blobs.archs_here(*id);
        return core.states.is_loaded(*id) || is_entry_cached(core, *id, archs, true) ? 1 : 0;
    });
}

LAZYCK_EXPORT int lazyck_forbid_jit(int is_forbidden) {
    return guarded([=] { return Library::get().core.store.jit.forbid(is_forbidden != 0) ? 1 : 0; });
}

// This begins nothing, so that another lazy library can ask at its own first use.
LAZYCK_EXPORT int lazyck_ready(int is_now_ready) {
    return (is_now_ready < 0 ? is_ready() : set_ready(is_now_ready != 0)) ? 1 : 0;
}

LAZYCK_EXPORT int lazyck_drain(double seconds) {
    return guarded([=] { return Library::get().core.states.drain(seconds) ? 1 : 0; });
}

LAZYCK_EXPORT int lazyck_record(const char* path) {
    return guarded([=] { Library::get().core.recorder.start(path == nullptr ? "" : path); });
}

LAZYCK_EXPORT lazyck_job* lazyck_job_start(const char* const* blobs, size_t count, unsigned workers) {
    return begin_prefetch(workers, [=](const Blobs& all) { return rows_of_names(all, {blobs, blobs + count}); });
}

LAZYCK_EXPORT lazyck_job* lazyck_job_replay(const char* profile, unsigned workers) {
    return begin_prefetch(workers, [=](const Blobs& all) {
        return read_profile(profile == nullptr ? "" : profile, all.manifest().library());
    });
}

LAZYCK_EXPORT int lazyck_job_wait(lazyck_job* job, double seconds, lazyck_progress* progress) {
    return guarded([=] {
        if (job == nullptr) throw std::runtime_error("lazyck: no job");
        const lazyck_progress now = job->prefetch.wait(seconds, job->error);
        if (progress != nullptr) fill(progress, [&] { return now; });
        return now.is_over != 0 ? 1 : 0;
    });
}

LAZYCK_EXPORT const char* lazyck_job_error(lazyck_job* job) { return job == nullptr ? "" : job->error.c_str(); }

LAZYCK_EXPORT void lazyck_job_cancel(lazyck_job* job) {
    if (job != nullptr) job->prefetch.cancel();
}

LAZYCK_EXPORT void lazyck_job_free(lazyck_job* job) { delete job; }

LAZYCK_EXPORT int lazyck_set_listener(lazyck_listener listener, void* data) {
    return guarded([=] {
        Events& events = Library::get().core.store.events;
        if (listener == nullptr) return events.set_listener(nullptr);
        events.set_listener([=](bool has_ended, const Event& event) {
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
    });
}

LAZYCK_EXPORT int lazyck_clear_failures(void) {
    return guarded([] { return clear_failures(Library::get().core); });
}

LAZYCK_EXPORT const char* lazyck_last_error(void) { return last_error(); }

}  // namespace lazyck::rt
