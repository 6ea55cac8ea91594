// One cache entry: a shared library with a trailer that says what it is and proves that it is whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checked_file.h"
#include "directory.h"
#include "elf_view.h"
#include "hash.h"
#include "text.h"

namespace lazyck::rt {

// A verified entry: where it lies and where its functions are.
struct Entry {
    std::string path;
    std::string origin;  // "cache", "tier <root>", "remote <URL>", "text" or "compiled"
    double seconds = 0;  // that compiling took, if this process did it
    long peak_kib = 0;
    std::shared_ptr<CheckedFile> file;     // what was verified, whatever lies at the path by now
    std::vector<DynamicSymbol> functions;  // in the order of the names that were asked for
    bool has_header_state = false;         // see ElfView
    bool is_host_unit = false;             // of a blob: its kernels are entries of their own
};

enum class EntryState { ready, missing, damaged };

struct EntryLookup {
    EntryState state = EntryState::missing;
    std::string problem;  // of a damaged one
    Entry entry;
};

class Cache;
struct EntryKey;

// Checks the entry of `key`: reads all of it, unless it has not been touched since it was last found whole, which the
// cache keeps a note of; that note's time of change tells when the entry was last used. An entry that is whole and
// lacks one of `symbols` throws CompileError, and so does a directory on the way that others could write.
EntryLookup look_up_entry(Cache& cache, const EntryKey& key, const Strings& symbols);

// The same for one that is open as `fd`, whatever lies at its path by now.
EntryLookup read_entry(UniqueFd fd, Cache& cache, const EntryKey& key, const Strings& symbols);

// What is wrong with the entry `name` in `directory`, whatever key it is of, or "": reads all of it.
std::string find_damage(const Directory& directory, const std::string& name);

// What keeps the file that is open as `fd` from being the entry of `key`, or "": reads all of it.
std::string find_entry_fault(int fd, const EntryKey& key, const Strings& symbols);

// What keeps the library that is open as `fd` from being an entry for `machine` that defines and exports `symbols`, or
// "". Throws CompileError when it cannot be read.
std::string find_fault(int fd, std::uint16_t machine, const Strings& symbols);

// Appends the trailer to the library that is open as `fd`, to read and to append; with the id of the text's key that it
// was made of, or zeros. Throws CompileError.
void seal_entry(int fd, const Digest& key, const Digest& text = {});

// Writes the library of an entry that is whole, without its trailer, to the empty file `to`. Throws CompileError.
void copy_library(int entry, int to);

}  // namespace lazyck::rt
