// The command line of lazyck-rt, and the blobs, and parts of blobs, that it chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bundle/manifest_view.h"
#include "platform/config.h"
#include "platform/files.h"
#include "store/store.h"

namespace lazyck::rt {

extern const char k_usage[];

struct ToolOptions {
    std::string verb;
    std::string from;
    std::string library;
    std::string archs;
    std::string toolchain;  // for `make`: a home that came with the action
    Strings blobs;
    bool is_quiet = false;
    bool is_again = false;
    bool has_blobs = false;
};

// Throws CompileError with the usage.
ToolOptions parse_options(int argc, char** argv);

// The manifest of a lazy library, or a file of its own with one.
class ToolSource {
 public:
    // Throws CompileError if it cannot be read.
    explicit ToolSource(const ToolOptions& options);

    const ManifestView& manifest() const { return m_manifest; }
    Places places(const Config& config) const;

 private:
    std::string m_path;
    MappedFile m_file;
    bool m_is_library = false;
    std::string m_library;
    ManifestView m_manifest;
};

// Refers to a row of the manifest, or to one of the parts of a blob, and to one of its entries.
struct Chosen {
    std::shared_ptr<const ManifestView> manifest;
    std::uint32_t index;
    Strings archs = {};

    ManifestRow at() const { return {*manifest, index}; }
    BlobRow row() const { return at().blob(); }
};

// Finds parts of blobs by their names. The kernels of a blob are read from its host unit.
class PartsByName {
 public:
    // With `makes_hosts`, a host unit that no cache has is compiled.
    PartsByName(Store& store, Strings archs, bool makes_hosts)
        : m_store(store), m_archs(std::move(archs)), m_makes_hosts(makes_hosts) {}

    // Returns the part of blob `index` called `name`, or nothing if it has none of that name. If
    // the host unit is not cached, the result is an unknown kernel, which is in no cache.
    std::optional<Chosen> find(const ManifestView& manifest, std::uint32_t index, const std::string& name);
    // Returns JSON lines for the kernels of a blob, or no lines if its host unit is not cached.
    std::string kernels_of(const ManifestView& manifest, std::uint32_t index);

 private:
    std::shared_ptr<const ManifestView> parts_of(const ManifestView& manifest, std::uint32_t index);

    Store& m_store;
    const Strings m_archs;
    const bool m_makes_hosts;
    std::unordered_map<std::uint32_t, std::shared_ptr<const ManifestView>> m_parts;
};

// Returns the entries of the chosen rows for the archs `asked`. Throws CompileError for a name that
// no blob has.
std::vector<Chosen> choose(const ManifestView& manifest, const ToolOptions& options, const Strings& asked,
                           PartsByName& parts);

}  // namespace lazyck::rt
