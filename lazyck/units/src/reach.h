// Who mentions whom in a preprocessed text, by names alone: whatever a name may mean, all that have it are meant.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "source_text.h"

namespace lazyck::units {

// What may need one of `names`: it mentions it, or what mentions it, as often as it takes.
struct Reach {
    std::vector<bool> declarations;  // a class without its functions
    std::vector<bool> functions;
};

Reach that_reach(std::string_view text, const Definitions& found, std::vector<std::string_view> names);

// What is needed of a text by some of its declarations.
struct Used {
    std::vector<bool> declarations;
    std::vector<bool> functions;  // of the optional ones
};

// What `roots` and the text `more` need of `found`: what they mention, and what that mentions, as often as it takes;
// what has no name is always needed. What lies in `cuts`, which come in the text's order, mentions nothing; nor does an
// optional function, as long as nobody mentions its name.
Used used_by(std::string_view text, const Definitions& found, const std::vector<Cut>& cuts,
             const std::vector<bool>& roots, std::string_view more);

// Cuts of what is not `used`, and of bodies of the rest that have a replacement.
std::vector<Cut> cuts_to_used(std::string_view text, const Definitions& found, const Used& used,
                              const std::function<std::string_view(const Definition&)>& replacement);

}  // namespace lazyck::units
