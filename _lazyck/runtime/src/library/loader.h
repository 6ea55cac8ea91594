// Loads the entries of blobs into the process, and stores their slots.
#pragma once

#include <string>
#include <vector>

#include "library/recorder.h"

namespace lazyck::rt {

class Loader {
 public:
    Loader(Core& core, const Recorder& recorder) : m_core(core), m_recorder(recorder) {}

    // Loads the entry of a blob. `archs` is for messages. Several threads may load the same entry.
    // The loader maps it once, and all of them store the same addresses. Only device code for
    // several archs is joined by each of them, and that of the first one is stored. Throws
    // CompileError.
    void load(BlobId blob, const Entry& entry, const std::string& archs);

 private:
    void* open_blob(const ManifestView& manifest, const BlobRow& blob, const Entry& entry, std::string& reason);
    std::vector<void*> functions_of(BlobId blob, const Entry& entry, const std::string& archs);
    void forget(BlobId blob, const Entry& entry);

    Core& m_core;
    const Recorder& m_recorder;
    Strings m_state_holders;  // loader's names of blobs with header state, in loading order
};

}  // namespace lazyck::rt
