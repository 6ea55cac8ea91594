// Device code shared by the forward and backward kernels: the rows of a block, scores, tiles.
#pragma once

#include <cmath>
#include <cstdint>

#include "attn/args.hpp"
#include "attn/launch.hpp"
#include "attn/traits.hpp"

namespace attn {

__device__ inline int min_of(int a, int b) { return a < b ? a : b; }
__device__ inline int max_of(int a, int b) { return a > b ? a : b; }

// One sequence of the batch: its lengths, and where its rows begin.
template <bool kIsGroup>
struct Sequence {
    int seqlen_q;
    int seqlen_k;

    __device__ Sequence(const attn_shape& shape, int batch)
        : seqlen_q(shape.seqlen_q), seqlen_k(shape.seqlen_k), m_batch(batch), m_start_q(0), m_start_k(0) {
        if constexpr (kIsGroup) {
            m_start_q = shape.seqstart_q[batch];
            m_start_k = shape.seqstart_k[batch];
            seqlen_q = shape.seqstart_q[batch + 1] - m_start_q;
            seqlen_k = shape.seqstart_k[batch + 1] - m_start_k;
        }
    }

    template <typename T, typename Data>
    __device__ T* q_rows(const attn_tensor<Data>& tensor, int head) const {
        return rows<T>(tensor, head, m_start_q);
    }

    template <typename T, typename Data>
    __device__ T* k_rows(const attn_tensor<Data>& tensor, int head) const {
        return rows<T>(tensor, head, m_start_k);
    }

    template <typename Data>
    __device__ Data* stats(const attn_row_stats<Data>& stats, int head) const {
        const std::int64_t start = kIsGroup ? m_start_q : m_batch * stats.batch_stride;
        return stats.data + head * stats.nhead_stride + start;
    }

 private:
    int m_batch;
    int m_start_q;
    int m_start_k;

    template <typename T, typename Data>
    __device__ T* rows(const attn_tensor<Data>& tensor, int head, int start_row) const {
        const std::int64_t start = kIsGroup ? start_row * tensor.row_stride : m_batch * tensor.batch_stride;
        return static_cast<T*>(tensor.data) + start + head * tensor.nhead_stride;
    }
};

// Scale, bias and mask of one head. Rows and keys are aligned at their ends: the last row's
// diagonal is the last key.
template <typename Traits>
struct ScoreRule {
    template <bool kIsGroup>
    __device__ ScoreRule(const attn_shape& shape, const Sequence<kIsGroup>& sequence, int head)
        : m_seqlen_q(sequence.seqlen_q),
          m_seqlen_k(sequence.seqlen_k),
          m_shift(sequence.seqlen_k - sequence.seqlen_q),
          m_left(k_unlimited),
          m_right(k_unlimited),
          m_scale(shape.scale),
          m_slope(0.0f) {
        if constexpr (Traits::kMask == attn_mask::causal) {
            m_right = 0;
        } else if constexpr (Traits::kMask == attn_mask::window) {
            m_left = shape.window_left < 0 ? k_unlimited : min_of(shape.window_left, k_unlimited);
            m_right = shape.window_right < 0 ? k_unlimited : min_of(shape.window_right, k_unlimited);
        }
        if constexpr (Traits::kBias == attn_bias::alibi) {
            m_slope = shape.alibi_slopes[head];
        }
    }

    __device__ bool sees(int row, int key) const {
        if (row >= m_seqlen_q || key >= m_seqlen_k) {
            return false;
        }
        if constexpr (Traits::kMask == attn_mask::none) {
            return true;
        }
        const int distance = key - (row + m_shift);
        return distance <= m_right && -distance <= m_left;
    }

    __device__ float score(float dot, int row, int key) const {
        if constexpr (Traits::kBias == attn_bias::alibi) {
            const int distance = key - (row + m_shift);
            return dot * m_scale - m_slope * static_cast<float>(distance < 0 ? -distance : distance);
        }
        return dot * m_scale;
    }

    // Keys [begin, end) that some row of [first, first + count) may see; begin is a multiple of
    // `step`.
    __device__ int keys_begin(int first, int step) const { return align(first + m_shift - m_left, step); }
    __device__ int keys_end(int first, int count) const {
        return min_of(m_seqlen_k, min_of(first + count, m_seqlen_q) + m_shift + m_right);
    }

    // Rows [begin, end) that see some key of [first, first + count).
    __device__ int rows_begin(int first, int step) const { return align(first - m_shift - m_right, step); }
    __device__ int rows_end(int first, int count) const {
        return min_of(m_seqlen_q, min_of(first + count, m_seqlen_k) - m_shift + m_left);
    }

 private:
    // This is larger than any sequence, and small enough that sums do not overflow.
    static constexpr int k_unlimited = 1 << 29;
    int m_seqlen_q, m_seqlen_k, m_shift, m_left, m_right;
    float m_scale, m_slope;

    __device__ static int align(int value, int step) { return max_of(value, 0) / step * step; }
};

// Rows of a tensor in shared memory. A row is one float longer than its data: threads that read the
// same column of neighbouring rows then hit different banks.
template <int kRows, int kColumns>
struct Tile {
    float cells[kRows][kColumns + 1];

    // The whole block calls this. Rows from `row_count` on become zero.
    template <typename T>
    __device__ void load(const T* rows, std::int64_t row_stride, int first_row, int row_count) {
        for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += k_block_threads) {
            const int row = i / kColumns;
            const int column = i % kColumns;
            const bool inside = first_row + row < row_count;
            cells[row][column] = inside ? to_float(rows[(first_row + row) * row_stride + column]) : 0.0f;
        }
    }
};

template <int kRowsA, int kRowsB, int kColumns>
__device__ float dot_rows(const Tile<kRowsA, kColumns>& a, int row_a, const Tile<kRowsB, kColumns>& b, int row_b) {
    float sum = 0.0f;
    for (int d = 0; d < kColumns; ++d) {
        sum += a.cells[row_a][d] * b.cells[row_b][d];
    }
    return sum;
}

// The threads of a block, divided among the rows of a tile: each row has `kLanes` threads, which
// interleave its columns.
template <int kRows, int kColumns>
struct RowThreads {
    static constexpr int kLanes = k_block_threads / kRows;
    static constexpr int kPerLane = kColumns / kLanes;
    static_assert(k_block_threads % kRows == 0 && kColumns % kLanes == 0, "the tile does not fit the block");

    __device__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
    __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }

    // Adds weight * row `from` of the tile to the values, for this thread's columns only.
    template <int kTileRows>
    __device__ static void add_scaled(float (&values)[kPerLane], float weight, const Tile<kTileRows, kColumns>& tile,
                                      int from) {
        ATTN_UNROLL
        for (int j = 0; j < kPerLane; ++j) {
            values[j] += weight * tile.cells[from][lane() + kLanes * j];
        }
    }

    template <typename T>
    __device__ static void store(const float (&values)[kPerLane], float factor, T* destination) {
        ATTN_UNROLL
        for (int j = 0; j < kPerLane; ++j) {
            destination[lane() + kLanes * j] = FromFloat<T>::convert(values[j] * factor);
        }
    }
};

inline unsigned tile_count(int length, int tile) { return static_cast<unsigned>((length + tile - 1) / tile); }

}  // namespace attn
