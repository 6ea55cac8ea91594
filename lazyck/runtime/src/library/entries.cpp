#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "library/core.h"
#include "platform/gpu.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "platform/threads.h"

namespace lazyck::rt {

namespace {

// Combines the entries that `get` gets for `archs`; nothing if one is missing. Several are made at
// the same time.
std::optional<Entry> each_entry(Core& core, const ManifestRow& at, const Strings& archs,
                                const std::function<std::optional<Entry>(const Strings&)>& get) {
    const std::vector<Strings> wanted = archs_of_entries(at.blob(), archs);
    if (wanted.size() == 1) return get(wanted.front());
    std::vector<std::optional<Entry>> entries(wanted.size());
    for_each_in_parallel(wanted.size(), core.store.config.jobs, [&](std::size_t i) { entries[i] = get(wanted[i]); });
    for (const auto& each : entries) {
        if (!each) return std::nullopt;
    }
    Entry all = std::move(*entries.front());
    for (std::size_t i = 1; i < entries.size(); ++i) {
        Entry& other = *entries[i];
        if (other.origin == LAZYCK_ORIGIN_COMPILED) all.origin = other.origin;
        all.seconds += other.seconds;
        all.peak_kib = std::max(all.peak_kib, other.peak_kib);
        all.others.push_back(std::move(other));
    }
    return all;
}

// Returns a blob's entry in a cache: that of all of the blob, or else that of its host unit.
std::optional<Entry> find_in_cache(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const ManifestRow at = core.blobs.row(blob);
    const auto find_one = [&](const Strings& each) { return core.store.find(at, each); };
    std::optional<Entry> found = each_entry(core, at, archs, find_one);
    if (found || !may_go_by_kernel || !at.manifest.has_parts(at.index)) return found;
    const ManifestRow part = core.blobs.row(Blobs::part_of(blob, ManifestView::k_host_unit));
    found = core.store.find(part, archs);
    if (found) found->is_host_unit = true;
    return found;
}

// Precompiles the headers that other blobs include, too, in the background after a compile.
void compile_preamble_later(Core& core, const ManifestRow& at, const Strings& archs) {
    try {
        if (!core.store.preambles.should_make(at, archs)) return;
    } catch (const CompileError&) {
        return;  // a blob's own call will report what is wrong with it
    }
    stay_loaded();
    start_thread([&core, at, archs, activity = std::make_shared<Activity>(core.states)] {
        try {
            const std::string problem = core.store.preambles.compile(at, archs);
            if (!problem.empty()) log_message(Level::debug, "no precompiled preamble: " + problem);
        } catch (const std::exception& e) {
            log_message(Level::debug, std::string("no precompiled preamble: ") + e.what());
        }
    });
}

Entry fill_whole(Core& core, const ManifestRow& at, const Strings& archs) {
    // Of several entries, some may be cached.
    const auto fill_one = [&](const Strings& each) -> std::optional<Entry> {
        return each.size() == archs.size() ? core.store.fill(at, each) : core.store.obtain(at, each);
    };
    Entry entry = *each_entry(core, at, archs, fill_one);
    if (entry.seconds > 0) compile_preamble_later(core, at, archs);
    return entry;
}

// Makes a blob's entry, which no cache holds: that of all of the blob, or of its host unit. If the
// compiler's steps cannot be taken apart, or fail, the blob's own command is run, and reports the
// error.
Entry fill_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const ManifestRow at = core.blobs.row(blob);
    if (!may_go_by_kernel || !at.manifest.has_parts(at.index)) return fill_whole(core, at, archs);
    const ManifestRow part = core.blobs.row(Blobs::part_of(blob, ManifestView::k_host_unit));
    const auto apart = [&](auto get) -> std::optional<Entry> {
        try {
            std::optional<Entry> entry = get(part, archs);
            if (entry) entry->is_host_unit = true;
            return entry;
        } catch (const CompileError& e) {
            log_message(Level::debug, std::string("not by kernel: ") + e.what());
            return std::nullopt;
        }
    };
    if (core.store.jit.is_forbidden()) {
        if (auto fetched = core.store.fetch(at, archs)) return std::move(*fetched);
        auto fetched = apart([&](auto&&... words) { return core.store.fetch(words...); });
        return fetched ? std::move(*fetched) : fill_whole(core, at, archs);
    }
    if (!core.store.goes_by_kernel(at)) return fill_whole(core, at, archs);
    // A remote cache usually holds whole blobs, which `lazyck prebuild` pushed.
    if (auto fetched = core.store.fetch(at, archs)) return std::move(*fetched);
    auto made = apart([&](auto&&... words) { return std::optional<Entry>(core.store.fill(words...)); });
    if (made) {
        if (made->seconds > 0) compile_preamble_later(core, at, archs);
        return std::move(*made);
    }
    core.store.refuse_by_kernel(at);
    return fill_whole(core, at, archs);
}

}  // namespace

std::shared_ptr<const Entry> find_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    {
        const std::lock_guard<std::mutex> guard(core.states.mutex);
        const BlobState& state = core.states.all[blob];
        if (state.entry) return state.entry;
        if (state.is_failure_final && state.failed_archs == archs && state.failure) throw CompileError(*state.failure);
        if (state.is_busy && state.owner_pid == getpid()) return nullptr;
    }
    std::optional<Entry> found = find_in_cache(core, blob, archs, may_go_by_kernel);
    if (!found) return nullptr;
    const auto entry = std::make_shared<const Entry>(std::move(*found));
    const std::lock_guard<std::mutex> guard(core.states.mutex);
    BlobState& state = core.states.all[blob];
    if (!state.entry) state.entry = entry;
    return state.entry;
}

std::shared_ptr<const Entry> obtain_entry(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const ManifestRow at = core.blobs.row(blob);
    const char* const name = at.blob().name;
    core.store.events.prepare();
    if (core.store.config.has_remote && adopts_orphans()) stay_loaded();  // for the thread that waits for them
    const ProfilerRange range(std::string("lazyck compile ") + name);
    {
        std::unique_lock<std::mutex> lock(core.states.mutex);
        BlobState& state = core.states.all[blob];  // references into an unordered_map stay valid
        const std::uint64_t seen = state.attempts;
        const auto is_got = [&] { return !state.is_busy || state.owner_pid != getpid(); };
        if (!is_got() && state.owner == std::this_thread::get_id())
            fail("lazyck: blob '" + visible(name) + "' was called while this thread compiles it");
        core.states.changed.wait(lock, is_got);
        if (state.entry) return state.entry;
        const bool is_answered = state.attempts != seen || (state.is_failure_final && state.failed_archs == archs);
        if (is_answered && state.failure) throw CompileError(*state.failure);
        state.is_busy = true;
        state.owner_pid = getpid();
        state.owner = std::this_thread::get_id();
    }
    std::shared_ptr<const Entry> entry;
    std::shared_ptr<const CompileError> failure;
    bool is_final = false;
    const auto settle = [&] {
        {
            const std::lock_guard<std::mutex> guard(core.states.mutex);
            BlobState& state = core.states.all[blob];
            state.is_busy = false;
            ++state.attempts;
            state.entry = entry;
            state.failure = failure;
            state.is_failure_final = is_final;
            state.failed_archs = archs;
        }
        core.states.changed.tell();
    };
    const auto fill = [&] {
        try {
            entry = std::make_shared<const Entry>(fill_entry(core, blob, archs, may_go_by_kernel));
        } catch (const CompileError& e) {
            failure = std::make_shared<const CompileError>(e);
            is_final = dynamic_cast<const PermanentFailure*>(&e) != nullptr;
        }
    };
    const auto take = [&](const std::string& table) {
        core.store.caches(at.manifest)->hold();
        if (!entry) return;
        entry->file->move_here(table);
        for (const Entry& other : entry->others) other.file->move_here(table);
    };
    try {
        run_apart(fill, take);
    } catch (...) {
        settle();
        throw;
    }
    settle();
    if (failure) throw CompileError(*failure);  // as the public type, whatever kind it was
    return entry;
}

bool is_entry_cached(Core& core, BlobId blob, const Strings& archs, bool may_go_by_kernel) {
    const auto is_there = [&](const ManifestRow& at) {
        const std::vector<Strings> entries = archs_of_entries(at.blob(), archs);
        return std::all_of(entries.begin(), entries.end(), [&](const Strings& each) {
            std::string path;
            return core.store.is_cached(at, each, path);
        });
    };
    const ManifestRow at = core.blobs.row(blob);
    if (is_there(at)) return true;
    return may_go_by_kernel && at.manifest.has_parts(at.index) &&
           is_there(core.blobs.row(Blobs::part_of(blob, ManifestView::k_host_unit)));
}

}  // namespace lazyck::rt
