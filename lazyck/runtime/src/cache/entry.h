// One cache entry: a shared library with a trailer that says what it is and proves that it is
// whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "cache/checked_file.h"
#include "cache/directory.h"
#include "platform/elf_view.h"

namespace lazyck::rt {

// A verified entry: where it lies and where its functions are.
struct Entry {
    std::string path;
    std::string origin;  // "cache", "tier <root>", "remote <URL>", "text" or "compiled"
    double seconds = 0;  // that compiling took, if this process compiled it
    long peak_kib = 0;
    std::shared_ptr<CheckedFile> file;     // the verified file, whatever lies at the path by now
    std::vector<DynamicSymbol> functions;  // in the order of the names that were asked for
    HeaderState header_state = HeaderState::none;
    bool is_host_unit = false;  // of a blob, whose kernels are entries of their own
    std::vector<Entry> others;  // device code for the further archs that were asked for
};

enum class EntryState { ready, missing, damaged };

struct EntryLookup {
    EntryState state = EntryState::missing;
    std::string problem;  // if it is damaged
    Entry entry;
};

class Cache;
struct EntryKey;

// Checks the entry of `key`. Reads all of it, unless the cache has a note that it was found whole
// and it was not touched since. The modification time of that note tells when the entry was last
// used. Throws CompileError if a whole entry lacks one of `symbols`, or if others could write to a
// directory on the way.
EntryLookup look_up_entry(Cache& cache, const EntryKey& key, const Strings& symbols);

// Checks the entry that is open as `fd`, whatever lies at its path by now, like look_up_entry.
EntryLookup read_entry(UniqueFd fd, Cache& cache, const EntryKey& key, const Strings& symbols);

// Returns what is wrong with the entry `name` in `directory`, whatever its key, or an empty string.
// Reads all of it.
std::string find_damage(const Directory& directory, const std::string& name);

// Returns why the file that is open as `fd` cannot be the entry of `key`, or an empty string. Reads
// all of it.
std::string find_entry_fault(int fd, const EntryKey& key, const Strings& symbols);

// Returns why the library that is open as `fd` cannot be an entry for `machine` that defines and
// exports `symbols`, or an empty string. Throws CompileError if it cannot be read.
std::string find_fault(int fd, std::uint16_t machine, const Strings& symbols);

// Appends the trailer to the library that is open as `fd` for reading and appending. `text` is the
// id of the key of the text that it was made of, or zeros. Throws CompileError.
void seal_entry(int fd, const Digest& key, const Digest& text = {});

// Copies the library of a whole entry, without its trailer, to the empty file `to`. Throws
// CompileError.
void copy_library(int entry, int to);

}  // namespace lazyck::rt
