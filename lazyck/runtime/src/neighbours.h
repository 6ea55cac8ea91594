// What runs called soon after what, as a profile has it: which blobs a call of one lets expect.
#pragma once

#include <string>
#include <unordered_map>

#include "text.h"

namespace lazyck::rt {

// Blob → blobs of which the first call came among the next few after its own, in at least half of the processes that
// called it; the likeliest first. Throws CompileError when the profile cannot be read.
std::unordered_map<std::string, Strings> read_neighbours(const std::string& path, const std::string& library);

}  // namespace lazyck::rt
