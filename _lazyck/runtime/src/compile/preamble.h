// Precompiles preambles, as clangd does: the includes that many blobs begin with are compiled once,
// and the compile of a blob loads them, with a result that is the same byte for byte. Only clang
// can do this. Preambles lie in the cache. A process makes one in the background after a compile
// that similar ones may follow; `lazyck prebuild` makes one before it compiles many blobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "bundle/manifest_view.h"
#include "bundle/recipe.h"
#include "cache/directory.h"

namespace lazyck::rt {

// Returns what `source` begins with: its leading includes and the comments among them, in whole
// lines. The result is empty if there are none.
std::string_view preamble_of(std::string_view source);

struct PreambleRequest {
    RecipeRow recipe;
    RecipeValues values;  // for the compile of a blob that begins with the preamble
    std::string text;
    std::string directory;  // the preamble's own; it exists
};

// Returns whether the recipe's compiler can make and use preambles, as far as its name tells.
bool has_preambles(const RecipeRow& recipe);

// Returns whether the recipe's compiler describes its sources for a debugger. Of what comes from a
// preamble, it would give the preamble's place.
bool has_debug_information(const RecipeRow& recipe);

// Compiles the preamble, once for each arch and once for the host. Returns an empty string on
// success, else what failed.
std::string make_preamble(const PreambleRequest& request);

// Returns the words that make clang load the preamble in `directory` when it compiles the file
// `source`, and records the use. Returns none if the preamble is missing, damaged, or not the one
// that the source begins with.
Strings preamble_words(const std::string& directory, const std::string& source);

// Records in `directory` that a preamble is useless for now, because it could not be made or its
// users could not be compiled.
void give_up_preamble(const std::string& directory);
// Returns whether that was recorded within the last day.
bool is_given_up(const std::string& directory);

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
