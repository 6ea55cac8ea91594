#include "store/lookup.h"

#include <utility>

#include "base/failure.h"
#include "cache/packs.h"
#include "cache/texts.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/messages.h"

namespace lazyck::rt {

std::string Lookup::name_of(const ManifestView& manifest) const {
    if (!m_config.name.empty()) return m_config.name;
    const std::string baked = manifest.cache_name();
    return baked.empty() ? LAZYCK_DEFAULT_CACHE_NAME : baked;
}

std::shared_ptr<Caches> Lookup::caches(const ManifestView& manifest) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) return m_caches;
    Strings tiers = m_config.cache_path;
    for (const std::string& root : m_places.roots) tiers.push_back(root + "/" LAZYCK_BUNDLE_CACHE);
    const std::string& given = m_given.empty() ? m_config.cache_dir : m_given;
    const auto find = [library = m_places.library, manifest] { return find_packs(library, manifest); };
    m_caches = std::make_shared<Caches>(given, m_config.caches, name_of(manifest), tiers, find);
    return m_caches;
}

EntryKey Lookup::key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const {
    return {manifest.shelf(), blob.name,         blob.digest, archs, manifest.recipe_toolchain_id(blob.recipe),
            m_config.salt,    manifest.machine()};
}

std::optional<Entry> Lookup::find(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key) {
    const Strings symbols = manifest.symbols_of(blob);
    std::optional<Entry> found;
    caches(manifest)->search([&](Cache& cache) {
        EntryLookup here;
        try {
            here = look_up_entry(cache, key, symbols);
            // find_directory reports what is wrong with a directory. It is called only after a
            // failed look-up, which has already checked the directories that it opened.
            if (here.state != EntryState::ready && !cache.find_directory(key)) return false;
        } catch (const CompileError& e) {
            if (!cache.is_tier()) throw;
            say_once(cache.root(), e.what());
            return false;
        }
        if (here.state == EntryState::ready) {
            ++m_counters.hits;
            if (is_said(Level::debug)) {
                const Subject subject = subject_of(manifest, blob, key.arch_label());
                say(Level::debug, "found " + subject.words + ": " + here.entry.path, {"hit", subject});
            }
            here.entry.origin = cache.is_tier() ? "tier " + cache.root() : "cache";
            found = std::move(here.entry);
            return true;
        }
        if (here.state == EntryState::damaged && cache.is_tier()) {
            const std::string path = cache.entry_path(key);
            say_once(path, "the entry '" + path + "' is damaged (" + here.problem + "); skipped",
                     {"damaged", subject_of(manifest, blob, key.arch_label())});
        }
        return false;
    });
    return found;
}

bool Lookup::is_cached(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key, std::string& path) {
    const auto caches = this->caches(manifest);
    path = caches->own()->entry_path(key);
    return caches->search([&](Cache& cache) {
        try {
            const EntryLookup found = look_up_entry(cache, key, manifest.symbols_of(blob));
            if (found.state != EntryState::ready) return false;
            path = found.entry.path;
            return true;
        } catch (const CompileError&) {
            // The entry is whole but unsuitable for the library, or its directory is refused. An
            // attempt to load it reports more.
            return false;
        }
    });
}

UniqueFd Lookup::find_text(const ManifestView& manifest, const EntryKey& text, const Strings& symbols) {
    UniqueFd found;
    caches(manifest)->search([&](Cache& cache) {
        try {
            found = rt::find_text(cache, text, symbols);
        } catch (const CompileError& e) {
            say_once(cache.root() + " texts", e.what());
        }
        return static_cast<bool>(found);
    });
    return found;
}

Guess Lookup::guess(const ManifestView& manifest, const Costs& costs) const {
    for (const std::string& root : m_places.roots) {
        const std::string shipped = root + "/" + manifest.library() + "/" LAZYCK_BUNDLE_COSTS;
        if (is_file(shipped)) return costs.guess(shipped);
    }
    return costs.guess();
}

std::string Lookup::history(const ManifestView& manifest) {
    const auto caches = this->caches(manifest);
    const auto places = caches->to_read();
    return places.empty() || places[0]->is_tier() ? "" : places[0]->history_path();
}

void Lookup::set_cache_dir(const std::string& path) {
    if (path.empty()) fail("lazyck: lazyck_set_cache_dir needs a path");
    const std::string root = cache_root(path, "lazyck_set_cache_dir: ");
    prepare_cache_root(root);
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_given = root;
    m_caches.reset();
}

void Lookup::forget_bad_places() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) m_caches->forget_bad_places();
}

void Lookup::close() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) m_caches->close();
}

void Lookup::after_fork_in_child() {
    static_cast<void>(new std::shared_ptr<Caches>(m_caches));
    m_caches.reset();
}

}  // namespace lazyck::rt
