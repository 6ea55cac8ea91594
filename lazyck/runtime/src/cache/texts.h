// Finds entries by the text that they were made from, when no cache has an entry for the key. A key
// covers all files that a compile may read, so a new release of a library's headers changes it,
// although the text that `lazyck-unit` gives to the compiler proper is often unchanged.
//
// The file `<root>/.texts/<32 digits>` names the entry that was made from a text, by its path below
// the directory of entries. The digits are those of the text's own key; the entry has half of them
// in its trailer.
#pragma once

#include <cstddef>

#include "base/hash.h"
#include "base/text.h"
#include "cache/cache.h"
#include "cache/directory.h"
#include "platform/files.h"

namespace lazyck::rt {

// Returns the key of an entry that is made from this text: `key`, with the text in place of the
// blob's name and digest.
EntryKey key_of_text(const EntryKey& key, const Digest& text);

// Returns the open entry for this key in a cache, if one is named there, is whole and defines
// `symbols`. Throws CompileError if others could have written it.
UniqueFd find_text(const Cache& cache, const EntryKey& text, const Strings& symbols);

// Records the entry of `key` under its text. A failure to write the record is not an error.
void keep_text(const Cache& cache, const EntryKey& text, const EntryKey& key);

// Removes the records of entries that are gone, and returns their number.
std::size_t remove_unused_texts(const Directory& root);

}  // namespace lazyck::rt
