// Precompiled preambles, as clangd has them: the includes that many blobs begin with are compiled once, and a blob's
// compile takes them from there, byte for byte as if it had read them. For `lazyck prebuild`, which compiles many blobs
// at a time; only clang can do it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

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

// Compiles the preamble, once for each arch and once for the host. "" when that is done, else what failed.
std::string make_preamble(const PreambleRequest& request);

// Words that have clang take the preamble of the file `source` from `directory`, in which it was made; none if it is
// not there, or is another one.
Strings preamble_words(const std::string& directory, const std::string& source);

}  // namespace lazyck::rt
