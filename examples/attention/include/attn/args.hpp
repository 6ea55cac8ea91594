// The kernels' arguments: plain values, copied to the device with the launch.
#pragma once

#include <cstdint>

// A tensor [batch][row][head][head_dim]; the last dimension is contiguous, the others are strided
// (in elements). With packed sequences there is no batch stride: sequence b starts at row
// seqstart[b].
template <typename Data>
struct attn_tensor {
    Data* data;
    std::int64_t batch_stride;
    std::int64_t row_stride;
    std::int64_t nhead_stride;
};

// Holds one float per query row and head: [batch][head][row], or [head][row] with packed sequences.
template <typename Data>
struct attn_row_stats {
    Data* data;
    std::int64_t batch_stride;
    std::int64_t nhead_stride;
};

struct attn_shape {
    int batch;
    int seqlen_q;  // with packed sequences: the longest one
    int seqlen_k;
    int nhead_q;
    int nhead_k;  // divides nhead_q
    float scale;
    int window_left;  // keys visible left and right of the diagonal; negative: all
    int window_right;
    const int* seqstart_q;  // batch + 1 offsets, packed sequences only
    const int* seqstart_k;
    const float* alibi_slopes;  // one per query head
};

struct attn_fwd_args {
    attn_shape shape;
    attn_tensor<const void> q, k, v;
    attn_tensor<void> out;
    attn_row_stats<float> lse;  // log of the softmax's sum; -inf where a row sees no key
};

struct attn_bwd_args {
    attn_shape shape;
    attn_tensor<const void> q, k, v, out, dout;
    attn_row_stats<const float> lse;
    attn_row_stats<float> delta;  // workspace: dot(dout, out) of every row
    attn_tensor<void> dq, dk, dv;
};
