// The slots of a blob: the pointers that its stubs jump through.
#pragma once

#include <vector>

#include "library/blobs.h"

namespace lazyck::rt {

// Returns what the slots of a blob point to. A part has none.
std::vector<void*> read_slots(const ManifestRow& at);
// Lets the slots of a blob point to its functions.
void store_slots(const ManifestRow& at, const std::vector<void*>& functions);

}  // namespace lazyck::rt
