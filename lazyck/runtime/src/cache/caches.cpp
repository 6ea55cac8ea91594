// Where the user's own cache cannot be written (read-only, full, no home), a call must still work.
// The next ones are $XDG_RUNTIME_DIR/<name>, which later processes find too, and then a new
// directory in $TMPDIR, /tmp, /var/tmp or /dev/shm. That directory's name is unpredictable, so no
// other user can have prepared it.
#include "cache/caches.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "lazyck_abi.h"
#include "platform/config.h"
#include "platform/messages.h"

namespace lazyck::rt {

namespace {

constexpr char k_remedy[] = "set " LAZYCK_ENV_CACHE_DIR " to a directory that can be written";

// Returns the cache of the user's session, or nullptr if there is none or others could write there.
std::shared_ptr<Cache> session_cache(const std::string& name) {
    const std::string session = environment("XDG_RUNTIME_DIR");
    if (session.empty() || session[0] != '/') return nullptr;
    const std::string root = session + "/" + name;
    try {
        if (!open_trusted_at(AT_FDCWD, session, session, O_PATH)) return nullptr;
        prepare_cache_root(root);
    } catch (const CompileError&) {
        return nullptr;
    }
    return std::make_shared<Cache>(root);
}

}  // namespace

std::string first_line_of(const std::exception& e) {
    const std::string text = e.what(), line = text.substr(0, text.find('\n'));
    return line.rfind("lazyck: ", 0) == 0 ? line.substr(8) : line;
}

Caches::Caches(const std::string& given, const std::string& parent, std::string name, const Strings& tiers,
               std::function<std::vector<Pack>()> find_packs)
    : m_name(std::move(name)), m_find_packs(std::move(find_packs)), m_directories(m_name) {
    std::string root = given;
    if (root.empty()) {
        try {
            root = default_cache_dir(parent, m_name);
        } catch (const CompileError& e) {
            m_no_own = first_line_of(e);
        }
    }
    if (m_no_own.empty()) {
        m_own = std::make_shared<Cache>(root);
        m_used = {m_own};
    }
    for (const std::string& tier : tiers) {
        if (tier != root) m_tiers.push_back(std::make_shared<Cache>(tier, root));
    }
}

std::shared_ptr<Cache> Caches::own() {
    if (!m_own) fail("lazyck: " + m_no_own);
    return m_own;
}

bool Caches::search(const std::function<bool(Cache&)>& look) {
    const auto is_found = [&](const std::shared_ptr<Cache>& cache) { return look(*cache); };
    const auto first = to_read();
    if (std::any_of(first.begin(), first.end(), is_found)) return true;
    packs();
    return std::any_of(m_packed.begin(), m_packed.end(), is_found);
}

const std::vector<Pack>& Caches::packs() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_packs) return *m_packs;
    m_packs = m_find_packs();
    for (const Pack& pack : *m_packs) {
        if (pack.is_for_this_build) m_packed.push_back(std::make_shared<Cache>(pack.root, m_own ? m_own->root() : ""));
    }
    return *m_packs;
}

std::vector<std::shared_ptr<Cache>> Caches::to_read() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    std::vector<std::shared_ptr<Cache>> all = m_used;
    // A private cache may hold what was compiled before the user's own was tried again.
    for (const auto& cache : m_private) {
        if (std::find(all.begin(), all.end(), cache) == all.end()) all.push_back(cache);
    }
    all.insert(all.end(), m_tiers.begin(), m_tiers.end());
    return all;
}

std::shared_ptr<Cache> Caches::to_write() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (!m_used.empty()) return m_used.back();
    const auto next = next_stand_in();
    if (!next) {
        begin_again();
        fail("lazyck: " + m_no_own + ", and there is no other place for compiled blobs; " + k_remedy);
    }
    m_used.push_back(next);
    log_message(Level::warn, m_no_own + "; compiled blobs go to '" + next->root() + "' for now");
    return next;
}

void Caches::pass_over(const std::shared_ptr<Cache>& cache, const SystemFailure& reason) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    if (m_used.empty() || m_used.back() != cache) return;  // another thread was first
    const auto next = next_stand_in();
    if (!next) {
        begin_again();
        fail(std::string(reason.what()) + "\n  no other place can be written either: " + k_remedy,
             {reason.blob(), reason.log(), reason.command()});
    }
    m_used.push_back(next);
    const bool is_private = std::find(m_private.begin(), m_private.end(), next) != m_private.end();
    log_message(Level::warn, "cannot write to the cache '" + cache->root() + "' (" + system_text(reason.error()) +
                                 "); compiled blobs go to '" + next->root() + "' instead, until this process ends" +
                                 (is_private ? ", which others do not see" : "") + "; to keep them, fix that or " +
                                 k_remedy);
}

void Caches::retry_own_cache() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    begin_again();
}

void Caches::close() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_directories.close();
}

void Caches::hold() {
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_directories.hold();
}

void Caches::begin_again() {
    m_used.clear();
    if (m_own) m_used.push_back(m_own);
    m_next = 0;
}

std::shared_ptr<Cache> Caches::next_stand_in() {
    const Strings parents = PrivateDirectories::parents();
    if (m_next == 0) {
        ++m_next;
        if (const auto session = session_cache(m_name)) return session;
    }
    while (m_next <= parents.size()) {
        const std::string& parent = parents[m_next - 1];
        ++m_next;
        if (m_next > 2 && parent == parents[0]) continue;
        const std::string root = m_directories.below(parent);
        if (root.empty()) continue;
        for (const auto& cache : m_private) {
            if (cache->root() == root) return cache;
        }
        return m_private.emplace_back(std::make_shared<Cache>(root));
    }
    return nullptr;
}

}  // namespace lazyck::rt
