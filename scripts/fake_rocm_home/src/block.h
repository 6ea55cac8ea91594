// Runs the blocks of a launch on the calling thread, one after another. Each GPU thread is a fiber.
// Fibers switch only at barriers and wave operations, in the same order every time.
#pragma once

#include <hip/hip_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fiber.h"

namespace fake_rocm {

class BlockRunner {
 public:
    // Returns false if there is no memory for the threads' stacks.
    bool run(dim3 grid, dim3 block, int wave_size, void (*run_thread)(const void*), const void* closure);

    // The running GPU thread calls these.
    int block_barrier(int predicate);
    uint64_t wave_share(uint64_t value, const uint64_t** values);
    unsigned int lane() const { return m_current % m_wave_size; }

 private:
    enum class State { Ready, AtBarrier, AtWave, Done };
    struct Thread {
        State m_state;
        std::unique_ptr<Fiber> m_fiber;
    };
    // There are two sets of slots: a lane may give its next value while a slower one still reads
    // the last.
    struct Wave {
        uint64_t m_values[2][64];
        uint64_t m_active[2];
        unsigned int m_turn;
    };

    bool run_block();
    bool run_wave(unsigned int wave);
    bool resume(unsigned int thread);
    void wait(State state);
    static void fiber_body();

    void (*m_run_thread)(const void*) = nullptr;
    const void* m_closure = nullptr;
    unsigned int m_wave_size = 64;
    unsigned int m_current = 0;
    unsigned int m_alive = 0;
    int m_predicates = 0;
    int m_predicates_result = 0;
    std::vector<Thread> m_threads;
    std::vector<Wave> m_waves;
    std::vector<std::unique_ptr<Fiber>> m_idle;
};

// Returns the only runner; launches take turns on it (see launch.cpp).
BlockRunner& block_runner();

}  // namespace fake_rocm
