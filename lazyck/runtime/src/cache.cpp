// <root>/v1/<library>/<archs>-<toolchain>[-<salt>]/<blob>-<digest>.so and .log; <root>/.locks and <root>/.staging.
// Names are readable; what they leave out of a key is in the entry's trailer (see entry.cpp).
#include "cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "failure.h"
#include "files.h"
#include "lazyck_abi.h"
#include "machine.h"

namespace lazyck::rt {

namespace {

constexpr std::size_t k_digest_digits = 16;
constexpr std::size_t k_salt_digits = 12;

// Whether `path` is there. Throws if it is anything but a directory that only we (or root) can write.
bool check_directory(const std::string& path) {
    struct stat st;
    if (lstat(path.c_str(), &st) == 0) {
        check_trusted(path, st);
        return true;
    }
    if (errno == ENOENT) return false;
    fail("lazyck: refusing the cache directory '" + path + "': " + system_text(errno) +
         "; set " LAZYCK_ENV_CACHE_DIR " to a directory of your own");
}

void make_private(const std::string& path) {
    if (const int error = make_directories(path)) {
        fail_system("cannot make the cache directory '" + path + "' (" LAZYCK_ENV_CACHE_DIR " names another)", error);
    }
    if (!check_directory(path)) fail_system("the cache directory '" + path + "'", ENOENT);
}

}  // namespace

Digest EntryKey::id() const {
    std::string all;
    const Strings parts = {library, blob, digest, arch_label(), toolchain_id, salt, machine_name(machine)};
    for (const std::string& part : parts) all += std::to_string(part.size()) + ":" + part;
    return hash(all);
}

std::string EntryKey::arch_label() const { return archs.empty() ? "any" : join(archs, "+"); }

Strings Cache::directories(const EntryKey& key) const {
    // '-' ends the archs in the name, so it cannot stand in one of them (gfx9-4-generic).
    std::string archs = key.arch_label();
    std::replace(archs.begin(), archs.end(), '-', '_');
    std::string leaf = safe_name(archs) + "-" + safe_name(key.toolchain_id);
    if (!key.salt.empty()) leaf += "-" + hash(key.salt).hex().substr(0, k_salt_digits);
    const std::string version = m_root + "/" LAZYCK_CACHE_VERSION;
    const std::string library = version + "/" + safe_name(key.library);
    return {m_root, version, library, library + "/" + leaf};
}

std::string Cache::entry_path(const EntryKey& key) const {
    return directories(key).back() + "/" + safe_name(key.blob) + "-" +
           safe_name(key.digest.substr(0, k_digest_digits)) + ".so";
}

std::string Cache::log_path(const EntryKey& key) const {
    const std::string entry = entry_path(key);
    return entry.substr(0, entry.size() - 3) + ".log";
}

std::string Cache::lock_path(const EntryKey& key) const {
    return m_root + "/.locks/" + safe_name(key.blob) + "-" + key.id().hex() + ".lock";
}

std::string Cache::staging_prefix(const EntryKey& key) const {
    return m_root + "/.staging/" + safe_name(key.blob) + "-" + std::to_string(getpid()) + "-";
}

bool Cache::is_trusted(const std::string& path) {
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        if (m_trusted.count(path) != 0) return true;
    }
    if (!check_directory(path)) return false;
    const std::lock_guard<std::mutex> guard(m_mutex);
    m_trusted.insert(path);
    return true;
}

bool Cache::find_directory(const EntryKey& key) {
    for (const std::string& path : directories(key)) {
        if (!is_trusted(path)) return false;
    }
    return true;
}

void Cache::make_directories_for(const EntryKey& key) {
    for (const std::string& path : directories(key)) make_private(path);
    make_private(m_root + "/.locks");
    make_private(m_root + "/.staging");
}

void prepare_cache_root(const std::string& path) { make_private(path); }

}  // namespace lazyck::rt
