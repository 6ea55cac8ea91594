#include "store/store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "cache/packs.h"
#include "platform/elf_view.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "store/local_compile.h"
#include "store/trim.h"

namespace lazyck::rt {

namespace {

// Moves a damaged entry aside. The caller holds the blob's lock.
void quarantine(const std::string& path, const std::string& problem, const Subject& subject) {
    const std::string name = file_name_of(path);
    const std::string aside = name + ".bad-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid());
    const UniqueFd directory = open_trusted_directory(directory_of(path), LAZYCK_DEPTH_OF_ENTRIES - 1);
    if (renameat(directory.get(), name.c_str(), directory.get(), aside.c_str()) != 0 && errno != ENOENT) {
        fail_system("the cache entry '" + path + "' is damaged (" + problem + ") and cannot be moved aside", errno);
    }
    say(Level::warn, "the cache entry '" + path + "' is damaged (" + problem + "); moved to '" + aside + "'",
        {"damaged", subject});
}

}  // namespace

Guess Store::expected_cost(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const EntryKey key = shop.lookup.key_of(manifest, manifest.blob(index), archs);
    return shop.lookup.guess(manifest, shop.lookup.caches(manifest)->own()->costs(key));
}

void Store::close() {
    shop.events.close();
    m_copies->close();
    shop.lookup.close();
}

void Store::before_fork() {
    shop.mutex.lock();
    shop.events.before_fork();
}

void Store::after_fork_in_parent() {
    shop.events.after_fork_in_parent();
    shop.mutex.unlock();
}

void Store::after_fork_in_child() {
    shop.events.after_fork_in_child();
    shop.sources.after_fork_in_child();
    shop.permits.after_fork_in_child();
    shop.lookup.after_fork_in_child();
    // The copies are leaked, too: their lock may be held by a thread that the child does not have.
    static_cast<void>(m_copies.release());
    m_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);
    shop.mutex.unlock();
}

bool Store::is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path) {
    const BlobRow blob = manifest.blob(index);
    return shop.lookup.is_cached(manifest, blob, shop.lookup.key_of(manifest, blob, archs), path);
}

Entry Store::obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    if (std::optional<Entry> found = find(manifest, index, archs)) return std::move(*found);
    return make(manifest, index, archs);
}

std::optional<Entry> Store::find(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    return shop.lookup.find(manifest, blob, shop.lookup.key_of(manifest, blob, archs));
}

Entry Store::make(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = shop.lookup.key_of(manifest, blob, archs);
    const auto caches = shop.lookup.caches(manifest);
    ++shop.counters.misses;
    const Strings mismatches = explain_mismatches(caches->packs(), shop.places.library, manifest);
    try {
        if (shop.jit.is_forbidden() && !shop.config.has_remote) fail_frozen(blob, key, *caches->own());
        if (!shop.jit.is_forbidden()) {
            for (const std::string& sentence : mismatches) say_once(sentence, sentence);
        }
        return *make_somewhere(manifest, blob, key, true, *caches);
    } catch (const PermanentFailure&) {
        throw;
    } catch (const CompileError& e) {
        if (mismatches.empty()) throw;
        fail(std::string(e.what()) + "\n  " + join(mismatches, "\n  "), {e.blob(), e.log(), e.command()});
    }
}

std::optional<Entry> Store::fetch(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    if (!shop.config.has_remote) return std::nullopt;
    const BlobRow blob = manifest.blob(index);
    return make_somewhere(manifest, blob, shop.lookup.key_of(manifest, blob, archs), false,
                          *shop.lookup.caches(manifest));
}

bool Store::goes_by_kernel(const ManifestView& manifest, std::uint32_t index) {
    if (!manifest.has_parts(index) || shop.config.by_kernel == ByKernelChoice::never) return false;
    if (shop.config.by_kernel == ByKernelChoice::always) return true;
    return shop.lookup.caches(manifest)->own()->by_kernel(manifest.shelf(), manifest.blob(index).name).is_cheaper();
}

void Store::refuse_by_kernel(const ManifestView& manifest, std::uint32_t index) {
    shop.lookup.caches(manifest)->own()->by_kernel(manifest.shelf(), manifest.blob(index).name).add("refused 0");
}

// Compiles in the next place if a cache cannot be written.
std::optional<Entry> Store::make_somewhere(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                           bool may_compile, Caches& caches) {
    bool was_cleaned = false, was_short_of_memory = false;
    std::string service_problem;
    while (true) {
        const std::shared_ptr<Cache> cache = m_may_stand_in ? caches.to_write() : caches.own();
        try {
            return make_in_turn(Missing(shop, manifest, blob, key, *cache), may_compile, service_problem);
        } catch (const OutOfMemory&) {
            if (std::exchange(was_short_of_memory, true)) throw;
            const Subject subject = subject_of(manifest, blob, key.arch_label());
            say(Level::warn,
                "the compiler of " + subject.words + " ran out of memory: retrying when twice as much is free",
                {"retry", subject});
        } catch (const SystemFailure& e) {
            if (!m_may_stand_in || !is_of_place(e.error())) throw;
            // Another process has emptied the cache meanwhile. Its directories are created again.
            if ((e.error() == ENOENT || e.error() == ESTALE) && !std::exchange(was_cleaned, true)) continue;
            caches.pass_over(cache, e);
        } catch (const PermanentFailure&) {
            throw;
        } catch (const CompileError& e) {
            if (service_problem.empty()) throw;
            fail(std::string(e.what()) +
                     "\n  nor did the compile service (" LAZYCK_ENV_REMOTE_COMPILE ") compile it: " + service_problem,
                 {e.blob(), e.log(), e.command()});
        }
    }
}

std::optional<Entry> Store::make_in_turn(const Missing& missing, bool may_compile, std::string& service_problem) {
    Cache& cache = missing.cache;
    EntryLookup there;
    const auto look_up = [&] {
        there = look_up_entry(cache, missing.key, missing.symbols);
        there.entry.origin = "cache";
        return there.state == EntryState::ready;
    };
    double begin = now_seconds();
    const BlobLock lock(cache.lock_path(missing.key), missing.subject, patience(shop.config, missing.guess), look_up);
    missing.tell_wait("another process's compile", begin);
    // Another process may have published it since the last look.
    if (there.state == EntryState::ready || look_up()) return std::move(there.entry);
    if (there.state == EntryState::damaged) {
        ++shop.counters.damaged;
        quarantine(missing.path, there.problem, missing.subject);
    }
    begin = now_seconds();
    const std::unique_ptr<RemoteEntry> remote = ask_remotes(missing, missing.key, may_compile);
    std::string origin;
    if (UniqueFd fetched = fetch(missing, remote.get(), may_compile, origin, service_problem)) {
        missing.tell_wait(origin, begin);
        EntryLookup found = read_entry(std::move(fetched), cache, missing.key, missing.symbols);
        if (found.state != EntryState::ready)
            fail("lazyck: '" + missing.path + "' was fetched and is damaged: " + found.problem);
        found.entry.origin = origin;
        bound(cache);
        return std::move(found.entry);
    }
    if (remote) missing.tell_wait("the remote caches", begin);
    if (!may_compile) return std::nullopt;
    if (shop.jit.is_forbidden()) fail_frozen(missing.blob, missing.key, cache);
    LocalCompile compile(missing);
    Entry entry = compile.run();
    if (remote) remote->made(missing.path);
    compile.send_text();
    bound(cache);
    return entry;
}

UniqueFd Store::fetch(const Missing& missing, RemoteEntry* remote, bool may_compile, std::string& origin,
                      std::string& service_problem) {
    UniqueFd fetched = remote != nullptr ? remote->fetch(missing.symbols) : UniqueFd();
    if (fetched) {
        origin = "remote " + remote->label();
    } else if (may_compile && !shop.jit.is_forbidden() && !shop.config.compile_service.empty()) {
        fetched = compile_at_service(missing, origin, service_problem);
        if (fetched && remote != nullptr) remote->made(missing.path);
    }
    return fetched;
}

// Keeps the cache below its largest size, by an occasional trim. The caller has its entry, so a
// failure here is only reported.
void Store::bound(Cache& cache) {
    if (shop.config.cache_max_kib <= 0) return;
    try {
        trim_now_and_then(cache.root(), static_cast<std::uint64_t>(shop.config.cache_max_kib) * 1024);
    } catch (const std::exception& e) {
        say(Level::warn, std::string("cannot trim the cache: ") + e.what());
    }
}

void Store::fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache) const {
    const EntryLookup found = look_up_entry(cache, key, {});
    Strings command = {"lazyck", "prebuild", "build", "--manifest", shop.places.library};
    const bool is_for_gpus = !key.archs.empty() && key.archs != Strings{machine_name(key.machine)};
    // --gpu-archs would make an entry for each of several archs; LAZYCK_ARCHS makes one for all.
    const bool is_joint = is_for_gpus && key.archs.size() > 1;
    const std::string setting = is_joint ? LAZYCK_ENV_ARCHS "=" + shell_quote(join(key.archs, ";")) + " " : "";
    if (is_for_gpus && !is_joint) command.insert(command.end(), {"--gpu-archs", key.archs[0]});
    command.emplace_back(blob.name);
    const std::string state = found.state == EntryState::damaged ? "is damaged (" + found.problem + ")" : "is missing";
    fail("lazyck: blob '" + visible(blob.name) + "' for " + key.arch_label() + " " + state + " in the cache '" +
             cache.root() + (shop.config.has_remote ? "' and in the remote caches, and " : "', and ") +
             shop.jit.forbidden_by() + " forbids compiling it\n  looked for: " + cache.entry_path(key) +
             "\n  to build it: " + LAZYCK_ENV_CACHE_DIR "=" + shell_quote(cache.root()) + " " + setting +
             shell_join(command),
         {blob.name, "", ""});
}

}  // namespace lazyck::rt
