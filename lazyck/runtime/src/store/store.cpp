#include "store/store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "base/hash.h"
#include "cache/packs.h"
#include "cache/texts.h"
#include "lazyck_abi.h"
#include "platform/elf_view.h"
#include "platform/files.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "store/remote.h"
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
    log_message(Level::warn, "the cache entry '" + path + "' is damaged (" + problem + "); moved to '" + aside + "'",
                {"damaged", subject});
}

}  // namespace

std::shared_ptr<Caches> Store::caches(const ManifestView& manifest) {
    const std::lock_guard<std::mutex> guard(mutex);
    if (m_caches) return m_caches;
    Strings tiers = config.cache_path;
    for (const std::string& root : paths.roots) tiers.push_back(root + "/" LAZYCK_BUNDLE_CACHE);
    const std::string& given = m_given.empty() ? config.cache_dir : m_given;
    std::string name = config.name.empty() ? manifest.cache_name() : config.name;
    if (name.empty()) name = LAZYCK_DEFAULT_CACHE_NAME;
    const auto find = [library = paths.library, manifest] { return find_packs(library, manifest); };
    m_caches = std::make_shared<Caches>(given, config.caches, name, tiers, find);
    return m_caches;
}

EntryKey Store::key_of(const ManifestRow& at, const Strings& archs, const std::string& compiler) const {
    const ManifestView& manifest = at.manifest;
    const BlobRow blob = at.blob();
    EntryKey key = {manifest.shelf(), blob.name, blob.digest, archs, compiler, config.salt, manifest.machine()};
    if (compiler.empty()) key.toolchain_id = manifest.recipe_toolchain_id(blob.recipe);
    // A CPU that lacks what the build's has gets an entry of its own.
    if (manifest.recipe_here(blob.recipe) != blob.recipe)
        key.digest = hash(key.digest + "\n" + shell_join(manifest.recipe(blob.recipe).compile)).hex();
    return key;
}

std::optional<Entry> Store::find(const ManifestRow& at, const Strings& archs, const std::string& compiler) {
    const BlobRow blob = at.blob();
    const EntryKey key = key_of(at, archs, compiler);
    const Strings symbols = at.manifest.symbols_of(blob);
    std::optional<Entry> found;
    caches(at.manifest)->search([&](Cache& cache) {
        EntryLookup here;
        try {
            here = look_up_entry(cache, key, symbols);
        } catch (const CompileError& e) {
            if (!cache.is_tier()) throw;
            log_once(cache.root(), e.what());
            return false;
        }
        if (here.state == EntryState::ready) {
            ++counters.hits;
            if (is_said(Level::debug)) {
                const Subject subject = subject_of(at.manifest, blob, key.arch_label());
                log_message(Level::debug, "found " + subject.words + ": " + here.entry.path, {"hit", subject});
            }
            here.entry.origin = cache.is_tier() ? LAZYCK_ORIGIN_TIER " " + cache.root() : LAZYCK_ORIGIN_CACHE;
            found = std::move(here.entry);
            return true;
        }
        if (here.state == EntryState::damaged && cache.is_tier()) {
            const std::string path = cache.entry_path(key);
            log_once(path, "the entry '" + path + "' is damaged (" + here.problem + "); skipped",
                     {"damaged", subject_of(at.manifest, blob, key.arch_label())});
        }
        return false;
    });
    return found;
}

bool Store::is_cached(const ManifestRow& at, const Strings& archs, std::string& path, EntryKey* key) {
    const auto caches = this->caches(at.manifest);
    const EntryKey of_build = key_of(at, archs);
    path = caches->own()->entry_path(of_build);
    if (key != nullptr) *key = of_build;
    const auto is_there = [&](const EntryKey& wanted) {
        return caches->search([&](Cache& cache) {
            try {
                const EntryLookup found = look_up_entry(cache, wanted, at.manifest.symbols_of(at.blob()));
                if (found.state != EntryState::ready) return false;
                path = found.entry.path;
                if (key != nullptr) *key = wanted;
                return true;
            } catch (const CompileError&) {
                // The entry is whole but unsuitable for the library, or its directory is refused.
                // An attempt to load it reports more.
                return false;
            }
        });
    };
    if (is_there(of_build)) return true;
    const std::string compiler = other_compiler(at, of_build, false);
    return !compiler.empty() && is_there(key_of(at, archs, compiler));
}

std::string Store::other_compiler(const ManifestRow& at, const EntryKey& of_build, bool asks) {
    const auto caches = this->caches(at.manifest);
    std::string compiler = compilers->known(at);
    const auto may_have = [&](Cache& cache) { return cache.has_of_other_compiler(of_build); };
    if (compiler.empty() && (asks || caches->search(may_have))) {
        try {
            compiler = compilers->name(at, *caches->own());
        } catch (const CompileError& e) {
            log_message(Level::debug, std::string("no other compiler's entries are looked for: ") + e.what());
        }
    }
    return compiler == of_build.toolchain_id ? "" : compiler;
}

UniqueFd Store::find_text(const ManifestView& manifest, const EntryKey& text, const Strings& symbols) {
    UniqueFd found;
    caches(manifest)->search([&](Cache& cache) {
        try {
            found = rt::find_text(cache, text, symbols);
        } catch (const CompileError& e) {
            log_once(cache.root() + " texts", e.what());
        }
        return static_cast<bool>(found);
    });
    return found;
}

Guess Store::guess(const ManifestView& manifest, const Costs& costs) const {
    for (const std::string& root : paths.roots) {
        const std::string shipped = root + "/" + manifest.library() + "/" LAZYCK_BUNDLE_COSTS;
        if (is_file(shipped)) return costs.guess(shipped);
    }
    return costs.guess();
}

std::string Store::history(const ManifestView& manifest) {
    const auto caches = this->caches(manifest);
    const auto readable = caches->to_read();
    return readable.empty() || readable[0]->is_tier() ? "" : readable[0]->history_path();
}

void Store::set_cache_dir(const std::string& path) {
    if (path.empty()) fail("lazyck: lazyck_set_cache_dir needs a path");
    const std::string root = cache_root(path, "lazyck_set_cache_dir: ");
    prepare_cache_root(root);
    const std::lock_guard<std::mutex> guard(mutex);
    m_given = root;
    m_caches.reset();
}

Guess Store::expected_cost(const ManifestRow& at, const Strings& archs) {
    return guess(at.manifest, caches(at.manifest)->own()->costs(key_of(at, archs)));
}

void Store::close() {
    events.close();
    named_copies->close();
    const std::lock_guard<std::mutex> guard(mutex);
    if (m_caches) m_caches->close();
}

void Store::before_fork() {
    mutex.lock();
    events.before_fork();
}

void Store::after_fork_in_parent() {
    events.after_fork_in_parent();
    mutex.unlock();
}

void Store::after_fork_in_child() {
    events.after_fork_in_child();
    permits.after_fork_in_child();
    // These are leaked: their locks may be held by threads that the child does not have.
    static_cast<void>(new std::shared_ptr<Caches>(m_caches));
    static_cast<void>(sources.release());
    static_cast<void>(compilers.release());
    static_cast<void>(named_copies.release());
    m_caches.reset();
    sources = std::make_unique<Sources>(paths);
    compilers = std::make_unique<Compilers>(*sources, config.jobs);
    named_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);
    mutex.unlock();
}

Entry Store::obtain(const ManifestRow& at, const Strings& archs) {
    if (std::optional<Entry> found = find(at, archs)) return std::move(*found);
    return fill(at, archs);
}

Entry Store::fill(const ManifestRow& at, const Strings& archs) {
    ++counters.misses;
    const auto caches = this->caches(at.manifest);
    const Strings mismatches = explain_mismatches(caches->packs(), paths.library, at.manifest);
    std::string service_problem;
    try {
        if (!jit.is_forbidden()) {
            for (const std::string& sentence : mismatches) log_once(sentence, sentence);
        }
        if (auto entry = fill_by_any(at, archs, true, service_problem)) return std::move(*entry);
        fail_frozen(at, archs, *caches->own());
    } catch (const PermanentFailure&) {
        throw;
    } catch (const CompileError& e) {
        std::string more;
        if (!service_problem.empty())
            more = "\n  nor did the compile service (" LAZYCK_ENV_REMOTE_COMPILE ") compile it: " + service_problem;
        for (const std::string& sentence : mismatches) more += "\n  " + sentence;
        if (more.empty()) throw;
        fail(e.what() + more, {e.blob(), e.log(), e.command()});
    }
}

void Store::set_aside(const ManifestRow& at, const Entry& entry) {
    const std::string own = caches(at.manifest)->own()->root() + "/";
    if (entry.path.compare(0, own.size(), own) == 0 && entry.file->is_at(entry.path)) {
        try {
            quarantine(entry.path, "the loader refuses it", subject_of(at.manifest, at.blob(), ""));
        } catch (const CompileError& e) {
            log_message(Level::debug, e.what());  // it is found again, and the loader's reason is told
        }
    }
    for (const Entry& other : entry.others) set_aside(at, other);
}

std::optional<Entry> Store::fetch(const ManifestRow& at, const Strings& archs) {
    std::string service_problem;
    return config.has_remote ? fill_by_any(at, archs, false, service_problem) : std::nullopt;
}

std::optional<Entry> Store::fill_by_any(const ManifestRow& at, const Strings& archs, bool may_compile,
                                        std::string& service_problem) {
    const bool may_compile_here = may_compile && !jit.is_forbidden();
    const auto fill = [&](const std::string& compiler, bool asks) {
        return fill_where_writable(at, archs, compiler, may_compile, asks, service_problem);
    };
    if (may_compile_here || config.has_remote) {
        // What comes from elsewhere needs neither the bundle nor a compiler here.
        const bool comes_from_elsewhere = config.has_remote || !config.compile_service.empty();
        auto entry = fill("", may_compile_here && !comes_from_elsewhere);
        if (!entry && may_compile_here && compilers->known(at).empty()) entry = fill("", true);
        if (entry) return entry;
    }
    const std::string compiler = other_compiler(at, key_of(at, archs), config.has_remote);
    if (compiler.empty()) return std::nullopt;
    if (auto entry = find(at, archs, compiler)) return entry;
    return may_compile_here || config.has_remote ? fill(compiler, false) : std::nullopt;
}

bool Store::goes_by_kernel(const ManifestRow& at) {
    if (!at.manifest.has_parts(at.index) || config.by_kernel == ByKernelChoice::never) return false;
    if (config.by_kernel == ByKernelChoice::always) return true;
    return caches(at.manifest)->own()->by_kernel(at.manifest.shelf(), at.blob().name).is_cheaper();
}

void Store::refuse_by_kernel(const ManifestRow& at) {
    caches(at.manifest)->own()->by_kernel(at.manifest.shelf(), at.blob().name).add(LAZYCK_COST_REFUSED " 0");
}

// Compiles into the next cache if one cannot be written.
std::optional<Entry> Store::fill_where_writable(const ManifestRow& at, const Strings& archs,
                                                const std::string& compiler, bool may_compile, bool asks,
                                                std::string& service_problem) {
    const auto caches = this->caches(at.manifest);
    bool was_cleaned = false, was_short_of_memory = false;
    while (true) {
        const std::shared_ptr<Cache> cache = m_may_stand_in ? caches->to_write() : caches->own();
        try {
            if (asks) compilers->name(at, *cache);
            return fill_under_lock(Missing(*this, at, archs, *cache, compiler), may_compile, service_problem);
        } catch (const OutOfMemory&) {
            if (std::exchange(was_short_of_memory, true)) throw;
            const Subject subject = subject_of(at.manifest, at.blob(), key_of(at, archs).arch_label());
            log_message(Level::warn,
                        "the compiler of " + subject.words + " ran out of memory: retrying when twice as much is free",
                        {"retry", subject});
        } catch (const SystemFailure& e) {
            if (!m_may_stand_in || !is_storage_error(e.error())) throw;
            // Another process has emptied the cache meanwhile. Its directories are created again.
            if ((e.error() == ENOENT || e.error() == ESTALE) && !std::exchange(was_cleaned, true)) continue;
            caches->pass_over(cache, e);
        }
    }
}

std::optional<Entry> Store::fill_under_lock(const Missing& missing, bool may_compile, std::string& service_problem) {
    Cache& cache = missing.cache;
    EntryLookup there;
    const auto look_up = [&] {
        there = look_up_entry(cache, missing.key, missing.symbols);
        there.entry.origin = LAZYCK_ORIGIN_CACHE;
        return there.state == EntryState::ready;
    };
    double begin = now_seconds();
    const BlobLock lock(cache.lock_path(missing.key), missing.subject, patience(config, missing.guess), look_up);
    missing.tell_wait("another process's compile", begin);
    // Another process may have published it since the last look.
    if (there.state == EntryState::ready || look_up()) return std::move(there.entry);
    if (there.state == EntryState::damaged) {
        ++counters.damaged;
        quarantine(missing.path, there.problem, missing.subject);
    }
    begin = now_seconds();
    const bool may_compile_here = may_compile && !jit.is_forbidden();
    std::unique_ptr<RemoteEntry> remote;
    if (config.has_remote) remote = std::make_unique<RemoteEntry>(missing, missing.key, may_compile_here);
    UniqueFd fetched = remote ? remote->fetch() : UniqueFd();
    std::string origin = fetched ? remote->origin() : "";
    const std::string of_build = missing.at.manifest.recipe_toolchain_id(missing.blob.recipe);
    // Services compile as the build did, whatever their CPU is.
    const bool is_by_build = missing.key.toolchain_id == of_build &&
                             missing.at.manifest.recipe_here(missing.blob.recipe) == missing.blob.recipe;
    const bool is_of_service = is_by_build && !config.compile_service.empty() && service_problem.empty();
    if (!fetched && may_compile_here && is_of_service) {
        fetched = compile_at_service(missing, origin, service_problem);
        if (fetched && remote) remote->made();
    }
    if (fetched) {
        missing.tell_wait(origin, begin);
        there = read_entry(std::move(fetched), cache, missing.key, missing.symbols);
        if (there.state != EntryState::ready)
            fail("lazyck: '" + missing.path + "' was fetched and is damaged: " + there.problem);
        there.entry.origin = origin;
    } else {
        if (remote) missing.tell_wait("the remote caches", begin);
        if (!may_compile_here) return std::nullopt;
        if (is_by_build && compilers->known(missing.at) != of_build) return std::nullopt;
        there.entry = compile_entry(missing, remote.get());
    }
    if (config.cache_max_kib > 0)
        trim_now_and_then(cache.root(), static_cast<std::uint64_t>(config.cache_max_kib) * 1024);
    return std::move(there.entry);
}

void Store::fail_frozen(const ManifestRow& at, const Strings& archs, Cache& cache) const {
    const BlobRow blob = at.blob();
    const EntryKey key = key_of(at, archs);
    const EntryLookup found = look_up_entry(cache, key, {});
    Strings command = {"lazyck", "prebuild", "build", "--manifest", paths.library};
    const bool is_for_gpus = !key.archs.empty() && key.archs != Strings{machine_name(key.machine)};
    // --gpu-archs would make an entry for each of several archs; LAZYCK_ARCHS makes one for all.
    const bool is_joint = is_for_gpus && key.archs.size() > 1;
    const std::string setting = is_joint ? LAZYCK_ENV_ARCHS "=" + shell_quote(join(key.archs, ";")) + " " : "";
    if (is_for_gpus && !is_joint) command.insert(command.end(), {"--gpu-archs", key.archs[0]});
    command.emplace_back(blob.name);
    const std::string state = found.state == EntryState::damaged ? "is damaged (" + found.problem + ")" : "is missing";
    fail("lazyck: blob '" + visible(blob.name) + "' for " + key.arch_label() + " " + state + " in the cache '" +
             cache.root() + (config.has_remote ? "' and in the remote caches, and " : "', and ") + jit.forbidden_by() +
             " forbids compiling it\n  looked for: " + cache.entry_path(key) + "\n  to build it: " +
             LAZYCK_ENV_CACHE_DIR "=" + shell_quote(cache.root()) + " " + setting + shell_join(command),
         {blob.name, "", ""});
}

}  // namespace lazyck::rt
