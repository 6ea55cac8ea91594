#include "library/library.h"

#include <fnmatch.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "base/load_error.h"
#include "bundle/own_file.h"
#include "lazyck_abi.h"
#include "library/activity.h"
#include "library/slots.h"
#include "library/stubs.h"
#include "platform/environment.h"
#include "platform/floating_point.h"
#include "platform/global_locks.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/parallel.h"

namespace lazyck::rt {

namespace {

std::atomic<Library*> g_library{nullptr};

}  // namespace

Library::Library(const Config& config, std::string path)
    : m_blobs(config, std::move(path)),
      m_store(config, {m_blobs.path(), bundle_roots(config.root, m_blobs.root(), m_blobs.path())}, true),
      m_host_units(m_blobs),
      m_recorder(m_blobs, m_states),
      m_entries(m_blobs, m_states, m_store),
      m_loader(m_blobs, m_states, m_store, m_recorder),
      m_siblings(m_blobs, m_states, m_store),
      m_readiness(m_blobs, m_states, m_store, m_host_units, m_entries, m_loader, m_siblings),
      m_speculation(m_blobs, m_states, m_store, m_readiness),
      m_prefetching(m_blobs, m_states, m_store, m_readiness) {}

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
        const Jit jit = library->m_store.shop.config.jit;
        if ((jit == Jit::warn || jit == Jit::error) && is_process_ready()) set_ready(true);
        library->begin();
        warn_of_environment();
    }
    return *library;
}

// Does what the environment asks for, at the first use.
void Library::begin() {
    const Config& config = m_store.shop.config;
    if (!config.record.empty()) m_recorder.record(config.record);
    const auto attempt = [](const char* variable, const auto& action) {
        try {
            action();
        } catch (const CompileError& e) {
            say(Level::warn, std::string(e.what()).substr(8) + " (" + variable + "); blobs are made ready when called");
        }
    };
    if (!config.prefetch.empty())
        attempt(LAZYCK_ENV_PREFETCH, [&] { m_prefetch = m_prefetching.begin(config.prefetch, 0); });
    if (!config.speculate.empty()) attempt(LAZYCK_ENV_SPECULATE, [&] { m_speculation.follow(config.speculate); });
}

void Library::at_exit() {
    Library* const library = g_library.load();
    if (library == nullptr) return;
    const DefaultFloatingPoint ours;
    library->m_recorder.finish();
    library->m_store.close();
}

void Library::before_fork() {
    g_library.load()->m_states.mutex().lock();
    g_library.load()->m_store.before_fork();
    global_locks_before_fork();
}

void Library::after_fork_in_parent() {
    global_locks_after_fork();
    g_library.load()->m_store.after_fork_in_parent();
    g_library.load()->m_states.mutex().unlock();
}

void Library::after_fork_in_child() {
    close_locks_in_child();
    global_locks_after_fork();
    forget_environment_in_child();
    Library& library = *g_library.load();
    library.m_store.after_fork_in_child();
    static_cast<void>(library.m_prefetch.release());  // its threads are gone
    library.m_speculation.after_fork_in_child();
    library.m_recorder.after_fork_in_child();
    library.m_states.after_fork_in_child();
    library.m_states.mutex().unlock();
}

void* Library::resolve(std::uint32_t slot, const void* caller) {
    const BlobId blob = m_blobs.of_slot(slot);
    m_speculation.expect_neighbours(blob);  // while this one is compiled
    m_readiness.make_ready_for_call({blob, nullptr, true, "", "", {slot, caller}});
    const ManifestRow at = m_blobs.row(blob);
    return function_for_call(blob, slot - at.manifest.blob(at.index).first_symbol);
}

void* Library::first_function(BlobId blob) {
    m_speculation.expect_neighbours(blob);
    m_readiness.make_ready_for_call({blob, nullptr, true, "", ""});
    return function_for_call(blob, 0);
}

const void* Library::image_for(const Handle& handle, bool& is_whole) {
    try {
        return image_of(m_host_units.of(handle), handle, is_whole);
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
        if (m_states.is_loaded(one.blob) || m_readiness.is_at_hand(one) || !m_readiness.is_at_hand(all)) {
            image = first_function(one.blob);
            m_speculation.expect_whole_source(one.blob, all.blob, unit.kernels.size());
        }
    }
    is_whole = image == nullptr || is_whole_mark(image);
    return is_whole ? first_function(unit.whole) : image;
}

// Returns the function for a call. The slot is not read, because during a record slots are made
// lazy again from time to time.
void* Library::function_for_call(BlobId blob, std::uint32_t number) {
    const ManifestRow at = m_blobs.row(blob);
    void* function = nullptr;
    std::optional<FirstCall> first;
    {
        const std::lock_guard<std::mutex> guard(m_states.mutex());
        BlobState& state = m_states.of(blob);
        store_slots(at, state.functions);
        function = state.functions.at(number);
        first = m_recorder.count_call(blob, state);
    }
    if (first) append_profile(first->path, {first->row});
    return function;
}

bool Library::is_cached(const std::string& name) {
    for (BlobId i = 0; i < m_blobs.count(); ++i) {
        if (name != m_blobs.name(i)) continue;
        const Strings archs = m_blobs.archs_here(m_blobs.first() + i);
        return m_states.is_loaded(m_blobs.first() + i) || m_entries.is_cached(m_blobs.first() + i, archs, true);
    }
    fail("lazyck: " + m_blobs.path() + " has no blob '" + visible(name) + "'");
}

int Library::prefetch(const char* pattern) {
    const Activity activity(m_states);
    std::vector<BlobId> chosen;
    for (BlobId i = 0; i < m_blobs.count(); ++i) {
        if (fnmatch(pattern, m_blobs.name(i), 0) == 0) chosen.push_back(m_blobs.first() + i);
    }
    if (chosen.empty()) fail("lazyck: no blob of " + m_blobs.path() + " matches '" + pattern + "'");
    const std::vector<Wanted> wanted = m_blobs.wanted_here(chosen);
    for_each_in_parallel(wanted.size(), m_store.shop.config.jobs,
                         [&](std::size_t i) { m_readiness.make_ready(wanted[i]); });
    return static_cast<int>(wanted.size());
}

int Library::clear_failures() {
    m_store.shop.lookup.forget_bad_places();
    int count = 0;
    const std::lock_guard<std::mutex> guard(m_states.mutex());
    for (auto& state : m_states.all()) {
        count += state.second.is_failure_final ? 1 : 0;
        state.second.is_failure_final = false;
    }
    return count;
}

void Library::set_cache_dir(const std::string& path) {
    m_store.shop.lookup.set_cache_dir(path);
    clear_failures();  // this cache may have what could not be compiled
}

lazyck_stats Library::stats() {
    lazyck_stats out = {};
    out.blobs = m_blobs.count();
    out.symbols = lazyck_slot_count;
    const Counters& counters = m_store.shop.counters;
    out.hits = counters.hits;
    out.misses = counters.misses;
    out.compiles = counters.compiles;
    out.failures = counters.failures;
    out.damaged = counters.damaged;
    out.compile_ns = counters.compile_ns;
    out.remote_hits = counters.remote_hits;
    out.remote_refused = counters.remote_refused;
    out.remote_skipped = counters.remote_skipped;
    const std::lock_guard<std::mutex> guard(m_states.mutex());
    for (const auto& state : m_states.all()) out.loaded += state.second.is_loaded ? 1 : 0;
    return out;
}

}  // namespace lazyck::rt
