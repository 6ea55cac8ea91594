#include "store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>

#include "compile.h"
#include "failure.h"
#include "files.h"
#include "lazyck_abi.h"
#include "lock.h"
#include "messages.h"
#include "places.h"
#include "process.h"

namespace lazyck::rt {

namespace {

class HeldSlot {
 public:
    explicit HeldSlot(JobSlots& slots) : m_slots(slots) { m_slots.acquire(); }
    HeldSlot(const HeldSlot&) = delete;
    HeldSlot& operator=(const HeldSlot&) = delete;
    ~HeldSlot() { m_slots.release(); }

 private:
    JobSlots& m_slots;
};

// A bundle's blobs are read out of the bundle.
void check_source(const BlobRow& blob) {
    for (const std::string& part : split(blob.source, "/")) {
        if (part != "..") continue;
        fail("lazyck: blob '" + visible(blob.name) + "': its manifest names the source '" + visible(blob.source) +
                 "', which leads out of the bundle; the manifest is not lazyck's: install the library again",
             {blob.name, "", ""});
    }
}

// Moves a damaged entry out of the way, under the blob's lock.
void quarantine(const std::string& path, const std::string& problem) {
    const std::string aside = path + ".bad-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid());
    if (std::rename(path.c_str(), aside.c_str()) != 0 && errno != ENOENT) {
        fail_system("the cache entry '" + path + "' is damaged (" + problem + ") and cannot be moved aside", errno);
    }
    say("the cache entry '" + path + "' is damaged (" + problem + "); moved to '" + file_name_of(aside) + "'");
}

}  // namespace

void JobSlots::acquire() {
    std::unique_lock<std::mutex> lock(m_mutex);
    m_changed.wait(lock, [this] { return m_free > 0; });
    --m_free;
}

void JobSlots::release() {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        ++m_free;
    }
    m_changed.notify_one();
}

Strings symbols_of(const ManifestView& manifest, const BlobRow& blob) {
    Strings names;
    for (std::uint32_t i = 0; i < blob.symbol_count; ++i)
        names.emplace_back(manifest.symbol_name(blob.first_symbol + i));
    return names;
}

Store::Store(const Config& config, Places places) : m_config(config), m_places(std::move(places)), m_jobs(config.jobs) {
    can_set_cwd();
}

std::shared_ptr<Cache> Store::cache(const ManifestView& manifest) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (!m_cache) {
        std::string root = m_config.cache_dir;
        if (root.empty()) {
            std::string name = m_config.name;
            if (name.empty()) name = manifest.cache_name();
            if (name.empty()) name = LAZYCK_DEFAULT_CACHE_NAME;
            root = default_cache_dir(name);
        }
        m_cache = std::make_shared<Cache>(root);
    }
    return m_cache;
}

void Store::set_cache_dir(const std::string& path) {
    if (path.empty()) fail("lazyck: lazyck_set_cache_dir needs a path");
    const std::string root = cache_root(path, "lazyck_set_cache_dir: ");
    prepare_cache_root(root);
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_cache = std::make_shared<Cache>(root);
}

EntryKey Store::key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const {
    return {manifest.library(), blob.name,         blob.digest, archs, manifest.recipe_toolchain_id(blob.recipe),
            m_config.salt,      manifest.machine()};
}

bool Store::is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = key_of(manifest, blob, archs);
    const auto cache = this->cache(manifest);
    path = cache->entry_path(key);
    if (!cache->find_directory(key)) return false;
    try {
        return look_up_entry(path, key.id(), key.machine, symbols_of(manifest, blob)).state == EntryState::ready;
    } catch (const CompileError&) {
        return false;  // whole, but not what the library needs: loading it says more
    }
}

Entry Store::obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = key_of(manifest, blob, archs);
    const Strings symbols = symbols_of(manifest, blob);
    const auto cache = this->cache(manifest);
    const std::string path = cache->entry_path(key);
    EntryLookup found;
    if (cache->find_directory(key)) found = look_up_entry(path, key.id(), key.machine, symbols);
    if (found.state == EntryState::ready) {
        ++m_counters.hits;
        if (m_config.is_verbose) say("found " + visible(blob.name) + " for " + key.arch_label() + ": " + path);
        return std::move(found.entry);
    }
    ++m_counters.misses;
    if (m_config.is_jit_disabled) fail_frozen(blob, key, *cache, found);
    return compile(manifest, blob, key, symbols, *cache);
}

Entry Store::compile(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, const Strings& symbols,
                     Cache& cache) {
    cache.make_directories_for(key);
    const std::string path = cache.entry_path(key);
    const BlobLock lock(cache.lock_path(key), visible(blob.name) + " for " + key.arch_label());
    EntryLookup found = look_up_entry(path, key.id(), key.machine, symbols);
    if (found.state == EntryState::ready) return std::move(found.entry);
    if (found.state == EntryState::damaged) {
        ++m_counters.damaged;
        quarantine(path, found.problem);
    }
    CompileRequest request;
    request.blob = blob.name;
    request.arch_label = key.arch_label();
    request.recipe = manifest.recipe(blob.recipe);
    const bool is_in_bundle = blob.source[0] != '/';
    check_source(blob);
    request.root = is_in_bundle ? root_of_blob(m_places.roots, m_places.library, manifest, blob) : m_places.roots[0];
    request.source = is_in_bundle ? request.root + "/" + blob.source : blob.source;
    request.library = m_places.library;
    request.archs = key.archs;
    request.symbols = symbols;
    request.is_verbose = m_config.is_verbose;
    const HeldSlot slot(m_jobs);
    const auto start = std::chrono::steady_clock::now();
    try {
        compile_entry(request, cache, key);
    } catch (...) {
        ++m_counters.failures;
        throw;
    }
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start);
    m_counters.compile_ns += static_cast<std::uint64_t>(spent.count());
    ++m_counters.compiles;
    found = look_up_entry(path, key.id(), key.machine, symbols);
    if (found.state != EntryState::ready) {
        fail("lazyck: the cache entry '" + path + "' was compiled and " +
             (found.state == EntryState::missing ? "is gone" : "is damaged (" + found.problem + ")") +
             "; is the file system full, or cleaned meanwhile?");
    }
    return std::move(found.entry);
}

void Store::fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache, const EntryLookup& found) const {
    Strings command = {"lazyck", "prebuild", "build", "--manifest", m_places.library};
    if (!key.archs.empty()) command.insert(command.end(), {"--gpu-archs", join(key.archs, ";")});
    command.emplace_back(blob.name);
    const std::string state = found.state == EntryState::damaged ? "is damaged (" + found.problem + ")" : "is missing";
    fail("lazyck: blob '" + visible(blob.name) + "' for " + key.arch_label() + " " + state + " in the cache '" +
             cache.root() +
             "', and " LAZYCK_ENV_DISABLE_JIT " forbids compiling it\n  looked for: " + cache.entry_path(key) +
             "\n  to build it: " + LAZYCK_ENV_CACHE_DIR "=" + shell_quote(cache.root()) + " " + shell_join(command),
         {blob.name, "", ""});
}

}  // namespace lazyck::rt
