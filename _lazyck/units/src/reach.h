// Finds which parts of a preprocessed text mention which. Names alone decide: everything that has a
// mentioned name counts as mentioned.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "source_text.h"

namespace lazyck::units {

// Some of the declarations and functions of a text.
struct Parts {
    std::vector<bool> declarations;
    std::vector<bool> functions;
};

// Returns what may need one of `names`: what mentions the name, directly or by way of other
// declarations and functions. A class counts without its functions.
Parts that_reach(std::string_view text, const Definitions& found, std::vector<std::string_view> names);

// Returns what `roots` and the text `more` need of `found`: what they mention, directly or by way
// of other mentions. What has no name is always needed. What lies in `cuts`, which are in the
// text's order, mentions nothing. An optional function mentions nothing as long as nothing mentions
// its name. Of the functions, only the optional ones count.
Parts used_by(std::string_view text, const Definitions& found, const std::vector<Cut>& cuts,
              const std::vector<bool>& roots, std::string_view more);

// Returns cuts of what is not `used`, and of the bodies of the rest that have a replacement.
std::vector<Cut> cuts_to_used(std::string_view text, const Definitions& found, const Parts& used,
                              const std::function<std::string_view(const Definition&)>& replacement);

}  // namespace lazyck::units
