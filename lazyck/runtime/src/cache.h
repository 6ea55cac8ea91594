// Where entries lie, and whether the place can be trusted.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "by_kernel.h"
#include "costs.h"
#include "files.h"
#include "hash.h"
#include "text.h"

namespace lazyck::rt {

// What an entry is looked up by; everything that changes the compiled code is in here.
struct EntryKey {
    std::string library;
    std::string blob;
    std::string digest;  // of all that the compiler reads, fixed when the library was built
    Strings archs;       // for a host blob its machine
    std::string toolchain_id;
    std::string salt;
    std::uint16_t machine = 0;
    bool is_text = false;  // of the text that entries are made of (see texts.h); no part of the id

    // All of the above, for the entry's own record of what it is.
    Digest id() const;
    // "gfx942+gfx950"
    std::string arch_label() const;
    // The same as a file name has it: '-' ends it there, so none stands in it (gfx9-4-generic).
    std::string archs_in_name() const;
};

// How many directories there are from the root to an entry, with the root.
constexpr unsigned k_depth_of_entries = 4;
// The same to a directory in .staging.
constexpr unsigned k_depth_of_staging = 2;

class Cache {
 public:
    explicit Cache(std::string root) : m_root(std::move(root)) {}
    // A tier: another cache, which is only read. What is known of its entries is kept below the root `notes` ("": not
    // at all).
    static std::shared_ptr<Cache> tier(std::string root, std::string notes);

    const std::string& root() const { return m_root; }
    std::string entry_path(const EntryKey& key);
    // The same below the directory of this version's entries, which other caches have it under too.
    static std::string entry_name(const EntryKey& key);
    // Of what a look at the entry found; "": that is not kept.
    std::string note_path(const EntryKey& key);
    // The directory of the entry, opened to look into it, as `open_trusted` opens one: by its path, and every directory
    // on the way only until it was found good once. Empty with errno like open(2). Throws CompileError.
    UniqueFd open_directory(const EntryKey& key);
    // Of the entry in that directory.
    static std::string file_name(const EntryKey& key);
    std::string log_path(const EntryKey& key);
    // Of what happened to blobs; see events.cpp.
    std::string history_path() const;
    bool is_tier() const { return m_is_tier; }
    std::string lock_path(const EntryKey& key) const;
    std::string staging_prefix(const EntryKey& key) const;
    // What compiling took.
    Costs costs(const EntryKey& key) const;
    // What compiling parts of `blob` took, and of others of the library.
    ByKernel by_kernel(const std::string& library, const std::string& blob) const;
    // Of the compile slots of this host.
    std::string slots_dir() const;

    // Whether the entry's directory exists. Throws CompileError when any directory on the way could be written by
    // others: what lies there would be loaded and run.
    bool find_directory(const EntryKey& key);

    // Makes the directory `name` of its root, and those for locks and for staging, and returns its path. Throws
    // CompileError.
    std::string make_own_directory(const char* name);

    // Makes the directories that compiling needs (0700), and sees that they can be written. Throws CompileError.
    void make_directories_for(const EntryKey& key);

 private:
    // Which entries share a directory, and that one.
    struct Leaf {
        std::string library, toolchain_id, salt;
        Strings archs;
        std::string path;
        dev_t device = 0;
        ino_t inode = 0;  // 0: not found good yet
    };

    Strings directories(const EntryKey& key) const;
    static std::string leaf_name(const EntryKey& key);
    // The caller holds m_mutex.
    Leaf& leaf_of(const EntryKey& key);
    bool is_trusted(const std::string& path);

    std::string m_root;
    bool m_is_tier = false;
    std::string m_notes;  // of a tier
    std::mutex m_mutex;
    std::set<std::string> m_trusted;  // found good before
    std::vector<Leaf> m_leaves;
    std::atomic<bool> m_is_cleaned{false};  // of what killed processes left
};

// Puts the file `name` of the open `directory` at `path` of the cache, at once and whole. Throws CompileError.
void publish(int directory, const char* name, const std::string& path);

// Makes `path` a usable cache root. Throws CompileError.
void prepare_cache_root(const std::string& path);

}  // namespace lazyck::rt
