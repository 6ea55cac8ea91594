#include "store/turn.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/files.h"
#include "platform/messages.h"

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

Turn::Turn(const Missing& missing, double patience, Events& events)
    : m_missing(missing),
      m_lock(missing.cache.lock_path(missing.key), missing.subject, patience, [this] { return look_up(); }) {
    tell_wait(events, missing, "another process's compile", m_begin);
}

bool Turn::look_up() {
    m_found = look_up_entry(m_missing.cache, m_missing.key, m_missing.symbols);
    m_found.entry.origin = "cache";
    return m_found.state == EntryState::ready;
}

std::optional<Entry> Turn::look_up_again(Counters& counters) {
    if (m_found.state == EntryState::ready || look_up()) return std::move(m_found.entry);
    if (m_found.state == EntryState::damaged) {
        ++counters.damaged;
        quarantine(m_missing.path, m_found.problem, m_missing.subject);
    }
    return std::nullopt;
}

}  // namespace lazyck::rt
