// Precompiles preambles, as clangd does: the includes that many blobs begin with are compiled once,
// and the compile of a blob loads them, with a result that is the same byte for byte. Only clang
// can do this. Preambles lie in the cache. A process makes one in the background after a compile
// that similar ones may follow; `lazyck prebuild` makes one before it compiles many blobs.
#pragma once

#include <cstdint>
#include <ctime>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/directory.h"
#include "store/sources.h"

namespace lazyck::rt {

class Store;
struct Missing;

class Preambles {
 public:
    explicit Preambles(Store& store) : m_store(store) {}

    // Returns the key that is equal for blobs that can share a preamble: a digest of all that
    // decides the preamble's contents. The key is empty if the blob has no preamble.
    std::string key_of(const ManifestRow& at, const Strings& archs);
    // Makes the preamble of a blob in the cache, where compiles find it, unless it is there.
    // Returns an empty string, or the reason why there is none. Throws CompileError.
    std::string compile(const ManifestRow& at, const Strings& archs);
    // Returns whether a process that has just compiled the blob may soon compile others that share
    // its preamble. It returns true at most once for all blobs that are compiled alike.
    bool should_make(const ManifestRow& at, const Strings& archs);
    // Returns the directory of the preamble for a compile of `source`, or an empty string if there
    // is none. Throws CompileError if others could have written it.
    static std::string find(const Missing& missing, const SourceFile& source);

 private:
    Store& m_store;
    std::set<std::pair<const void*, std::uint32_t>> m_considered;  // recipes
};

// Returns the words that make clang load the preamble in `directory` when it compiles the file
// `source`, and records the use. Returns none if the preamble is missing, damaged, or not the one
// that the source begins with.
Strings preamble_words(const std::string& directory, const std::string& source);

// Records in `directory` that a preamble is useless for now, because it could not be made or its
// users could not be compiled.
void give_up_preamble(const std::string& directory);

// Describes a preamble below a cache's root.
struct KeptPreamble {
    std::string name;
    std::time_t last_use = 0;
    std::uint64_t bytes = 0;
};

// Returns the preambles, the last used ones first.
std::vector<KeptPreamble> preambles_in(const Directory& root);

// Removes a preamble. Returns whether it is gone.
bool remove_preamble(const Directory& root, const std::string& name);

// Removes the preambles that were not used for a week, and all but the eight that were used last.
void remove_unused_preambles(const Directory& root);

}  // namespace lazyck::rt
