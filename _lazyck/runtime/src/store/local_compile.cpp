#include "store/local_compile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failure.h"
#include "base/hash.h"
#include "lazyck_abi.h"
#include "store/preambles.h"

namespace lazyck::rt {

namespace {

constexpr double k_least_worth_a_text = 4;  // seconds of a compile; computing the text takes half a second

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

}  // namespace

Entry LocalCompile::run() {
    describe();
    use_preamble();
    ask_for_text();
    take_permits();
    compile();
    // The entry is read through its descriptor, since another process may have emptied the cache
    // meanwhile.
    EntryLookup found = read_entry(std::move(m_made.entry), m_missing.cache, m_missing.key, m_missing.symbols);
    if (found.state != EntryState::ready) {
        m_span->event().what = found.problem;
        fail("lazyck: the cache entry '" + m_missing.path + "' was compiled and is damaged (" + found.problem +
             "); is the file system broken?");
    }
    m_span->event().size = found.entry.file->size();
    m_span->succeed();
    found.entry.origin = m_made.is_taken_over ? "text" : "compiled";
    found.entry.seconds = m_cost.seconds;
    found.entry.peak_kib = m_cost.peak_kib;
    return std::move(found.entry);
}

void LocalCompile::send_text() {
    if (m_remote_text && !m_made.is_taken_over) m_remote_text->made(m_missing.path);
}

// Finds the source, and describes the plain compile.
void LocalCompile::describe() {
    const ManifestView& manifest = m_missing.manifest;
    const BlobRow& blob = m_missing.blob;
    const EntryKey& key = m_missing.key;
    m_request.subject = m_missing.subject;
    m_request.recipe = manifest.recipe(blob.recipe);
    m_source = m_shop.sources.find(manifest, blob, m_missing.cache);
    m_shop.sources.check(m_source, manifest, blob);
    RecipeValues& values = m_request.values;
    values.root = m_source.root;
    m_request.bundle = m_source.is_in_bundle ? manifest.contents() : "";
    values.source = m_source.is_in_bundle ? std::string(LAZYCK_BUNDLE_LINK) + "/" + blob.source : m_source.path;
    values.name = hash(key.library + '\n' + blob.name).hex().substr(0, 16);
    values.library = m_shop.places.library;
    values.kernel = kernel_of(blob);
    m_request.has_other_way = !manifest.has_slots() && values.kernel == host_unit_of(blob);
    values.archs = key.archs;
    values.launcher = m_shop.config.launcher;
    m_request.symbols = m_missing.symbols;
    m_request.private_names = manifest.private_names();
    m_request.timeout_seconds = m_shop.config.compile_timeout;
    m_request.expected_seconds = m_missing.guess.blob.seconds;
    m_request.told_cost = [&](const std::string& said) {
        if (!manifest.has_slots()) m_missing.cache.by_kernel(key.library, host_unit_of(blob)).add(said);
    };
    m_request.find_change = [&] { return m_shop.sources.find_change(m_source, manifest, blob); };
    m_request.started = [this](pid_t compiler) { m_host_permit->started(compiler); };
    m_request.ended = [this](const Outcome& outcome) {
        m_cost.peak_kib = std::max(m_cost.peak_kib, outcome.peak_rss_kib);
    };
}

// A launcher finds its cached objects by the command, so the command is not changed for it.
void LocalCompile::use_preamble() {
    if (!m_shop.config.has_preambles || !m_shop.config.launcher.empty() || !m_request.values.kernel.empty()) return;
    m_preamble = Preambles::find(m_missing, m_source);
    if (!m_preamble.empty()) m_request.faster = preamble_words(m_preamble, m_source.path);
    m_request.refused_faster = [this] { m_is_preamble_refused = true; };
}

void LocalCompile::ask_for_text() {
    if (!m_shop.config.has_text_keys) return;
    m_request.find_text = [this](const EntryKey& text) {
        m_remote_text.reset();
        UniqueFd entry = m_shop.lookup.find_text(m_missing.manifest, text, m_missing.symbols);
        if (entry) return entry;
        m_remote_text = ask_remotes(m_missing, text, true);
        return m_remote_text ? m_remote_text->fetch(m_missing.symbols) : UniqueFd();
    };
    const Guess& guess = m_missing.guess;
    const double expected = guess.blob.seconds > 0 ? guess.blob.seconds : guess.largest.seconds;
    if (m_shop.config.has_all_text_keys || expected <= 0 || expected >= k_least_worth_a_text)
        m_request.text = words_for_hip("hip-text", m_missing.manifest, m_missing.blob, m_request.values.source);
}

// Takes one permit of this process and one of the host. If others are left, a HIP blob takes a
// second one of the process, to do two things at the same time.
void LocalCompile::take_permits() {
    const Config& config = m_shop.config;
    const double begin = now_seconds();
    const std::string host_unit = host_unit_of(m_missing.blob);
    m_permit.emplace(m_shop.permits, host_unit.empty() ? m_missing.blob.name : host_unit);
    m_host_permit.emplace(PermitRequest{m_missing.cache.permits_dir(), config.jobs, memory_for(config, m_missing.guess),
                                        patience(config, m_missing.guess), m_missing.subject});
    m_missing.tell_wait("a compile slot", begin);
    if (!config.launcher.empty() || m_host_permit->busy() + 2 + m_shop.permits.announced() > config.jobs) return;
    m_request.beside = words_for_hip("hip-object", m_missing.manifest, m_missing.blob, m_request.values.source);
    if (!m_request.beside.empty() && !m_permit->takes_one_more()) m_request.beside.clear();
}

void LocalCompile::compile() {
    const auto start = std::chrono::steady_clock::now();
    Event event = m_missing.event("compile");
    event.expected = m_missing.guess.blob.seconds;
    m_span.emplace(m_shop.events, event, m_missing.cache.history_path());
    try {
        m_made = compile_entry(m_request, m_missing.cache, m_missing.key);
    } catch (const std::exception& e) {
        ++m_shop.counters.failures;
        m_span->event().what = first_line_of(e);
        m_span->event().peak_kib = m_cost.peak_kib;
        // The next attempt reserves more memory.
        const long needed = memory_for(m_shop.config, m_missing.guess);
        if (dynamic_cast<const OutOfMemory*>(&e))
            m_missing.costs.add({m_missing.guess.blob.seconds, std::max(2 * needed, m_cost.peak_kib)}, true);
        throw;
    }
    if (m_is_preamble_refused) give_up_preamble(m_preamble);
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start);
    if (m_made.is_taken_over) {
        ++m_shop.counters.hits;
        m_span->event().kind = "wait";
        m_span->event().what = "its text, which has an entry already";
        return;
    }
    m_cost.seconds = std::chrono::duration<double>(spent).count();
    m_missing.costs.add(m_cost);
    m_shop.counters.compile_ns += static_cast<std::uint64_t>(spent.count());
    ++m_shop.counters.compiles;
    m_span->event().peak_kib = m_cost.peak_kib;
}

}  // namespace lazyck::rt
