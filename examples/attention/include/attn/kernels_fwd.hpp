// The forward kernel makes one pass over the keys with an online softmax; scores never reach global
// memory.
#pragma once

#include "attn/attn_fwd.hpp"
#include "attn/device.hpp"

// Runs one block per tile of query rows, head and sequence.
template <typename Traits, typename TileShape>
__global__ void __launch_bounds__(k_block_threads) attn_fwd_kernel(attn_fwd_args args) {
    using T = typename Traits::DataType::storage;
    constexpr int kRowsQ = TileShape::kRowsQ;
    constexpr int kRowsK = TileShape::kRowsK;
    using Threads = attn::RowThreads<kRowsQ, Traits::kHeadDim>;

    __shared__ attn::Tile<kRowsQ, Traits::kHeadDim> q_tile;
    __shared__ attn::Tile<kRowsK, Traits::kHeadDim> kv_tile;  // holds keys, then the values of the same rows
    __shared__ attn::Tile<kRowsQ, kRowsK> scores;

    const int head = static_cast<int>(blockIdx.y);
    const int head_k = head / (args.shape.nhead_q / args.shape.nhead_k);
    const int first_row = static_cast<int>(blockIdx.x) * kRowsQ;
    const attn::Sequence<Traits::kIsGroup> sequence(args.shape, static_cast<int>(blockIdx.z));
    if (first_row >= sequence.seqlen_q) {
        return;  // the grid is made for the longest sequence
    }
    const attn::ScoreRule<Traits> rule(args.shape, sequence, head);
    const T* k = sequence.template k_rows<const T>(args.k, head_k);
    const T* v = sequence.template k_rows<const T>(args.v, head_k);

    const int row = Threads::row();
    float row_max = -INFINITY;
    float row_sum = 0.0f;
    float values[Threads::kPerLane] = {};

    q_tile.load(sequence.template q_rows<const T>(args.q, head), args.q.row_stride, first_row, sequence.seqlen_q);
    const int last_key = rule.keys_end(first_row, kRowsQ);
    for (int first_key = rule.keys_begin(first_row, kRowsK); first_key < last_key; first_key += kRowsK) {
        kv_tile.load(k, args.k.row_stride, first_key, sequence.seqlen_k);
        __syncthreads();
        for (int key = Threads::lane(); key < kRowsK; key += Threads::kLanes) {
            const bool seen = rule.sees(first_row + row, first_key + key);
            const float dot = attn::dot_rows(q_tile, row, kv_tile, key);
            scores.cells[row][key] = seen ? rule.score(dot, first_row + row, first_key + key) : -INFINITY;
        }
        __syncthreads();

        kv_tile.load(v, args.v.row_stride, first_key, sequence.seqlen_k);
        float new_max = row_max;
        for (int key = 0; key < kRowsK; ++key) {
            new_max = fmaxf(new_max, scores.cells[row][key]);
        }
        // A row that has seen no key yet has no maximum. Any finite value keeps inf - inf out of
        // the exponents.
        const float base = new_max == -INFINITY ? 0.0f : new_max;
        const float shrink = expf(row_max - base);
        row_max = new_max;
        row_sum *= shrink;
        ATTN_UNROLL
        for (int j = 0; j < Threads::kPerLane; ++j) {
            values[j] *= shrink;
        }
        __syncthreads();  // from here on every lane has read the scores of its row; they become probabilities

        for (int key = Threads::lane(); key < kRowsK; key += Threads::kLanes) {
            scores.cells[row][key] = expf(scores.cells[row][key] - base);
        }
        __syncthreads();
        for (int key = 0; key < kRowsK; ++key) {
            row_sum += scores.cells[row][key];
            Threads::add_scaled(values, scores.cells[row][key], kv_tile, key);
        }
        __syncthreads();
    }

    if (first_row + row < sequence.seqlen_q) {
        const bool any = row_sum > 0.0f;
        T* out = sequence.template q_rows<T>(args.out, head) + (first_row + row) * args.out.row_stride;
        Threads::store(values, any ? 1.0f / row_sum : 0.0f, out);
        if (Threads::lane() == 0) {
            sequence.stats(args.lse, head)[first_row + row] = any ? row_max + logf(row_sum) : -INFINITY;
        }
    }
}

template <typename Traits, typename TileShape>
void attn_fwd_launch(const stream_config& s, const attn_fwd_args& a) {
    const dim3 grid(attn::tile_count(a.shape.seqlen_q, TileShape::kRowsQ), static_cast<unsigned>(a.shape.nhead_q),
                    static_cast<unsigned>(a.shape.batch));
    launch_kernel(s, attn_fwd_kernel<Traits, TileShape>, grid, a);
}
