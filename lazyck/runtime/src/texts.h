// Entries by the text that they were made of, for keys that no cache has. A key covers all that a compile may read:
// another release of a library's headers makes it another, although what `lazyck-unit` gives to the compiler proper is
// often the same as before. `<root>/.texts/<32 digits>` names the entry that was made of a text: its path below the
// directory of entries; the digits are those of the text's own key. The entry has half of them in its trailer.
#pragma once

#include <cstddef>
#include <string>

#include "cache.h"
#include "directory.h"
#include "files.h"
#include "hash.h"
#include "text.h"

namespace lazyck::rt {

// The key of what is made of that text: `key`, with the text in the place of the blob's name and digest.
EntryKey key_of_text(const EntryKey& key, const Digest& text);

// The entry of that key in a cache, open, if one is named there, is whole and defines `symbols`. Throws CompileError
// where others could have written it.
UniqueFd find_text(const Cache& cache, const EntryKey& text, const Strings& symbols);

// Has the entry of `key` found by its text from now on. That this cannot be written is no error.
void keep_text(const Cache& cache, const EntryKey& text, const EntryKey& key);

// Removes what names an entry that is gone, and returns how many that were.
std::size_t remove_unused_texts(const Directory& root);

}  // namespace lazyck::rt
