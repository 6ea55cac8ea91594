#include "store/store.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/failure.h"
#include "base/machine.h"
#include "base/numbers.h"
#include "cache/places.h"
#include "cache/texts.h"
#include "compile/compile.h"
#include "compile/preamble.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/lock.h"
#include "platform/messages.h"
#include "platform/process.h"
#include "store/slots.h"
#include "store/trim.h"

namespace lazyck::rt {

namespace {

constexpr double k_least_patience = 1200;                    // seconds
constexpr double k_least_wait = 0.05, k_longest_wait = 1e6;  // seconds
constexpr long k_unknown_need_kib = 4L * 1024 * 1024;        // enough for large CUDA files
constexpr char k_preambles[] = ".preambles";
constexpr unsigned k_depth_of_preambles = 1;
constexpr double k_least_worth_a_text = 4;    // seconds of a compile; computing the text takes half a second
constexpr unsigned k_enough_to_pay = 4;       // compiles after which a preamble has paid off
constexpr std::size_t k_least_sharing = 8;    // blobs that must share a preamble to make it worthwhile
constexpr std::size_t k_most_looked_at = 16;  // blobs examined to estimate how many share a preamble

class HeldSlot {
 public:
    HeldSlot(JobSlots& slots, const std::string& blob) : m_slots(slots) { m_slots.acquire(blob); }
    // Takes a slot for work that no call waits for.
    explicit HeldSlot(JobSlots& slots) : m_slots(slots) { m_slots.acquire_for_later(); }
    HeldSlot(const HeldSlot&) = delete;
    HeldSlot& operator=(const HeldSlot&) = delete;
    ~HeldSlot() {
        for (unsigned i = 0; i < m_count; ++i) m_slots.release();
    }

    // Takes a second slot if one is free. Returns whether it did.
    bool takes_one_more() {
        const bool has_taken = m_slots.try_acquire();
        m_count += has_taken ? 1 : 0;
        return has_taken;
    }

 private:
    JobSlots& m_slots;
    unsigned m_count = 1;
};

// Returns the words in front of a HIP blob's compile step that make `lazyck-unit` do `what` for it.
// The result is empty for other blobs.
Strings words_for_hip(const char* what, const ManifestView& manifest, const BlobRow& blob, const std::string& source) {
    if (!blob.has_parts) return {};
    const Strings words = manifest.recipe(blob.host_recipe).compile;
    if (words.size() < 2 || words[1] != "hip-entry") return {};
    RecipeValues values;
    values.root = LAZYCK_BUNDLE_LINK;
    RecipeRow program;
    program.compile = {words[0]};
    const Strings path = make_plan(program, values).compile;
    return {path.at(0), what, "-", source, k_object, "--"};
}

std::string preamble_place(const Cache& cache, const std::string& key) {
    return cache.root() + "/" + k_preambles + "/" + key;
}

// Returns how many seconds to wait for another process that compiles the blob: four times the time
// of the slowest compile.
double patience(const Config& config, const Guess& guess) {
    if (config.lock_timeout >= 0) return config.lock_timeout;
    return std::max(k_least_patience, 4 * std::max(guess.blob.seconds, guess.largest.seconds));
}

// Returns the kilobytes to reserve for a compile: what it took before, or else what the library's
// largest compile took, plus a fifth for the driver and its other children.
long memory_for(const Config& config, const Guess& guess) {
    if (config.mem_per_job_kib >= 0) return config.mem_per_job_kib;
    const long known = guess.blob.peak_kib > 0 ? guess.blob.peak_kib : guess.largest.peak_kib;
    return known > 0 ? known + known / 5 : k_unknown_need_kib;
}

// Checks that the source's path does not lead out of the bundle.
void check_source(const BlobRow& blob) {
    for (const std::string& part : split(blob.source, "/")) {
        if (part != "..") continue;
        fail("lazyck: blob '" + visible(blob.name) + "': its manifest names the source '" + visible(blob.source) +
                 "', which leads out of the bundle; the manifest is not lazyck's: install the library again",
             {blob.name, "", ""});
    }
}

// Refuses a source that others could have written. A privileged program can be started through a
// link beside a bundle that its caller wrote.
void check_way(const BlobRow& blob, const std::string& path) {
    const std::string stranger = stranger_on_way(path);
    if (stranger.empty()) return;
    fail("lazyck: refusing to compile blob '" + visible(blob.name) + "' in a privileged program from '" + path +
             "': " + stranger + "; install the bundle as root",
         {blob.name, "", ""});
}

// Moves a damaged entry aside. The caller holds the blob's lock.
void quarantine(const std::string& path, const std::string& problem, const Subject& subject) {
    const std::string name = file_name_of(path);
    const std::string aside = name + ".bad-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid());
    const UniqueFd directory = open_trusted_directory(directory_of(path), k_depth_of_entries - 1);
    if (renameat(directory.get(), name.c_str(), directory.get(), aside.c_str()) != 0 && errno != ENOENT) {
        fail_system("the cache entry '" + path + "' is damaged (" + problem + ") and cannot be moved aside", errno);
    }
    say(Level::warn, "the cache entry '" + path + "' is damaged (" + problem + "); moved to '" + aside + "'",
        {"damaged", subject});
}

std::string first_line_of(const std::exception& e) {
    const std::string text = e.what();
    const std::string line = text.substr(0, text.find('\n'));
    return line.rfind("lazyck: ", 0) == 0 ? line.substr(8) : line;
}

}  // namespace

void JobSlots::acquire(const std::string& blob) {
    std::unique_lock<std::mutex> lock(m_mutex);
    ++m_waiting;
    m_changed.wait(lock, [&] { return m_free > 0 && m_behind.count(blob) == 0; });
    --m_waiting;
    --m_free;
    let_pass(blob);
}

void JobSlots::acquire_for_later() {
    std::unique_lock<std::mutex> lock(m_mutex);
    m_changed.wait(lock, [&] { return m_free > 0 && (m_waiting == 0 || m_waiting >= k_enough_to_pay); });
    --m_free;
}

void JobSlots::put_behind(const std::string& blob, const std::string& first) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_behind[blob] = first;
}

void JobSlots::needs_none(const std::string& first) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    let_pass(first);
}

// Lets blobs that are behind `first` get slots. The caller holds m_mutex.
void JobSlots::let_pass(const std::string& first) {
    for (auto each = m_behind.begin(); each != m_behind.end();)
        each = each->second == first ? m_behind.erase(each) : std::next(each);
    m_changed.notify_all();
}

bool JobSlots::try_acquire() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_free == 0) return false;
    --m_free;
    return true;
}

void JobSlots::release() {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        ++m_free;
    }
    m_changed.notify_all();
}

std::string kernel_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : tab + 1;
}

std::string host_unit_of(const BlobRow& blob) {
    const char* const tab = std::strchr(blob.kernel, '\t');
    return tab == nullptr ? "" : std::string(blob.kernel, tab);
}

std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs) {
    const std::string kernel = kernel_of(blob);
    if (archs.size() < 2 || kernel.empty() || kernel == host_unit_of(blob)) return {archs};
    std::vector<Strings> each;
    for (const std::string& arch : archs) each.push_back({arch});
    return each;
}

Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label) {
    const std::string kernel = kernel_of(blob);
    const bool is_kernel = !kernel.empty() && kernel[0] != '*' && kernel != host_unit_of(blob);
    return {visible(blob.name) + " for " + arch_label, manifest.library(), blob.name,
            is_kernel ? kernel.substr(0, kernel.find('\t')) : "", arch_label};
}

Store::Store(const Config& config, Places places, bool may_stand_in)
    : m_config(config),
      m_places(std::move(places)),
      m_events(config.trace),
      m_jit(config),
      m_jobs(std::make_unique<JobSlots>(config.jobs)),
      m_copies(std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME)),
      m_may_stand_in(may_stand_in) {}

void Store::announce(const std::string& blob, const std::string& first) {
    ++m_announced;
    m_jobs->put_behind(blob, first);
}

Guess Store::guess(const ManifestView& manifest, const Costs& costs) const {
    for (const std::string& root : m_places.roots) {
        const std::string shipped = root + "/" + manifest.library() + "/" LAZYCK_BUNDLE_COSTS;
        if (is_file(shipped)) return costs.guess(shipped);
    }
    return costs.guess();
}

Guess Store::expected_cost(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const EntryKey key = key_of(manifest, manifest.blob(index), archs);
    return guess(manifest, caches(manifest)->own()->costs(key));
}

std::string Store::name_of(const ManifestView& manifest) const {
    if (!m_config.name.empty()) return m_config.name;
    const std::string baked = manifest.cache_name();
    return baked.empty() ? LAZYCK_DEFAULT_CACHE_NAME : baked;
}

std::shared_ptr<Caches> Store::caches(const ManifestView& manifest) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) return m_caches;
    Strings tiers = m_config.cache_path;
    for (const std::string& root : m_places.roots) tiers.push_back(root + "/" LAZYCK_BUNDLE_CACHE);
    const std::string& given = m_given.empty() ? m_config.cache_dir : m_given;
    const auto find = [library = m_places.library, manifest] { return find_packs(library, manifest); };
    m_caches = std::make_shared<Caches>(given, m_config.caches, name_of(manifest), tiers, find);
    return m_caches;
}

void Store::close() {
    m_events.close();
    m_copies->close();
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) m_caches->close();
}

void Store::set_cache_dir(const std::string& path) {
    if (path.empty()) fail("lazyck: lazyck_set_cache_dir needs a path");
    const std::string root = cache_root(path, "lazyck_set_cache_dir: ");
    prepare_cache_root(root);
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_given = root;
    m_caches.reset();
}

void Store::before_fork() {
    m_mutex.lock();
    m_events.before_fork();
}

void Store::after_fork_in_parent() {
    m_events.after_fork_in_parent();
    m_mutex.unlock();
}

void Store::after_fork_in_child() {
    m_events.after_fork_in_child();
    // These objects are leaked: their locks may be held by threads that the child does not have.
    static_cast<void>(m_contents.release());
    static_cast<void>(m_archives.release());
    static_cast<void>(m_jobs.release());
    static_cast<void>(new std::shared_ptr<Caches>(m_caches));
    static_cast<void>(m_copies.release());
    m_contents = std::make_unique<Contents>();
    m_archives = std::make_unique<Archives>();
    m_copies = std::make_unique<NamedCopies>(LAZYCK_DEFAULT_CACHE_NAME);
    m_jobs = std::make_unique<JobSlots>(m_config.jobs);
    m_announced = 0;
    m_caches.reset();
    m_mutex.unlock();
}

void Store::forget_bad_places() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_caches) m_caches->forget_bad_places();
}

EntryKey Store::key_of(const ManifestView& manifest, const BlobRow& blob, const Strings& archs) const {
    return {manifest.shelf(), blob.name,         blob.digest, archs, manifest.recipe_toolchain_id(blob.recipe),
            m_config.salt,    manifest.machine()};
}

std::string Store::history(const ManifestView& manifest) {
    const auto caches = this->caches(manifest);
    const auto places = caches->to_read();
    return places.empty() || places[0]->is_tier() ? "" : places[0]->history_path();
}

bool Store::is_cached(const ManifestView& manifest, std::uint32_t index, const Strings& archs, std::string& path) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = key_of(manifest, blob, archs);
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

Entry Store::obtain(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    if (std::optional<Entry> found = find(manifest, index, archs)) return std::move(*found);
    return make(manifest, index, archs);
}

std::optional<Entry> Store::find(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = key_of(manifest, blob, archs);
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

Entry Store::make(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const EntryKey key = key_of(manifest, blob, archs);
    const auto caches = this->caches(manifest);
    ++m_counters.misses;
    const Strings mismatches = explain_mismatches(caches->packs(), m_places.library, manifest);
    try {
        if (m_jit.is_forbidden() && !m_config.has_remote) fail_frozen(blob, key, *caches->own());
        if (!m_jit.is_forbidden()) {
            for (const std::string& sentence : mismatches) say_once(sentence, sentence);
        }
        return *compile_somewhere(manifest, blob, key, true, *caches);
    } catch (const PermanentFailure&) {
        throw;
    } catch (const CompileError& e) {
        if (mismatches.empty()) throw;
        fail(std::string(e.what()) + "\n  " + join(mismatches, "\n  "), {e.blob(), e.log(), e.command()});
    }
}

std::optional<Entry> Store::fetch(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    if (!m_config.has_remote) return std::nullopt;
    const BlobRow blob = manifest.blob(index);
    return compile_somewhere(manifest, blob, key_of(manifest, blob, archs), false, *caches(manifest));
}

bool Store::goes_by_kernel(const ManifestView& manifest, std::uint32_t index) {
    if (!manifest.has_parts(index) || m_config.by_kernel == ByKernelChoice::never) return false;
    if (m_config.by_kernel == ByKernelChoice::always) return true;
    return caches(manifest)->own()->by_kernel(manifest.shelf(), manifest.blob(index).name).is_cheaper();
}

void Store::refuse_by_kernel(const ManifestView& manifest, std::uint32_t index) {
    caches(manifest)->own()->by_kernel(manifest.shelf(), manifest.blob(index).name).add("refused 0");
}

Store::Source Store::source_of(const ManifestView& manifest, const BlobRow& blob, Cache& cache) {
    check_source(blob);
    if (blob.source[0] == '/') return {m_places.roots.empty() ? "" : m_places.roots[0], blob.source, false};
    std::string root = root_of_blob(m_places.roots, m_places.library, manifest, blob);
    const std::string library = file_name_of(manifest.library());
    const std::string archive = archive_path(root, library);
    if (!is_file(root + "/" + blob.source) && is_file(archive)) {
        if (is_privileged()) check_way(blob, archive);
        // A bundle that was unpacked into a cache may have been removed in part, or torn by a power
        // cut. Later changes are detected at the compile, as in any bundle.
        const auto is_good = [&](const std::string& there) {
            return m_contents->find_fault(there, manifest, blob).empty();
        };
        root = m_archives->unpacked(archive, library, blob.source, cache, is_good);
    }
    return {root, root + "/" + blob.source, true};
}

void Store::check_source_of(const Source& source, const ManifestView& manifest, const BlobRow& blob) {
    const auto refuse = [&](const std::string& reason, const std::string& remedy) {
        fail("lazyck: cannot compile blob '" + visible(blob.name) + "': " + reason + "\n  " + remedy,
             {blob.name, "", ""});
    };
    if (!is_file(source.path))
        refuse("its source '" + source.path + "' is not there", LAZYCK_ENV_ROOT " names the library's bundle");
    if (is_privileged()) check_way(blob, source.path);
    const std::string fault = source.is_in_bundle ? m_contents->find_fault(source.root, manifest, blob) : "";
    if (!fault.empty()) {
        refuse("the bundle is not as it was when the library was built: " + fault,
               "the result would go into the cache under a key that it does not match; install the library again,"
               " or build it again with the change");
    }
}

std::string Store::preamble_key(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    return preamble_key(manifest, blob, archs, source_of(manifest, blob, *caches(manifest)->own()));
}

std::string Store::preamble_key(const ManifestView& manifest, const BlobRow& blob, const Strings& archs,
                                const Source& source) {
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

std::string Store::find_preamble(const std::string& key, const Cache& cache) {
    const std::string place = preamble_place(cache, key);
    if (key.empty() || !is_directory(place)) return "";
    open_trusted_directory(place, k_depth_of_preambles + 1);
    return place;
}

std::string Store::make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    const auto caches = this->caches(manifest);
    Cache& cache = *caches->own();
    const std::string key = m_config.has_preambles ? preamble_key(manifest, index, archs) : "";
    if (key.empty())
        return "its source begins with no includes or has debug information, or " LAZYCK_ENV_PREAMBLES " forbids it";
    cache.make_directories_for(key_of(manifest, blob, archs));
    const UniqueFd all = open_trusted_directory(cache.make_own_directory(k_preambles), k_depth_of_preambles);
    const std::string place = preamble_place(cache, key);
    // The lock is held until the preamble is made. Other processes compile without a preamble
    // meanwhile.
    const FileLock lock(cache.root() + "/.locks/preamble-" + key + ".lock");
    if (lock.state() != FileLock::State::held) return "another process makes it, or files cannot be locked here";
    const Source source = source_of(manifest, blob, cache);
    if (is_given_up(place)) return "it could not be made or used within the last day";
    if (!preamble_words(place, source.path).empty()) return "";
    check_source_of(source, manifest, blob);
    PreambleRequest request;
    request.recipe = manifest.recipe(blob.recipe);
    request.values.source = source.path;
    request.values.root = source.root;
    request.values.library = m_places.library;
    request.values.toolchain = find_toolchain(request.recipe);
    request.values.archs = archs;
    request.text = preamble_of(read_text(source.path));
    request.directory = place;
    const Guess guess = this->guess(manifest, cache.costs(key_of(manifest, blob, archs)));
    Subject subject = subject_of(manifest, blob, key_of(manifest, blob, archs).arch_label());
    subject.words = "the headers of " + visible(blob.name);
    const HeldSlot slot(*m_jobs);
    const CompileSlot shared(
        {cache.slots_dir(), m_config.jobs, memory_for(m_config, guess), patience(m_config, guess), subject});
    say(Level::info, "precompiling " + subject.words + ", which others include, too ...", {"preamble", subject});
    remove_tree(all.get(), key);
    if (mkdirat(all.get(), key.c_str(), 0700) != 0) return system_text(errno);
    std::string problem = rt::make_preamble(request);
    if (problem.empty() && source.is_in_bundle) problem = m_contents->find_change(source.root, manifest, blob);
    if (!problem.empty()) give_up_preamble(place);
    remove_unused_preambles(Directory::open(cache.root()));
    return problem;
}

bool Store::should_make_preamble(const ManifestView& manifest, std::uint32_t index, const Strings& archs) {
    const BlobRow blob = manifest.blob(index);
    // With a single job, the next call would wait for the preamble.
    if (!m_config.has_preambles || m_config.jobs < 2 || !m_config.launcher.empty() || m_jit.is_forbidden())
        return false;
    if (!manifest.has_slots() || !rt::has_preambles(manifest.recipe(blob.recipe))) return false;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (!m_considered.emplace(&manifest, blob.recipe).second) return false;
    }
    std::vector<std::uint32_t> alike;
    for (std::uint32_t i = 0; i < manifest.blob_count(); ++i) {
        if (i != index && manifest.blob(i).recipe == blob.recipe) alike.push_back(i);
    }
    if (alike.size() + 1 < k_least_sharing) return false;
    const std::string own = preamble_key(manifest, index, archs);
    const std::size_t step = std::max<std::size_t>(1, alike.size() / k_most_looked_at);
    std::size_t looked_at = 0, sharing = 0;
    for (std::size_t i = 0; i < alike.size(); i += step, ++looked_at)
        sharing += preamble_key(manifest, alike[i], archs) == own ? 1 : 0;
    return !own.empty() && sharing * alike.size() + looked_at >= k_least_sharing * looked_at;
}

// Compiles in the next place if a cache cannot be written.
std::optional<Entry> Store::compile_somewhere(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                              bool may_compile, Caches& caches) {
    bool was_cleaned = false, was_short_of_memory = false;
    std::string service_problem;
    while (true) {
        const std::shared_ptr<Cache> cache = m_may_stand_in ? caches.to_write() : caches.own();
        try {
            return compile(manifest, blob, key, may_compile, *cache, service_problem);
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

std::optional<Entry> Store::compile(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                                    bool may_compile, Cache& cache, std::string& service_problem) {
    cache.make_directories_for(key);
    const Strings symbols = manifest.symbols_of(blob);
    const std::string path = cache.entry_path(key);
    const Subject subject = subject_of(manifest, blob, key.arch_label());
    const Costs costs = cache.costs(key);
    const Guess guess = this->guess(manifest, costs);
    EntryLookup found;
    const auto look_up = [&] {
        found = look_up_entry(cache, key, symbols);
        found.entry.origin = "cache";
        return found.state == EntryState::ready;
    };
    Event event;
    event.library = subject.library;
    event.blob = subject.blob;
    event.arch = subject.arch;
    const double begin = now_seconds();
    const BlobLock lock(cache.lock_path(key), subject, patience(m_config, guess), look_up);
    tell_wait(event, "another process's compile", begin, cache);
    if (found.state == EntryState::ready || look_up()) return std::move(found.entry);
    if (found.state == EntryState::damaged) {
        ++m_counters.damaged;
        quarantine(path, found.problem, subject);
    }
    const double remote_begin = now_seconds();
    const std::unique_ptr<RemoteEntry> remote = ask_remotes(subject, guess, key, may_compile, cache);
    std::string origin;
    UniqueFd fetched = remote ? remote->fetch(symbols) : UniqueFd();
    if (fetched) {
        origin = "remote " + remote->label();
    } else if (may_compile && !m_jit.is_forbidden() && !m_config.compile_service.empty()) {
        fetched = compile_there(manifest, blob, key, guess, cache, origin, service_problem);
        if (fetched && remote) remote->made(path);
    }
    if (fetched) {
        tell_wait(event, origin.c_str(), remote_begin, cache);
        found = read_entry(std::move(fetched), cache, key, symbols);
        if (found.state != EntryState::ready)
            fail("lazyck: '" + path + "' was fetched and is damaged: " + found.problem);
        found.entry.origin = origin;
        bound(cache);
        return std::move(found.entry);
    }
    if (remote) tell_wait(event, "the remote caches", remote_begin, cache);
    if (!may_compile) return std::nullopt;
    if (m_jit.is_forbidden()) fail_frozen(blob, key, cache);
    CompileRequest request;
    request.subject = subject;
    request.recipe = manifest.recipe(blob.recipe);
    const Source source = source_of(manifest, blob, cache);
    check_source_of(source, manifest, blob);
    request.root = source.root;
    request.bundle = source.is_in_bundle ? manifest.contents() : "";
    request.source = source.is_in_bundle ? std::string(LAZYCK_BUNDLE_LINK) + "/" + blob.source : source.path;
    request.name = hash(key.library + '\n' + blob.name).hex().substr(0, 16);
    request.library = m_places.library;
    request.kernel = kernel_of(blob);
    request.has_other_way = !manifest.has_slots() && request.kernel == host_unit_of(blob);
    request.archs = key.archs;
    request.launcher = m_config.launcher;
    request.symbols = symbols;
    request.private_names = manifest.private_names();
    const long needed = memory_for(m_config, guess);
    Cost cost;
    request.timeout_seconds = m_config.compile_timeout;
    request.expected_seconds = guess.blob.seconds;
    request.told_cost = [&](const std::string& said) {
        if (!manifest.has_slots()) cache.by_kernel(key.library, host_unit_of(blob)).add(said);
    };
    std::string preamble;
    // A launcher finds its cached objects by the command, so the command is not changed for it.
    if (m_config.has_preambles && m_config.launcher.empty() && request.kernel.empty()) {
        preamble = find_preamble(preamble_key(manifest, blob, key.archs, source), cache);
        if (!preamble.empty()) request.faster = preamble_words(preamble, source.path);
    }
    bool is_preamble_refused = false;
    request.refused_faster = [&] { is_preamble_refused = true; };
    request.find_change = [&]() -> std::string {
        return source.is_in_bundle ? m_contents->find_change(source.root, manifest, blob) : "";
    };
    std::unique_ptr<RemoteEntry> remote_text;
    if (m_config.has_text_keys) {
        request.find_text = [&](const EntryKey& text) {
            remote_text.reset();
            UniqueFd entry = find_text_somewhere(manifest, text, symbols);
            if (entry) return entry;
            remote_text = ask_remotes(subject, guess, text, may_compile, cache);
            return remote_text ? remote_text->fetch(symbols) : UniqueFd();
        };
        const double expected = guess.blob.seconds > 0 ? guess.blob.seconds : guess.largest.seconds;
        if (m_config.has_all_text_keys || expected <= 0 || expected >= k_least_worth_a_text)
            request.text = words_for_hip("hip-text", manifest, blob, request.source);
    }
    const double slot_begin = now_seconds();
    const std::string host_unit = host_unit_of(blob);
    HeldSlot slot(*m_jobs, host_unit.empty() ? blob.name : host_unit);
    CompileSlot shared({cache.slots_dir(), m_config.jobs, needed, patience(m_config, guess), subject});
    tell_wait(event, "a compile slot", slot_begin, cache);
    if (m_config.launcher.empty() && shared.busy() + 2 + m_announced <= m_config.jobs) {
        request.beside = words_for_hip("hip-object", manifest, blob, request.source);
        if (!request.beside.empty() && !slot.takes_one_more()) request.beside.clear();
    }
    request.started = [&](pid_t compiler) { shared.started(compiler); };
    request.ended = [&](const Outcome& outcome) { cost.peak_kib = std::max(cost.peak_kib, outcome.peak_rss_kib); };
    const auto start = std::chrono::steady_clock::now();
    const auto spent_so_far = [&] { return std::chrono::steady_clock::now() - start; };
    event.kind = "compile";
    event.expected = guess.blob.seconds;
    Span span(m_events, event, cache.history_path());
    Made made;
    try {
        made = compile_entry(request, cache, key);
    } catch (const std::exception& e) {
        ++m_counters.failures;
        span.event().what = first_line_of(e);
        span.event().peak_kib = cost.peak_kib;
        // The next attempt reserves more memory.
        if (dynamic_cast<const OutOfMemory*>(&e))
            costs.add({guess.blob.seconds, std::max(2 * needed, cost.peak_kib)}, true);
        throw;
    }
    if (is_preamble_refused) give_up_preamble(preamble);
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(spent_so_far());
    if (made.is_taken_over) {
        ++m_counters.hits;
        span.event().kind = "wait";
        span.event().what = "its text, which has an entry already";
    } else {
        cost.seconds = std::chrono::duration<double>(spent).count();
        costs.add(cost);
        m_counters.compile_ns += static_cast<std::uint64_t>(spent.count());
        ++m_counters.compiles;
        span.event().peak_kib = cost.peak_kib;
    }
    // The entry is read through its descriptor, since another process may have emptied the cache
    // meanwhile.
    found = read_entry(std::move(made.entry), cache, key, symbols);
    if (found.state != EntryState::ready) {
        span.event().what = found.problem;
        fail("lazyck: the cache entry '" + path + "' was compiled and is damaged (" + found.problem +
             "); is the file system broken?");
    }
    span.event().size = found.entry.file->size();
    span.succeed();
    found.entry.origin = made.is_taken_over ? "text" : "compiled";
    found.entry.seconds = cost.seconds;
    found.entry.peak_kib = cost.peak_kib;
    if (remote) remote->made(path);
    if (remote_text && !made.is_taken_over) remote_text->made(path);
    bound(cache);
    return std::move(found.entry);
}

RemoteRequest Store::remote_request(const Subject& subject, const Guess& guess) const {
    RemoteRequest request;
    request.helper = m_config.remote_helper;
    request.subject = subject;
    request.longest_wait = patience(m_config, guess);
    return request;
}

UniqueFd Store::compile_there(const ManifestView& manifest, const BlobRow& blob, const EntryKey& key,
                              const Guess& guess, Cache& cache, std::string& origin, std::string& problem) {
    RemoteRequest request = remote_request(subject_of(manifest, blob, key.arch_label()), guess);
    request.to_compile = {"--from", m_places.library, "--expect", decimal(guess.blob.seconds, 0)};
    if (manifest.has_arch_flags(blob.recipe)) {
        for (const std::string& arch : key.archs) request.to_compile.insert(request.to_compile.end(), {"--arch", arch});
    }
    request.to_compile.insert(request.to_compile.end(), {"--", blob.name});
    RemoteEntry service(request, cache, key, m_counters.remote);
    UniqueFd made = service.fetch(manifest.symbols_of(blob));
    origin = "remote " + service.label();
    problem = made ? "" : service.problem();
    return made;
}

std::unique_ptr<RemoteEntry> Store::ask_remotes(const Subject& subject, const Guess& guess, const EntryKey& key,
                                                bool may_compile, Cache& cache) {
    if (!m_config.has_remote) return nullptr;
    RemoteRequest request = remote_request(subject, guess);
    request.may_compile = may_compile && !m_jit.is_forbidden();
    return std::make_unique<RemoteEntry>(request, cache, key, m_counters.remote);
}

UniqueFd Store::find_text_somewhere(const ManifestView& manifest, const EntryKey& text, const Strings& symbols) {
    UniqueFd found;
    caches(manifest)->search([&](Cache& cache) {
        try {
            found = find_text(cache, text, symbols);
        } catch (const CompileError& e) {
            say_once(cache.root() + " texts", e.what());
        }
        return static_cast<bool>(found);
    });
    return found;
}

void Store::tell_wait(Event event, const char* what, double begin, const Cache& cache) {
    event.kind = "wait";
    event.what = what;
    event.start = begin;
    event.seconds = now_seconds() - begin;
    // An implausible time, from a clock that jumped, is not reported, nor is a wait too short to
    // notice.
    if (event.seconds >= k_least_wait && event.seconds < k_longest_wait) m_events.tell(event, cache.history_path());
}

// Keeps the cache below its largest size, by an occasional trim. The caller has its entry, so a
// failure here is only reported.
void Store::bound(Cache& cache) {
    if (m_config.cache_max_kib <= 0) return;
    try {
        trim_now_and_then(cache.root(), static_cast<std::uint64_t>(m_config.cache_max_kib) * 1024);
    } catch (const std::exception& e) {
        say(Level::warn, std::string("cannot trim the cache: ") + e.what());
    }
}

void Store::fail_frozen(const BlobRow& blob, const EntryKey& key, Cache& cache) const {
    const EntryLookup found = look_up_entry(cache, key, {});
    Strings command = {"lazyck", "prebuild", "build", "--manifest", m_places.library};
    const bool is_for_gpus = !key.archs.empty() && key.archs != Strings{machine_name(key.machine)};
    // --gpu-archs would make an entry for each of several archs; LAZYCK_ARCHS makes one for all.
    const bool is_joint = is_for_gpus && key.archs.size() > 1;
    const std::string setting = is_joint ? LAZYCK_ENV_ARCHS "=" + shell_quote(join(key.archs, ";")) + " " : "";
    if (is_for_gpus && !is_joint) command.insert(command.end(), {"--gpu-archs", key.archs[0]});
    command.emplace_back(blob.name);
    const std::string state = found.state == EntryState::damaged ? "is damaged (" + found.problem + ")" : "is missing";
    fail("lazyck: blob '" + visible(blob.name) + "' for " + key.arch_label() + " " + state + " in the cache '" +
             cache.root() + (m_config.has_remote ? "' and in the remote caches, and " : "', and ") +
             m_jit.forbidden_by() + " forbids compiling it\n  looked for: " + cache.entry_path(key) +
             "\n  to build it: " + LAZYCK_ENV_CACHE_DIR "=" + shell_quote(cache.root()) + " " + setting +
             shell_join(command),
         {blob.name, "", ""});
}

}  // namespace lazyck::rt
