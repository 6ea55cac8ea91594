// Knows where entries are, and checks whether those directories can be trusted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "cache/costs.h"
#include "machine/machine.h"
#include "platform/files.h"

namespace lazyck::rt {

// The key that an entry is looked up by. Everything that changes the compiled code is in it.
struct EntryKey {
    std::string library;
    std::string blob;
    std::string digest;  // of all that the compiler reads, fixed when the library was built
    Strings archs;       // for a host blob, the name of its machine
    std::string toolchain_id;
    std::string salt;
    std::uint16_t machine = 0;
    bool is_text = false;  // the digest is that of a text that entries are made of (see texts.h); not part of the id

    // Returns the digest of the whole key, which an entry records to say what it is.
    Digest id() const;
    // Returns the archs in the form "gfx942+gfx950", or "any" if there are none.
    std::string arch_label() const;
    // Returns arch_label() as it is written in file names. A '-' ends it there, so every '-' within
    // it becomes '_' (gfx9-4-generic).
    std::string archs_in_name() const;
};

class Cache {
 public:
    explicit Cache(std::string root) : m_root(std::move(root)) {}
    // Makes a tier: another cache, which is only read. Notes about its entries are kept below the
    // root `notes`, or nowhere if that is empty.
    Cache(std::string root, std::string notes) : m_root(std::move(root)), m_is_tier(true), m_notes(std::move(notes)) {}

    const std::string& root() const { return m_root; }
    std::string entry_path(const EntryKey& key);
    // Returns the path of the entry below the directory of this version's entries. It is alike in
    // all caches.
    static std::string entry_name(const EntryKey& key);
    // Returns the path of the note on what a check of the entry found, or an empty string if no
    // note is kept.
    std::string note_path(const EntryKey& key);
    // Opens the directory of the entry, to look into it. The directories on the way are checked, as
    // by `open_trusted`, only until the entry's directory was found good once; later it is opened
    // by its path. Returns an empty descriptor and sets errno like open(2). Throws CompileError if
    // others could write to any of these directories: code from there would be loaded and run.
    UniqueFd open_directory(const EntryKey& key);
    static std::string file_name(const EntryKey& key);
    // Returns whether another compiler than the key's made an entry of such a blob.
    bool has_of_other_compiler(const EntryKey& key) const;
    std::string log_path(const EntryKey& key);
    // Returns the path of the history of events (see events.cpp).
    std::string history_path() const;
    bool is_tier() const { return m_is_tier; }
    std::string lock_path(const EntryKey& key) const;
    std::string staging_prefix(const EntryKey& key) const;
    Costs costs(const EntryKey& key) const;
    // Returns what compiling parts of `blob`, and of the library's other blobs, took.
    ByKernel by_kernel(const std::string& library, const std::string& blob) const;
    // Returns the directory of this host's compile permits.
    std::string permits_dir() const;

    // Makes the directory `name` below the root, and those for locks and staging. Returns its path.
    // Throws CompileError.
    std::string make_own_directory(const char* name);

    // Makes the directories that compiling needs (0700), and checks that they can be written.
    // Throws CompileError.
    void make_directories_for(const EntryKey& key);

 private:
    // A directory, and the key of one of the entries that share it.
    struct Leaf {
        EntryKey key;
        std::string path;
        dev_t device = 0;
        ino_t inode = 0;  // 0: not found good yet
    };

    Strings directories(const EntryKey& key) const;
    static std::string leaf_name(const EntryKey& key);
    // The caller must hold m_mutex.
    Leaf& leaf_of(const EntryKey& key);

    std::string m_root;
    const bool m_is_tier = false;
    const std::string m_notes;  // where the notes of a tier are kept
    std::mutex m_mutex;
    std::vector<Leaf> m_leaves;
    machine::Flag m_is_cleaned{false};  // leftovers of killed processes were removed
};

// Moves the file `name` of the open `directory` to `path` in the cache, in one atomic rename.
// Throws CompileError.
void publish(int directory, const char* name, const std::string& path);

// Makes `path` a usable cache root. Throws CompileError.
void prepare_cache_root(const std::string& path);

}  // namespace lazyck::rt
