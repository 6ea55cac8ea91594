// The blobs of the lazy library that this runtime is linked into, as its manifests describe them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bundle/manifest_view.h"
#include "platform/config.h"
#include "platform/threads.h"

// lazyck/postbuild/link/stubs.py defines these in each lazy library.
extern "C" {
extern __attribute__((visibility("hidden"))) std::atomic<void*> lazyck_slots[];
extern __attribute__((visibility("hidden"))) const std::uint32_t lazyck_slot_count;
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest[];
extern __attribute__((visibility("hidden"))) const unsigned char lazyck_manifest_end[];
}

namespace lazyck::rt {

// The number of a blob in the manifest. The upper half is 0, or for a part of the blob the part's
// number plus one.
using BlobId = std::uint64_t;

// The device code of a host unit.
struct HostUnit {
    BlobId whole = 0;
    std::unordered_map<std::string, BlobId> kernels;  // by symbol
};

// A call of a lazy function, and the address that it comes from, or null if that is not known.
struct Call {
    std::uint32_t slot = 0;
    const void* from = nullptr;
};

// A blob, and what it is compiled for (null: the device of the thread that makes it ready). A blob
// that is called may go by kernel. A blob that is prepared beforehand is compiled as a whole,
// unless `part` names a kernel.
struct Wanted {
    BlobId blob = 0;
    std::shared_ptr<const Strings> archs;
    bool is_called = false;
    std::string part, line;  // the kernel, and its line in a table if known
    Call call = {};
};

class Blobs {
 public:
    // Reads the manifest of the library at `path`. Throws CompileError.
    Blobs(const Config& config, std::string path);

    const std::string& path() const { return m_path; }
    const ManifestView& manifest() const { return m_manifest; }

    ManifestRow row(BlobId blob) const;
    BlobId of_slot(std::uint32_t slot) const { return m_manifest.symbol_blob(slot); }
    std::uint32_t count() const { return m_manifest.blob_count(); }
    // Returns the name of the blob number `index`, or nullptr if there is none.
    const char* name(BlobId index) const;
    std::optional<BlobId> find(std::string_view name) const;

    static BlobId part_of(BlobId blob, std::uint32_t part) { return blob | (BlobId{part} + 1) << 32; }
    // Returns the host unit `source`, by the table that it registered or, if that is empty, by the
    // manifest. Throws CompileError.
    const HostUnit& host_unit(const std::string& source, const char* table) const;
    // Returns the host unit of a blob, by the table that came with the loaded host unit.
    const HostUnit& host_unit_of_blob(BlobId blob, const char* table) const;

    // Returns all device code of the source that a part with device code belongs to.
    BlobId whole_of(BlobId kernel) const;

    // Returns what a blob is compiled for if this thread calls it. Throws CompileError.
    Strings archs_here(BlobId blob) const;
    // Returns what other threads shall make ready, for the device that this thread uses. Each
    // thread chooses a device for itself, and lazyck's own threads choose none.
    std::vector<Wanted> wanted_here(const std::vector<BlobId>& blobs) const;

 private:
    // The parts of a blob: those that the manifest alone tells, and all of them.
    struct Parts {
        Lasting<ManifestView> plain, full;
        Lasting<HostUnit> host_unit;
    };
    Parts& parts(BlobId blob) const;

    const std::string m_path;
    const Strings m_archs;  // LAZYCK_ARCHS
    const ManifestView m_manifest;
    mutable Lasting<std::unordered_map<std::string_view, BlobId>> m_by_name;
    mutable Lasting<std::unique_ptr<Parts[]>> m_parts;
    mutable Lasting<std::unordered_map<std::string, HostUnit>> m_host_units;  // of the manifest, by name
};

// Returns the absolute path of the file of the library (or program) that this runtime is linked
// into, or an empty string if the system does not tell. The path decides which sources are
// compiled, so no name is trusted that the program or its caller chose: the kernel is asked what is
// mapped, and the file at that path must be the mapped one. This function calls the dynamic loader,
// so call it while no lock is held.
std::string own_file();

}  // namespace lazyck::rt
