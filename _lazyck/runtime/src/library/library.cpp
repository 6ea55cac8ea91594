#include "library/library.h"

#include <fnmatch.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/failure.h"
#include "bundle/own_file.h"
#include "lazyck_abi.h"
#include "library/entries.h"
#include "library/prefetching.h"
#include "platform/environment.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

std::atomic<Library*> g_library{nullptr};

}  // namespace

Library& Library::get() {
    Library* library = g_library.load(std::memory_order_acquire);
    if (library != nullptr) return *library;
    // No lock is held meanwhile, because the dynamic loader is asked. Whoever comes first wins. The
    // library is never destroyed, since other threads may call to the very end.
    std::unique_ptr<Library> mine(new Library(read_config(), own_file()));
    if (g_library.compare_exchange_strong(library, mine.get(), std::memory_order_acq_rel)) {
        library = mine.release();
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit(at_exit);  // or at its dlclose
        const Jit jit = library->core.store.config.jit;
        if ((jit == Jit::warn || jit == Jit::error) && is_process_ready()) set_ready(true);
        library->begin();
        for (const std::string& problem : environment_problems()) say_once(problem, problem);
    }
    return *library;
}

// Does what the environment asks for, at the first use.
void Library::begin() {
    const Config& config = core.store.config;
    if (!config.record.empty()) recorder.record(config.record);
    const auto attempt = [](const char* variable, const auto& action) {
        try {
            action();
        } catch (const CompileError& e) {
            say(Level::warn, std::string(e.what()).substr(8) + " (" + variable + "); blobs are made ready when called");
        }
    };
    if (!config.prefetch.empty())
        attempt(LAZYCK_ENV_PREFETCH, [&] { m_prefetch = prefetch_profile(core, readiness, config.prefetch, 0); });
    if (!config.speculate.empty()) attempt(LAZYCK_ENV_SPECULATE, [&] { speculation.follow(config.speculate); });
}

void Library::at_exit() {
    Library* const library = g_library.load();
    if (library == nullptr) return;
    const DefaultFloatingPoint ours;
    library->recorder.finish();
    library->core.store.close();
}

void Library::before_fork() {
    g_library.load()->core.states.mutex().lock();
    g_library.load()->core.store.before_fork();
    global_locks_before_fork();
}

void Library::after_fork_in_parent() {
    global_locks_after_fork();
    g_library.load()->core.store.after_fork_in_parent();
    g_library.load()->core.states.mutex().unlock();
}

void Library::after_fork_in_child() {
    close_locks_in_child();
    global_locks_after_fork();
    forget_environment_in_child();
    Library& library = *g_library.load();
    library.core.store.after_fork_in_child();
    static_cast<void>(library.m_prefetch.release());  // its threads are gone
    library.speculation.after_fork_in_child();
    library.recorder.after_fork_in_child();
    library.core.states.after_fork_in_child();
    library.core.states.mutex().unlock();
}

void* Library::resolve(std::uint32_t slot, const void* caller) {
    const BlobId blob = core.blobs.of_slot(slot);
    return function_for_call(blob, slot - core.blobs.row(blob).blob().first_symbol, {slot, caller});
}

const void* Library::image_for(const Handle& handle, bool& is_whole) {
    try {
        return image_of(core.blobs.host_unit(handle.source, handle.table), handle, is_whole);
    } catch (const CompileError& e) {
        const std::string what = handle.is_kernel ? "kernel " : "variable ";
        const std::string used = handle.symbol.empty() ? "" : "\n  used: " + what + visible(readable(handle.symbol));
        throw CompileError((e.what() + used).c_str(), e.blob(), e.log(), e.command());
    }
}

const void* Library::image_of(const HostUnit& unit, const Handle& handle, bool& is_whole) {
    const auto kernel = handle.is_kernel ? unit.kernels.find(handle.symbol) : unit.kernels.end();
    const void* image = nullptr;
    if (kernel != unit.kernels.end()) {
        // If the whole source is ready already, it is better than a kernel that must be compiled.
        const Wanted one = {kernel->second, nullptr, true, "", ""}, all = {unit.whole, nullptr, true, "", ""};
        if (core.states.is_loaded(one.blob) || readiness.is_at_hand(one) || !readiness.is_at_hand(all)) {
            image = function_for_call(one.blob);
            speculation.expect_whole_source(one.blob, all.blob, unit.kernels.size());
        }
    }
    is_whole = image == nullptr || is_whole_mark(image);
    return is_whole ? function_for_call(unit.whole) : image;
}

// Makes a blob ready, and returns its function of this number. The slot is not read, because during
// a record slots are made lazy again from time to time.
void* Library::function_for_call(BlobId blob, std::uint32_t number, const Call& call) {
    speculation.expect_neighbours(blob);  // while this one is compiled
    readiness.make_ready_for_call({blob, nullptr, true, "", "", call});
    const ManifestRow at = core.blobs.row(blob);
    void* function = nullptr;
    std::optional<FirstCall> first;
    {
        const std::lock_guard<std::mutex> guard(core.states.mutex());
        BlobState& state = core.states.of(blob);
        store_slots(at, state.functions);
        function = state.functions.at(number);
        first = recorder.count_call(blob, state);
    }
    if (first) append_profile(first->path, {first->row});
    return function;
}

bool Library::is_cached(const std::string& name) {
    const auto blob = core.blobs.find(name);
    if (!blob) fail("lazyck: " + core.blobs.path() + " has no blob '" + visible(name) + "'");
    const Strings archs = core.blobs.archs_here(*blob);
    return core.states.is_loaded(*blob) || is_entry_cached(core, *blob, archs, true);
}

int Library::prefetch(const char* pattern) {
    const Activity activity(core.states);
    std::vector<BlobId> chosen;
    for (BlobId i = 0; i < core.blobs.count(); ++i) {
        if (fnmatch(pattern, core.blobs.name(i), 0) == 0) chosen.push_back(i);
    }
    if (chosen.empty()) fail("lazyck: no blob of " + core.blobs.path() + " matches '" + pattern + "'");
    const std::vector<Wanted> wanted = core.blobs.wanted_here(chosen);
    for_each_in_parallel(wanted.size(), core.store.config.jobs,
                         [&](std::size_t i) { readiness.make_ready(wanted[i]); });
    return static_cast<int>(wanted.size());
}

int Library::clear_failures() {
    core.store.caches(core.blobs.manifest())->forget_bad_places();
    int count = 0;
    const std::lock_guard<std::mutex> guard(core.states.mutex());
    for (auto& state : core.states.all()) {
        count += state.second.is_failure_final ? 1 : 0;
        state.second.is_failure_final = false;
    }
    return count;
}

void Library::set_cache_dir(const std::string& path) {
    core.store.set_cache_dir(path);
    clear_failures();  // this cache may have what could not be compiled
}

lazyck_stats Library::stats() {
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
    const std::lock_guard<std::mutex> guard(core.states.mutex());
    for (const auto& state : core.states.all()) out.loaded += state.second.is_loaded ? 1 : 0;
    return out;
}

}  // namespace lazyck::rt
