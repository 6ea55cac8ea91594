// The backward kernels. Probabilities are computed again from the scores and the forward pass's
// lse. Every output element has one owner that adds in a fixed order, so results do not differ from
// run to run.
#pragma once

#include "attn/attn_bwd.hpp"
#include "attn/device.hpp"

// Computes delta[row] = dot(dout[row], out[row]).
template <typename Traits, typename TileShape>
__global__ void __launch_bounds__(k_block_threads) attn_bwd_dot_do_o_kernel(attn_bwd_args args) {
    using T = typename Traits::DataType::storage;
    constexpr int kRowsQ = TileShape::kRowsQ;
    using Threads = attn::RowThreads<kRowsQ, Traits::kHeadDim>;
    __shared__ attn::Tile<kRowsQ, Threads::kLanes> partial;

    const int head = static_cast<int>(blockIdx.y);
    const attn::Sequence<Traits::kIsGroup> sequence(args.shape, static_cast<int>(blockIdx.z));
    const int row = static_cast<int>(blockIdx.x) * kRowsQ + Threads::row();
    float sum = 0.0f;
    if (row < sequence.seqlen_q) {
        const T* out = sequence.template q_rows<const T>(args.out, head) + row * args.out.row_stride;
        const T* dout = sequence.template q_rows<const T>(args.dout, head) + row * args.dout.row_stride;
        for (int d = Threads::lane(); d < Traits::kHeadDim; d += Threads::kLanes) {
            sum += attn::to_float(out[d]) * attn::to_float(dout[d]);
        }
    }
    partial.cells[Threads::row()][Threads::lane()] = sum;
    __syncthreads();
    if (row < sequence.seqlen_q && Threads::lane() == 0) {
        for (int lane = 1; lane < Threads::kLanes; ++lane) {
            sum += partial.cells[Threads::row()][lane];
        }
        sequence.stats(args.delta, head)[row] = sum;
    }
}

namespace attn {

// Computes the probability and the score gradient of one (row, key) pair.
struct PairGradient {
    float probability;
    float dscore;
};

template <typename Traits, int kRowsQ, int kRowsK>
__device__ PairGradient pair_gradient(const ScoreRule<Traits>& rule, float scale, int first_row, int row, int first_key,
                                      int key, const Tile<kRowsQ, Traits::kHeadDim>& q_tile,
                                      const Tile<kRowsQ, Traits::kHeadDim>& dout_tile,
                                      const Tile<kRowsK, Traits::kHeadDim>& k_tile,
                                      const Tile<kRowsK, Traits::kHeadDim>& v_tile, const float* lse,
                                      const float* delta) {
    if (!rule.sees(first_row + row, first_key + key)) {
        return {0.0f, 0.0f};
    }
    const float score = rule.score(dot_rows(q_tile, row, k_tile, key), first_row + row, first_key + key);
    const float probability = expf(score - lse[first_row + row]);
    const float dprobability = dot_rows(dout_tile, row, v_tile, key);
    return {probability, probability * (dprobability - delta[first_row + row]) * scale};
}

}  // namespace attn

// Runs one block per tile of keys, key head and sequence. A block visits all query heads that share
// the key head.
template <typename Traits, typename TileShape>
__global__ void __launch_bounds__(k_block_threads) attn_bwd_dk_dv_kernel(attn_bwd_args args) {
    using T = typename Traits::DataType::storage;
    constexpr int kRowsQ = TileShape::kRowsQ;
    constexpr int kRowsK = TileShape::kRowsK;
    using Threads = attn::RowThreads<kRowsK, Traits::kHeadDim>;

    __shared__ attn::Tile<kRowsQ, Traits::kHeadDim> q_tile;
    __shared__ attn::Tile<kRowsQ, Traits::kHeadDim> dout_tile;
    __shared__ attn::Tile<kRowsK, Traits::kHeadDim> k_tile;
    __shared__ attn::Tile<kRowsK, Traits::kHeadDim> v_tile;
    __shared__ attn::Tile<kRowsK, kRowsQ> probabilities;
    __shared__ attn::Tile<kRowsK, kRowsQ> dscores;

    const int head_k = static_cast<int>(blockIdx.y);
    const int first_key = static_cast<int>(blockIdx.x) * kRowsK;
    const attn::Sequence<Traits::kIsGroup> sequence(args.shape, static_cast<int>(blockIdx.z));
    if (first_key >= sequence.seqlen_k) {
        return;
    }
    k_tile.load(sequence.template k_rows<const T>(args.k, head_k), args.k.row_stride, first_key, sequence.seqlen_k);
    v_tile.load(sequence.template k_rows<const T>(args.v, head_k), args.v.row_stride, first_key, sequence.seqlen_k);

    const int key = Threads::row();
    float dk[Threads::kPerLane] = {};
    float dv[Threads::kPerLane] = {};
    const int heads_per_key_head = args.shape.nhead_q / args.shape.nhead_k;
    for (int head = head_k * heads_per_key_head; head < (head_k + 1) * heads_per_key_head; ++head) {
        const attn::ScoreRule<Traits> rule(args.shape, sequence, head);
        const T* q = sequence.template q_rows<const T>(args.q, head);
        const T* dout = sequence.template q_rows<const T>(args.dout, head);
        const float* lse = sequence.stats(args.lse, head);
        const float* delta = sequence.stats(args.delta, head);
        const int last_row = rule.rows_end(first_key, kRowsK);
        for (int first_row = rule.rows_begin(first_key, kRowsQ); first_row < last_row; first_row += kRowsQ) {
            q_tile.load(q, args.q.row_stride, first_row, sequence.seqlen_q);
            dout_tile.load(dout, args.dout.row_stride, first_row, sequence.seqlen_q);
            __syncthreads();
            for (int row = Threads::lane(); row < kRowsQ; row += Threads::kLanes) {
                const attn::PairGradient pair =
                    attn::pair_gradient<Traits, kRowsQ, kRowsK>(rule, args.shape.scale, first_row, row, first_key, key,
                                                                q_tile, dout_tile, k_tile, v_tile, lse, delta);
                probabilities.cells[key][row] = pair.probability;
                dscores.cells[key][row] = pair.dscore;
            }
            __syncthreads();
            for (int row = 0; row < kRowsQ; ++row) {
                Threads::add_scaled(dv, probabilities.cells[key][row], dout_tile, row);
                Threads::add_scaled(dk, dscores.cells[key][row], q_tile, row);
            }
            __syncthreads();
        }
    }
    if (first_key + key < sequence.seqlen_k) {
        T* dk_row = sequence.template k_rows<T>(args.dk, head_k) + (first_key + key) * args.dk.row_stride;
        T* dv_row = sequence.template k_rows<T>(args.dv, head_k) + (first_key + key) * args.dv.row_stride;
        Threads::store(dk, 1.0f, dk_row);
        Threads::store(dv, 1.0f, dv_row);
    }
}

// Runs one block per tile of query rows, head and sequence.
template <typename Traits, typename TileShape>
__global__ void __launch_bounds__(k_block_threads) attn_bwd_dq_kernel(attn_bwd_args args) {
    using T = typename Traits::DataType::storage;
    constexpr int kRowsQ = TileShape::kRowsQ;
    constexpr int kRowsK = TileShape::kRowsK;
    using Threads = attn::RowThreads<kRowsQ, Traits::kHeadDim>;

    __shared__ attn::Tile<kRowsQ, Traits::kHeadDim> q_tile;
    __shared__ attn::Tile<kRowsQ, Traits::kHeadDim> dout_tile;
    __shared__ attn::Tile<kRowsK, Traits::kHeadDim> k_tile;
    __shared__ attn::Tile<kRowsK, Traits::kHeadDim> v_tile;
    __shared__ attn::Tile<kRowsQ, kRowsK> dscores;

    const int head = static_cast<int>(blockIdx.y);
    const int head_k = head / (args.shape.nhead_q / args.shape.nhead_k);
    const int first_row = static_cast<int>(blockIdx.x) * kRowsQ;
    const attn::Sequence<Traits::kIsGroup> sequence(args.shape, static_cast<int>(blockIdx.z));
    if (first_row >= sequence.seqlen_q) {
        return;
    }
    const attn::ScoreRule<Traits> rule(args.shape, sequence, head);
    const T* k = sequence.template k_rows<const T>(args.k, head_k);
    const T* v = sequence.template k_rows<const T>(args.v, head_k);
    const float* lse = sequence.stats(args.lse, head);
    const float* delta = sequence.stats(args.delta, head);
    q_tile.load(sequence.template q_rows<const T>(args.q, head), args.q.row_stride, first_row, sequence.seqlen_q);
    dout_tile.load(sequence.template q_rows<const T>(args.dout, head), args.dout.row_stride, first_row,
                   sequence.seqlen_q);

    const int row = Threads::row();
    float dq[Threads::kPerLane] = {};
    const int last_key = rule.keys_end(first_row, kRowsQ);
    for (int first_key = rule.keys_begin(first_row, kRowsK); first_key < last_key; first_key += kRowsK) {
        k_tile.load(k, args.k.row_stride, first_key, sequence.seqlen_k);
        v_tile.load(v, args.v.row_stride, first_key, sequence.seqlen_k);
        __syncthreads();
        for (int key = Threads::lane(); key < kRowsK; key += Threads::kLanes) {
            dscores.cells[row][key] =
                attn::pair_gradient<Traits, kRowsQ, kRowsK>(rule, args.shape.scale, first_row, row, first_key, key,
                                                            q_tile, dout_tile, k_tile, v_tile, lse, delta)
                    .dscore;
        }
        __syncthreads();
        for (int key = 0; key < kRowsK; ++key) {
            Threads::add_scaled(dq, dscores.cells[row][key], k_tile, key);
        }
        __syncthreads();
    }
    if (first_row + row < sequence.seqlen_q) {
        T* dq_row = sequence.template q_rows<T>(args.dq, head) + (first_row + row) * args.dq.row_stride;
        Threads::store(dq, 1.0f, dq_row);
    }
}

template <typename Traits, typename TileShape>
void attn_bwd_launch(const stream_config& s, const attn_bwd_args& a) {
    const unsigned batch = static_cast<unsigned>(a.shape.batch);
    const dim3 grid_q(attn::tile_count(a.shape.seqlen_q, TileShape::kRowsQ), static_cast<unsigned>(a.shape.nhead_q),
                      batch);
    const dim3 grid_k(attn::tile_count(a.shape.seqlen_k, TileShape::kRowsK), static_cast<unsigned>(a.shape.nhead_k),
                      batch);
    launch_kernel(s, attn_bwd_dot_do_o_kernel<Traits, TileShape>, grid_q, a);
    launch_kernel(s, attn_bwd_dk_dv_kernel<Traits, TileShape>, grid_k, a);
    launch_kernel(s, attn_bwd_dq_kernel<Traits, TileShape>, grid_q, a);
}
