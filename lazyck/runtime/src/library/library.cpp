#include "library/library.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/environment.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

std::atomic<Library*> g_library{nullptr};

void at_exit() {
    Library* const library = g_library.load();
    if (library == nullptr) return;
    const Visit visit;
    library->core.recorder.finish();
    library->core.store.close();
}

std::atomic<pthread_t> g_forking{};  // the thread that holds all locks because it forks
pid_t g_forking_process = 0;
bool g_has_begun_in_child = false;

bool is_forking() { return g_forking.load(std::memory_order_relaxed) == pthread_self(); }

void before_fork() {
    g_library.load()->core.states.mutex.lock();
    g_library.load()->core.store.before_fork();
    global_locks_before_fork();
    g_forking_process = getpid();
    g_forking.store(pthread_self(), std::memory_order_relaxed);
}

void after_fork(bool begins_in_child) {
    if (!is_forking()) return;  // the handlers were registered during this fork
    g_forking.store({}, std::memory_order_relaxed);
    Library& library = *g_library.load();
    global_locks_after_fork();
    if (begins_in_child) {
        forget_environment_in_child();
        library.core.store.after_fork_in_child();
        library.readiness.after_fork_in_child();
        library.core.recorder.after_fork_in_child();
        library.core.states.after_fork_in_child();
    } else {
        library.core.store.after_fork_in_parent();
    }
    library.core.states.mutex.unlock();
}

void after_fork_in_parent() { after_fork(false); }

void after_fork_in_child() { after_fork(!std::exchange(g_has_begun_in_child, false)); }

}  // namespace

Visit::Visit() : m_errno(errno), m_is_forking(is_forking()) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &m_cancels);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &m_cancel_type);
    if (!m_is_forking) return;
    g_has_begun_in_child |= g_forking_process != getpid();
    after_fork(g_forking_process != getpid());
}

Visit::~Visit() noexcept(false) {
    if (m_is_forking) before_fork();
    pthread_setcancelstate(m_cancels, nullptr);
    if (m_cancel_type == PTHREAD_CANCEL_ASYNCHRONOUS) pthread_testcancel();
    pthread_setcanceltype(m_cancel_type, nullptr);
    errno = m_errno;
}

Library& Library::get() {
    Library* library = g_library.load(std::memory_order_acquire);
    if (library != nullptr) return *library;
    // No lock is held meanwhile, because the dynamic loader is asked. The first thread that is
    // ready sets it. The library is never destroyed, since other threads may call to the very end.
    std::unique_ptr<Library> mine(new Library(read_config(), own_file()));
    if (g_library.compare_exchange_strong(library, mine.get(), std::memory_order_acq_rel)) {
        library = mine.release();
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        std::atexit(at_exit);  // or at its dlclose
        const Jit jit = library->core.store.config.jit;
        if ((jit == Jit::warn || jit == Jit::error) && is_process_ready()) set_ready(true);
        library->begin();
        for (const std::string& problem : environment_problems()) log_once(problem, problem);
    }
    return *library;
}

// Does what the environment asks for, at the first use.
void Library::begin() {
    const Config& config = core.store.config;
    if (!config.profile.empty()) core.recorder.start(config.profile);
    const auto attempt = [](const char* variable, const auto& action) {
        try {
            action();
        } catch (const CompileError& e) {
            log_message(Level::warn,
                        std::string(e.what()).substr(8) + " (" + variable + "); blobs are made ready when called");
        }
    };
    if (!config.prefetch.empty())
        attempt(LAZYCK_ENV_PREFETCH, [&] {
            m_prefetch = std::make_unique<Prefetch>(core, readiness,
                                                    read_profile(config.prefetch, core.blobs.manifest().library()), 0);
        });
}

void* Library::resolve(std::uint32_t slot, const void* caller) {
    const BlobId blob = core.blobs.of_slot(slot);
    return function_for_call(blob, slot - core.blobs.row(blob).blob().first_symbol, {slot, caller});
}

const void* Library::image_for(const Handle& handle, bool& is_whole) {
    try {
        const HostUnit& unit = core.blobs.host_unit(handle.source, handle.table);
        const auto kernel = handle.is_kernel ? unit.kernels.find(handle.symbol) : unit.kernels.end();
        const void* image = nullptr;
        if (kernel != unit.kernels.end()) {
            // If the whole source is ready already, it is better than a kernel that must be
            // compiled.
            const Wanted one = {kernel->second, nullptr, true, "", ""}, all = {unit.whole, nullptr, true, "", ""};
            if (core.states.is_loaded(one.blob) || readiness.is_at_hand(one) || !readiness.is_at_hand(all)) {
                image = function_for_call(one.blob);
                readiness.expect_whole_source(one.blob, all.blob, unit.kernels.size());
            }
        }
        is_whole = image == nullptr || is_whole_mark(image);
        return is_whole ? function_for_call(unit.whole) : image;
    } catch (const CompileError& e) {
        const std::string what = handle.is_kernel ? "kernel " : "variable ";
        const std::string used = handle.symbol.empty() ? "" : "\n  used: " + what + visible(readable(handle.symbol));
        throw CompileError((e.what() + used).c_str(), e.blob(), e.log(), e.command());
    }
}

// Makes a blob ready, and returns its function of this number. The slot is not read, because slots
// are made lazy again from time to time while a profile is recorded.
void* Library::function_for_call(BlobId blob, std::uint32_t number, const Call& call) {
    readiness.ready_for_call({blob, nullptr, true, "", "", call});
    const ManifestRow at = core.blobs.row(blob);
    void* function = nullptr;
    std::optional<FirstCall> first;
    {
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        BlobState& state = core.states.all[blob];
        store_slots(at, state.functions);
        function = state.functions.at(number);
        first = core.recorder.count_call(blob, state);
    }
    if (first) append_profile(first->path, {first->row});
    return function;
}

}  // namespace lazyck::rt
