#include "block.h"

#include <fake_rocm/kernel_abi.h>

#include "state.h"

namespace {

// The largest size that any known GPU offers. A launch that asks for more than its own GPU offers
// is refused.
constexpr size_t k_dynamic_shared_bytes = 160 << 10;

}  // namespace

// Kernels see these as threadIdx and so on, and as their dynamic shared memory. They are defined by
// their assembler names, since the first five are const for kernels.
extern "C" {
uint3 fake_rocm_thread_idx;
uint3 fake_rocm_block_idx;
dim3 fake_rocm_block_dim;
dim3 fake_rocm_grid_dim;
int fake_rocm_warp_size = 64;
alignas(256) char fake_rocm_dynamic_shared[k_dynamic_shared_bytes];
}

namespace fake_rocm {

BlockRunner& block_runner() { return immortal<BlockRunner>(); }

bool BlockRunner::run(dim3 grid, dim3 block, int wave_size, void (*run_thread)(const void*), const void* closure) {
    m_run_thread = run_thread;
    m_closure = closure;
    m_wave_size = static_cast<unsigned int>(wave_size);
    fake_rocm_grid_dim = grid;
    fake_rocm_warp_size = wave_size;
    fake_rocm_block_dim = block;
    const unsigned int threads = block.x * block.y * block.z;
    m_threads.resize(threads);
    m_waves.resize((threads + m_wave_size - 1) / m_wave_size);
    for (uint32_t z = 0; z < grid.z; ++z)
        for (uint32_t y = 0; y < grid.y; ++y)
            for (uint32_t x = 0; x < grid.x; ++x) {
                fake_rocm_block_idx = {x, y, z};
                if (!run_block()) return false;
            }
    return true;
}

// Every pass ends with each thread done or at the barrier; a thread that is done does not delay the
// others.
bool BlockRunner::run_block() {
    m_alive = static_cast<unsigned int>(m_threads.size());
    m_predicates = 0;
    for (Thread& thread : m_threads) thread.m_state = State::Ready;
    for (Wave& wave : m_waves) wave.m_active[0] = wave.m_active[1] = wave.m_turn = 0;
    while (m_alive > 0) {
        for (unsigned int wave = 0; wave < m_waves.size(); ++wave)
            if (!run_wave(wave)) return false;
        m_predicates_result = m_predicates;
        m_predicates = 0;
        for (Thread& thread : m_threads)
            if (thread.m_state == State::AtBarrier) thread.m_state = State::Ready;
    }
    return true;
}

// Runs a wave until no lane can go on. Lanes at a wave operation go on together once every other
// lane has stopped.
bool BlockRunner::run_wave(unsigned int wave) {
    const unsigned int first = wave * m_wave_size;
    const unsigned int last = std::min(first + m_wave_size, static_cast<unsigned int>(m_threads.size()));
    for (;;) {
        for (unsigned int i = first; i < last; ++i)
            if (m_threads[i].m_state == State::Ready && !resume(i)) return false;
        bool shared = false;
        for (unsigned int i = first; i < last; ++i)
            if (m_threads[i].m_state == State::AtWave) {
                m_threads[i].m_state = State::Ready;
                shared = true;
            }
        if (!shared) return true;
        Wave& turning = m_waves[wave];
        ++turning.m_turn;
        turning.m_active[turning.m_turn & 1] = 0;
    }
}

bool BlockRunner::resume(unsigned int index) {
    Thread& thread = m_threads[index];
    if (!thread.m_fiber) {
        if (m_idle.empty()) {
            thread.m_fiber = Fiber::create(&fiber_body);
            if (!thread.m_fiber) return false;
        } else {
            thread.m_fiber = std::move(m_idle.back());
            m_idle.pop_back();
        }
    }
    m_current = index;
    const dim3 block = fake_rocm_block_dim;
    fake_rocm_thread_idx = {index % block.x, index / block.x % block.y, index / (block.x * block.y)};
    thread.m_fiber->resume();
    if (thread.m_state == State::Done) {
        // A kernel without barriers needs a single stack: the next thread takes this one.
        m_idle.push_back(std::move(thread.m_fiber));
        --m_alive;
    }
    return true;
}

void BlockRunner::fiber_body() {
    for (;;) {
        BlockRunner& runner = block_runner();
        runner.m_run_thread(runner.m_closure);
        runner.wait(State::Done);
    }
}

void BlockRunner::wait(State state) {
    Thread& thread = m_threads[m_current];
    thread.m_state = state;
    thread.m_fiber->suspend();
}

int BlockRunner::block_barrier(int predicate) {
    m_predicates += predicate != 0;
    wait(State::AtBarrier);
    return m_predicates_result;
}

uint64_t BlockRunner::wave_share(uint64_t value, const uint64_t** values) {
    Wave& wave = m_waves[m_current / m_wave_size];
    const unsigned int turn = wave.m_turn & 1;
    wave.m_values[turn][lane()] = value;
    wave.m_active[turn] |= uint64_t{1} << lane();
    wait(State::AtWave);
    *values = wave.m_values[turn];
    return wave.m_active[turn];
}

}  // namespace fake_rocm

using fake_rocm::block_runner;

extern "C" {
int fake_rocm_block_barrier(int predicate) { return block_runner().block_barrier(predicate); }
uint64_t fake_rocm_wave_share(uint64_t value, const uint64_t** values) {
    return block_runner().wave_share(value, values);
}
unsigned int fake_rocm_lane() { return block_runner().lane(); }
}
