// Loads the entries of blobs into the process, and stores their slots.
#pragma once

#include <string>
#include <vector>

#include "library/recorder.h"
#include "library/states.h"
#include "store/store.h"

namespace lazyck::rt {

class Loader {
 public:
    Loader(const Blobs& blobs, States& states, Store& store, const Recorder& recorder)
        : m_blobs(blobs), m_states(states), m_store(store), m_recorder(recorder) {}

    // Loads the entry of a blob. `archs` is for messages. Several threads may load the same entry.
    // The loader maps it once, and all of them store the same addresses. Only device code for
    // several archs is joined by each of them, and that of the first one is stored. Throws
    // CompileError.
    void load(BlobId blob, const Entry& entry, const std::string& archs);

 private:
    void* open_blob(const ManifestView& manifest, const BlobRow& blob, const Entry& entry, std::string& reason);
    std::vector<void*> functions_of(BlobId blob, const Entry& entry, const std::string& archs);
    void forget(BlobId blob, const Entry& entry);

    const Blobs& m_blobs;
    States& m_states;
    Store& m_store;
    const Recorder& m_recorder;
    Strings m_state_holders;  // loader's names of blobs with header state, in loading order
};

}  // namespace lazyck::rt
