#include "library/speculation.h"

#include <exception>
#include <utility>

#include "platform/threads.h"
#include "record/profile.h"

namespace lazyck::rt {

// FlashAttention's forward file takes as long as five to six of its kernels one by one, llama.cpp's
// mmq as five.
constexpr unsigned k_kernels_for_a_source = 5;

void Speculation::follow(const std::string& path) {
    std::unordered_map<BlobId, std::vector<BlobId>> neighbours;
    if (!path.empty()) {
        const std::unordered_map<std::string, BlobId> ids = m_core.blobs.ids_by_name();
        for (const auto& each : read_neighbours(path, m_core.blobs.manifest().library())) {
            const auto blob = ids.find(each.first);
            if (blob == ids.end()) continue;
            for (const std::string& name : each.second) {
                const auto other = ids.find(name);
                if (other != ids.end()) neighbours[blob->second].push_back(other->second);
            }
        }
        stay_loaded();
    }
    const std::lock_guard<std::mutex> guard(m_core.states.mutex());
    m_neighbours = std::move(neighbours);
    m_expected.clear();
}

void Speculation::expect_neighbours(BlobId blob) {
    std::vector<BlobId> neighbours;
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex());
        const auto found = m_neighbours.find(blob);
        if (found == m_neighbours.end()) return;
        neighbours = std::move(found->second);
        m_neighbours.erase(found);
    }
    make_ready_later(m_core.blobs.wanted_here(neighbours));
}

// A kernel by itself costs most of what the first one of a whole source does: its headers. Whoever
// has used several kernels may use all of them. So the whole source is compiled in the background
// once the kernels have cost about as much. A program that stops there has paid at most twice, like
// someone who rents until the rent has reached the price, and then buys.
void Speculation::expect_whole_source(BlobId kernel, BlobId whole, std::size_t kernels) {
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex());
        const BlobState& state = m_core.states.of(kernel);
        if (!state.entry || state.entry->origin != "compiled" || kernels < 2 * k_kernels_for_a_source) return;
        if (++m_compiled_kernels[whole] != k_kernels_for_a_source) return;
    }
    stay_loaded();
    make_ready_later(m_core.blobs.wanted_here({whole}));
}

// Makes blobs ready in the background, on one thread.
void Speculation::make_ready_later(const std::vector<Wanted>& wanted) {
    {
        const std::lock_guard<std::mutex> guard(m_core.states.mutex());
        m_expected.insert(m_expected.end(), wanted.begin(), wanted.end());
        if (m_is_expecting || m_expected.empty()) return;
        m_is_expecting = true;
    }
    if (start_thread([this, activity = std::make_shared<Activity>(m_core.states)] { make_expected_ready(); })) return;
    const std::lock_guard<std::mutex> guard(m_core.states.mutex());
    m_is_expecting = false;
    m_expected.clear();  // without a thread, nothing is made ready
}

// Makes expected blobs ready, one at a time. A guess may be wrong, so a blob is compiled only where
// another job permit is left to the calls themselves.
void Speculation::make_expected_ready() {
    while (true) {
        Wanted next;
        {
            const std::lock_guard<std::mutex> guard(m_core.states.mutex());
            m_is_expecting = !m_expected.empty();
            if (!m_is_expecting) return;
            next = m_expected.front();
            m_expected.pop_front();
        }
        try {
            if (m_readiness.is_at_hand(next) || (m_core.store.config.jobs > 1 && !m_core.store.jit.is_forbidden()))
                m_readiness.make_ready(next);
        } catch (const std::exception&) {
            // If a call needs this blob, that call gets the error.
        }
    }
}

void Speculation::after_fork_in_child() {
    m_expected.clear();
    m_is_expecting = false;
}

}  // namespace lazyck::rt
