#include "store/preambles.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/failure.h"
#include "base/hash.h"
#include "bundle/units.h"
#include "compile/compile.h"
#include "compile/preamble.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "store/estimate.h"
#include "store/permits.h"

namespace lazyck::rt {

namespace {

constexpr char k_preambles[] = LAZYCK_CACHE_PREAMBLES;
constexpr unsigned k_depth_of_preambles = 1;
constexpr std::size_t k_least_sharing = 8;    // blobs that must share a preamble to make it worthwhile
constexpr std::size_t k_most_looked_at = 16;  // blobs examined to estimate how many share a preamble

std::string preamble_place(const Cache& cache, const std::string& key) {
    return cache.root() + "/" + k_preambles + "/" + key;
}

std::string preamble_key(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                         const SourceFile& source) {
    const std::string text = read_text(source.path);
    const std::string_view preamble = preamble_of(text);
    const RecipeRow recipe = manifest.recipe(blob.recipe);
    if (preamble.empty() || has_debug_information(recipe)) return "";
    std::string all;
    for (const Strings& part : {recipe.compile, recipe.arch_flags, recipe.env, recipe.drop_env, archs})
        all += shell_join(part) + "\n";
    for (const std::string& part : {std::string(manifest.recipe_toolchain_id(blob.recipe)), source.root,
                                    directory_of(source.path), std::string(manifest.contents())})
        all += part + "\n";
    return hash(all.append(preamble)).hex();
}

}  // namespace

Preambles::Preambles(const Config& config, const Places& places, const JitPolicy& jit, Lookup& lookup, Sources& sources,
                     JobPermits& permits, std::mutex& mutex)
    : m_config(config),
      m_places(places),
      m_jit(jit),
      m_lookup(lookup),
      m_sources(sources),
      m_permits(permits),
      m_mutex(mutex) {}

std::string Preambles::key_of(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const SourceFile source = m_sources.find(manifest, blob, *m_lookup.caches(manifest)->own());
    return preamble_key(manifest, blob, archs, source);
}

std::string Preambles::find(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                            const SourceFile& source, const Cache& cache) {
    const std::string key = preamble_key(manifest, blob, archs, source);
    const std::string place = preamble_place(cache, key);
    if (key.empty() || !is_directory(place)) return "";
    open_trusted_directory(place, k_depth_of_preambles + 1);
    return place;
}

std::string Preambles::make(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const auto caches = m_lookup.caches(manifest);
    Cache& cache = *caches->own();
    const std::string name = m_config.has_preambles ? key_of(manifest, index, archs) : "";
    if (name.empty())
        return "its source begins with no includes or has debug information, or " LAZYCK_ENV_PREAMBLES " forbids it";
    const EntryKey key = m_lookup.key_of(manifest, blob, archs);
    cache.make_directories_for(key);
    const UniqueFd all = open_trusted_directory(cache.make_own_directory(k_preambles), k_depth_of_preambles);
    const std::string place = preamble_place(cache, name);
    // The lock is held until the preamble is made. Other processes compile without a preamble
    // meanwhile.
    const FileLock lock(cache.root() + "/" LAZYCK_CACHE_LOCKS "/preamble-" + name + ".lock");
    if (lock.state() != FileLock::State::held) return "another process makes it, or files cannot be locked here";
    const SourceFile source = m_sources.find(manifest, blob, cache);
    if (is_given_up(place)) return "it could not be made or used within the last day";
    if (!preamble_words(place, source.path).empty()) return "";
    m_sources.check(source, manifest, blob);
    PreambleRequest request;
    request.recipe = manifest.recipe(blob.recipe);
    request.values.source = source.path;
    request.values.root = source.root;
    request.values.library = m_places.library;
    request.values.toolchain = find_toolchain(request.recipe);
    request.values.archs = archs;
    request.text = preamble_of(read_text(source.path));
    request.directory = place;
    const Guess guess = m_lookup.guess(manifest, cache.costs(key));
    Subject subject = subject_of(manifest, blob, key.arch_label());
    subject.words = "the headers of " + visible(blob.name);
    const HeldPermit permit(m_permits);
    const HostPermit shared(
        {cache.permits_dir(), m_config.jobs, memory_for(m_config, guess), patience(m_config, guess), subject});
    say(Level::info, "precompiling " + subject.words + ", which others include, too ...", {"preamble", subject});
    remove_tree(all.get(), name);
    if (mkdirat(all.get(), name.c_str(), 0700) != 0) return system_text(errno);
    std::string problem = make_preamble(request);
    if (problem.empty()) problem = m_sources.find_change(source, manifest, blob);
    if (!problem.empty()) give_up_preamble(place);
    remove_unused_preambles(Directory::open(cache.root()));
    return problem;
}

bool Preambles::should_make(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    // With a single job, the next call would wait for the preamble.
    if (!m_config.has_preambles || m_config.jobs < 2 || !m_config.launcher.empty() || m_jit.is_forbidden())
        return false;
    if (!manifest.has_slots() || !has_preambles(manifest.recipe(blob.recipe))) return false;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (!m_considered.emplace(&manifest, blob.recipe).second) return false;
    }
    std::vector<std::uint32_t> alike;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
        if (i != index && manifest.blob(i).recipe == blob.recipe) alike.push_back(i);
    }
    if (alike.size() + 1 < k_least_sharing) return false;
    const std::string own = key_of(manifest, index, archs);
    const std::size_t step = std::max<std::size_t>(1, alike.size() / k_most_looked_at);
    std::size_t looked_at = 0, sharing = 0;
    for (std::size_t i = 0; i < alike.size(); i += step, ++looked_at)
        sharing += key_of(manifest, alike[i], archs) == own ? 1 : 0;
    return !own.empty() && sharing * alike.size() + looked_at >= k_least_sharing * looked_at;
}

}  // namespace lazyck::rt
