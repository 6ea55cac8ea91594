// Finds out from a profile which blobs are called soon after which, so that a call of one predicts
// others.
#pragma once

#include <string>
#include <unordered_map>

#include "base/text.h"

namespace lazyck::rt {

// Returns for each blob the blobs whose first call was among the next few after its own, in at
// least half of the processes that called it. The likeliest come first. Throws CompileError if the
// profile cannot be read.
std::unordered_map<std::string, Strings> read_neighbours(const std::string& path, const std::string& library);

}  // namespace lazyck::rt
