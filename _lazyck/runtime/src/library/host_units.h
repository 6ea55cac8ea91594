// The host units of the library's sources, and the device code of each.
#pragma once

#include <string>
#include <unordered_map>

#include "base/lasting.h"
#include "library/blobs.h"
#include "library/kernels.h"

namespace lazyck::rt {

// The device code of a host unit.
struct HostUnit {
    BlobId whole = 0;
    std::unordered_map<std::string, BlobId> kernels;  // by symbol
};

class HostUnits {
 public:
    explicit HostUnits(const Blobs& blobs) : m_blobs(blobs) {}

    // Returns the host unit that registered a handle. Throws CompileError.
    const HostUnit& of(const Handle& handle);
    // Returns the host unit of a blob, by the table that came with the loaded host unit.
    const HostUnit& of_blob(BlobId blob, const char* table);

 private:
    BlobId blob_of_name(const std::string& name) const;

    const Blobs& m_blobs;
    Lasting<std::unordered_map<std::string, HostUnit>> m_in_manifest;  // by name
    Lasting<std::unique_ptr<Lasting<HostUnit>[]>> m_of_blobs;
};

}  // namespace lazyck::rt
