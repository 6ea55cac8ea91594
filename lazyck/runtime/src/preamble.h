// Precompiled preambles, as clangd has them: the includes that many blobs begin with are compiled once, and a blob's
// compile takes them from there, byte for byte as if it had read them. Only clang can do it. They lie in the cache; a
// process makes one in the background after a compile that others like it may follow, `lazyck prebuild` before many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "directory.h"
#include "manifest_view.h"
#include "recipe.h"
#include "text.h"

namespace lazyck::rt {

// What `source` begins with: its leading includes and the comments among them, in whole lines; "" if none.
std::string_view preamble_of(std::string_view source);

struct PreambleRequest {
    RecipeRow recipe;
    RecipeValues values;  // as for the compile of a blob; its source is one whose preamble it is
    std::string text;
    std::string directory;  // which becomes the preamble's; it exists
};

// Whether the recipe's compiler makes and takes such things, as far as its name tells.
bool has_preambles(const RecipeRow& recipe);

// Compiles the preamble, once for each arch and once for the host. "" when that is done, else what failed.
std::string make_preamble(const PreambleRequest& request);

// Words that have clang take the preamble of the file `source` from `directory`, in which it was made; none if it is
// not there, is damaged, or is another one. Notes that it was used.
Strings preamble_words(const std::string& directory, const std::string& source);

// Keeps in `directory` that there is no use in a preamble for now: it could not be made, or its users not be compiled.
void give_up_preamble(const std::string& directory);
// Whether that was so within the last day.
bool is_given_up(const std::string& directory);

// What lies below a cache's root.
struct KeptPreamble {
    std::string name;
    std::time_t last_use = 0;
    std::uint64_t bytes = 0;
};

// The last used ones first.
std::vector<KeptPreamble> preambles_in(const Directory& root);

// Whether it is gone.
bool remove_preamble(const Directory& root, const std::string& name);

// Removes those that were not used for a week, and all but the eight that were used last.
void remove_unused_preambles(const Directory& root);

}  // namespace lazyck::rt
