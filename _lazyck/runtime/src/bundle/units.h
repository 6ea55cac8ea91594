// Tells which unit a row of the manifest describes: a blob, a host unit or device code.
#pragma once

#include <string>
#include <vector>

#include "bundle/manifest_view.h"
#include "platform/messages.h"

namespace lazyck::rt {

// Returns the line of a host unit's table that describes the row. It begins with `*` for all
// kernels, and is empty for a blob.
std::string kernel_of(const BlobRow& blob);
// Returns the name of this host unit, or an empty string for a blob.
std::string host_unit_of(const BlobRow& blob);
// Returns the archs of each entry that the row has for `archs`. Device code has one for each arch.
// Host code, of which a process can have only one copy, has one for all of them.
std::vector<Strings> archs_of_entries(const BlobRow& blob, const Strings& archs);
// Returns the subject of messages about a blob.
Subject subject_of(const ManifestView& manifest, const BlobRow& blob, const std::string& arch_label);

}  // namespace lazyck::rt
