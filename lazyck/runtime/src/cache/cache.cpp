// <root>/v1/<library>/<archs>-<toolchain>[-<salt>]/<blob>-<digest>.so and .log
// <root>/.locks, <root>/.staging
// <root>/.costs/<library> (see costs.h), <root>/.slots/<host>/ (see permits.h)
// Names are readable. What they leave out of a key is in the entry's trailer (see entry.cpp).
#include "cache/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/failure.h"
#include "lazyck_abi.h"
#include "platform/elf_view.h"
#include "platform/environment.h"
#include "platform/staging.h"

namespace lazyck::rt {

Digest EntryKey::id() const {
    std::string all;
    const auto add = [&](std::string_view part) {
        all += std::to_string(part.size());
        all += ':';
        all += part;
    };
    all.reserve(256);
    for (const std::string* part : {&library, &blob, &digest}) add(*part);
    add(arch_label());
    for (const std::string* part : {&toolchain_id, &salt}) add(*part);
    add(machine_name(machine));
    return hash(all);
}

std::string EntryKey::arch_label() const { return archs.empty() ? "any" : join(archs, "+"); }

std::string EntryKey::archs_in_name() const {
    std::string archs = arch_label();
    std::replace(archs.begin(), archs.end(), '-', '_');
    return safe_name(archs);
}

std::string Cache::leaf_name(const EntryKey& key) {
    std::string leaf = key.archs_in_name() + "-" + safe_name(key.toolchain_id);
    if (!key.salt.empty()) leaf += "-" + hash(key.salt).hex().substr(0, LAZYCK_SALT_DIGITS);
    return leaf;
}

Strings Cache::directories(const EntryKey& key) const {
    const std::string version = m_root + "/" LAZYCK_CACHE_VERSION;
    const std::string library = version + "/" + safe_name(key.library);
    return {m_root, version, library, library + "/" + leaf_name(key)};
}

std::string Cache::entry_name(const EntryKey& key) {
    return safe_name(key.library) + "/" + leaf_name(key) + "/" + file_name(key);
}

Cache::Leaf& Cache::leaf_of(const EntryKey& key) {
    const auto is_it = [&](const Leaf& leaf) {
        return leaf.key.library == key.library && leaf.key.toolchain_id == key.toolchain_id &&
               leaf.key.salt == key.salt && leaf.key.archs == key.archs;
    };
    const auto found = std::find_if(m_leaves.begin(), m_leaves.end(), is_it);
    if (found != m_leaves.end()) return *found;
    m_leaves.push_back({key, directories(key).back()});
    return m_leaves.back();
}

std::string Cache::file_name(const EntryKey& key) {
    return safe_name(key.blob) + "-" + safe_name(std::string_view(key.digest).substr(0, LAZYCK_DIGEST_DIGITS)) + ".so";
}

std::string Cache::entry_path(const EntryKey& key) {
    const std::lock_guard<std::mutex> guard(m_mutex);
    return leaf_of(key).path + "/" + file_name(key);
}

// A directory that was found good before is recognized by device and inode. It is still good if it
// is ours and others cannot write to it, whatever became of the directories on the way to it.
UniqueFd Cache::open_directory(const EntryKey& key) {
    Leaf known;
    {
        const std::lock_guard<std::mutex> guard(m_mutex);
        known = leaf_of(key);
    }
    struct stat st;
    if (known.inode != 0) {
        UniqueFd fd = open_file(known.path, O_PATH | O_DIRECTORY | O_NOFOLLOW);
        const bool is_same = fd && fstat(fd.get(), &st) == 0 && st.st_dev == known.device && st.st_ino == known.inode;
        if (is_same && stranger_of(st).empty()) return fd;
    }
    UniqueFd fd = open_trusted(known.path, LAZYCK_DEPTH_OF_ENTRIES - 1, O_PATH | O_DIRECTORY);
    if (!fd || fstat(fd.get(), &st) != 0) return UniqueFd();
    const std::lock_guard<std::mutex> guard(m_mutex);
    Leaf& leaf = leaf_of(key);
    leaf.device = st.st_dev;
    leaf.inode = st.st_ino;
    return fd;
}

bool Cache::has_of_other_compiler(const EntryKey& key) const {
    const Strings all = directories(key);
    const std::string& library = all[all.size() - 2];
    const std::string lead = key.archs_in_name() + "-", own = leaf_name(key), file = file_name(key);
    const UniqueFd leaves = open_file(library, O_RDONLY | O_DIRECTORY);
    const Strings names = leaves ? names_in(leaves.get()) : Strings();
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return name != own && name.compare(0, lead.size(), lead) == 0 && is_file(library + "/" + name + "/" + file);
    });
}

std::string Cache::note_path(const EntryKey& key) {
    const std::string entry = entry_path(key);
    if (!m_is_tier) return entry + ".seen";
    return m_notes.empty() ? "" : m_notes + "/" LAZYCK_CACHE_SEEN "/" + hash(entry).hex();
}

std::string Cache::history_path() const { return m_root + "/" LAZYCK_CACHE_HISTORY "/" + safe_name(host_name()); }

std::string Cache::log_path(const EntryKey& key) {
    const std::string entry = entry_path(key);
    return entry.substr(0, entry.size() - 3) + ".log";
}

std::string Cache::lock_path(const EntryKey& key) const {
    return m_root + "/" LAZYCK_CACHE_LOCKS "/" + safe_name(key.blob) + "-" + key.id().hex() + ".lock";
}

std::string Cache::staging_prefix(const EntryKey& key) const {
    return owned_prefix(m_root + "/" LAZYCK_CACHE_STAGING "/" + safe_name(key.blob));
}

Costs Cache::costs(const EntryKey& key) const {
    return {m_root + "/" LAZYCK_CACHE_COSTS "/" + safe_name(key.library), safe_name(key.blob), key.archs_in_name()};
}

ByKernel Cache::by_kernel(const std::string& library, const std::string& blob) const {
    return {m_root + "/" LAZYCK_CACHE_COSTS "/" + safe_name(library) + ".by-kernel", safe_name(blob)};
}

std::string Cache::permits_dir() const { return m_root + "/" LAZYCK_CACHE_SLOTS "/" + safe_name(host_name()); }

void Cache::make_directories_for(const EntryKey& key) {
    const Strings all = directories(key);
    const std::string locks = m_root + "/" LAZYCK_CACHE_LOCKS, staging = m_root + "/" LAZYCK_CACHE_STAGING,
                      slots = m_root + "/" LAZYCK_CACHE_SLOTS;
    for (const std::string& path : all) prepare_cache_root(path);
    for (const std::string& path :
         {locks, staging, m_root + "/" LAZYCK_CACHE_COSTS, m_root + "/" LAZYCK_CACHE_HISTORY, slots, permits_dir()}) {
        prepare_cache_root(path);
    }
    // An existing directory may be on a read-only file system, or belong to root.
    for (const std::string& path : {all.back(), locks, staging}) {
        if (faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
            fail_system("cannot write to the cache directory '" + path + "'", errno);
    }
    if (!m_is_cleaned.exchange(true)) remove_left_over(open_trusted_directory(staging, 1).get());
}

std::string Cache::make_own_directory(const char* name) {
    const std::string made = m_root + "/" + name;
    for (const std::string& path : {m_root, m_root + "/" LAZYCK_CACHE_LOCKS, m_root + "/" LAZYCK_CACHE_STAGING, made})
        prepare_cache_root(path);
    return made;
}

void publish(int directory, const char* name, const std::string& path) {
    const UniqueFd to = open_trusted_directory(directory_of(path), LAZYCK_DEPTH_OF_ENTRIES - 1);
    if (renameat(directory, name, to.get(), file_name_of(path).c_str()) == 0) return;
    fail_system("cannot publish '" + path + "'", errno);
}

void prepare_cache_root(const std::string& path) {
    if (const int error = make_directories(path)) {
        fail_system("cannot make the cache directory '" + path + "' (" LAZYCK_ENV_CACHE_DIR " names another)", error);
    }
    if (!open_trusted_at(AT_FDCWD, path, path, O_PATH)) fail_system("the cache directory '" + path + "'", errno);
}

}  // namespace lazyck::rt
