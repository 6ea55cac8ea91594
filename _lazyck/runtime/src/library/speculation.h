// Makes ready in the background what is likely to be called next.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "library/readiness.h"

namespace lazyck::rt {

class Speculation {
 public:
    Speculation(Core& core, Readiness& readiness) : m_core(core), m_readiness(readiness) {}

    // Expects, after a blob's first call, those blobs that the profile at `path` shows to follow
    // it. An empty path ends that. Throws CompileError if the profile cannot be read.
    void follow(const std::string& path);
    // Makes ready, at a call of the blob, what is likely to be called next.
    void expect_neighbours(BlobId blob);
    // Makes the whole source ready once its kernels have cost about as much. `kernel` was called,
    // one of `kernels`.
    void expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels);

    // The mutex of the states is held. The thread that works on what is expected is gone.
    void after_fork_in_child();

 private:
    void make_ready_later(const std::vector<Wanted>& wanted);
    void make_expected_ready();

    Core& m_core;
    Readiness& m_readiness;
    std::unordered_map<BlobId, std::vector<BlobId>> m_neighbours;  // of blobs that were not called yet
    std::deque<Wanted> m_expected;                                 // to be made ready, the likeliest first
    bool m_is_expecting = false;                                   // a thread works on m_expected
    std::unordered_map<BlobId, unsigned> m_compiled_kernels;       // number compiled here, by whole source
};

}  // namespace lazyck::rt
