// The values that distinguish variants, as runtime values (attn_problem) and as types
// (attn_*_traits).
#pragma once

#include "attn/portability.hpp"

enum class attn_data_type { fp32 = 0, fp16 = 1, bf16 = 2 };
enum class attn_mask { none = 0, causal = 1, window = 2 };
enum class attn_bias { none = 0, alibi = 1 };

// The dispatchers choose a variant by these values.
struct attn_problem {
    int head_dim;
    attn_data_type data_type;
    bool is_group;  // sequences of different lengths, packed one behind the other
    attn_mask mask;
    attn_bias bias;
};

struct Fp32 {
    using storage = float;
};
struct Fp16 {
    using storage = __half;
};
struct Bf16 {
    using storage = attn::BFloat16;
};

template <int kHeadDim_, typename DataType_, bool kIsGroup_, attn_mask kMask_, attn_bias kBias_>
struct attn_fwd_traits {
    static constexpr int kHeadDim = kHeadDim_;
    using DataType = DataType_;
    static constexpr bool kIsGroup = kIsGroup_;
    static constexpr attn_mask kMask = kMask_;
    static constexpr attn_bias kBias = kBias_;
};

// A type of its own ensures that a backward variant never shares a mangled name with a forward one.
template <int kHeadDim_, typename DataType_, bool kIsGroup_, attn_mask kMask_, attn_bias kBias_>
struct attn_bwd_traits : attn_fwd_traits<kHeadDim_, DataType_, kIsGroup_, kMask_, kBias_> {};

// How many query and key rows one block holds in shared memory.
template <int kRowsQ_, int kRowsK_>
struct attn_tile {
    static constexpr int kRowsQ = kRowsQ_;
    static constexpr int kRowsK = kRowsK_;
};
