// Calls CK's forward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head dim from argv[1].
// argv[2], when given, must be "splitkv": then the split-kv dispatcher is called (head dim 160 has no such kernel).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "fmha_fwd.hpp"

namespace {

void* device_buffer(std::size_t bytes) {
    void* p = nullptr;
    if (hipMalloc(&p, bytes) != hipSuccess) {
        std::fprintf(stderr, "hipMalloc of %zu bytes failed\n", bytes);
        std::exit(2);
    }
    return p;
}

constexpr int k_batch = 1, k_heads = 2, k_seqlen = 256;

float forward(int hdim) {
    const std::size_t elements = std::size_t{k_batch} * k_seqlen * k_heads * hdim;
    fmha_fwd_traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.is_v_rowmajor = true;
    traits.mask_type = mask_enum::mask_top_left;
    traits.bias_type = bias_enum::no_bias;
    traits.has_lse = true;

    fmha_fwd_args args{};
    args.q_ptr = device_buffer(2 * elements);
    args.k_ptr = device_buffer(2 * elements);
    args.v_ptr = device_buffer(2 * elements);
    args.o_ptr = device_buffer(2 * elements);
    args.lse_ptr = device_buffer(sizeof(float) * k_batch * k_heads * k_seqlen);
    args.batch = k_batch;
    args.seqlen_q = args.seqlen_k = args.max_seqlen_q = k_seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.nhead_q = args.nhead_k = k_heads;
    args.scale_s = 0.125f;
    args.scale_p = args.scale_o = 1.0f;
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = k_heads * hdim;
    args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = hdim;
    args.nhead_stride_lse = k_seqlen;
    args.batch_stride_q = args.batch_stride_k = args.batch_stride_v = args.batch_stride_o = k_seqlen * k_heads * hdim;
    args.batch_stride_lse = k_heads * k_seqlen;
    args.window_size_left = -1;
    args.window_size_right = 0;
    args.mask_type = static_cast<ck_tile::index_t>(mask_enum::mask_top_left);
    args.drop_seed_offset = std::make_pair(uint64_t{0}, uint64_t{0});
    return fmha_fwd(traits, args, ck_tile::stream_config{});
}

float split_kv(int hdim) {
    const std::size_t elements = std::size_t{k_batch} * k_seqlen * k_heads * hdim;
    fmha_fwd_splitkv_traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.is_v_rowmajor = true;
    traits.mask_type = mask_enum::no_mask;
    traits.bias_type = bias_enum::no_bias;
    traits.has_lse = true;

    fmha_fwd_splitkv_args args{};
    args.q_ptr = device_buffer(2 * elements);
    args.k_ptr = device_buffer(2 * elements);
    args.v_ptr = device_buffer(2 * elements);
    args.o_ptr = device_buffer(2 * elements);
    args.lse_ptr = device_buffer(sizeof(float) * k_batch * k_heads * k_seqlen);
    args.num_splits = 4;
    args.lse_acc_ptr = device_buffer(sizeof(float) * args.num_splits * k_batch * k_heads * k_seqlen);
    args.o_acc_ptr = device_buffer(sizeof(float) * args.num_splits * elements);
    args.batch = k_batch;
    args.seqlen_q = args.seqlen_k = args.max_seqlen_q = k_seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.nhead_q = args.nhead_k = k_heads;
    args.scale_s = 0.125f;
    args.scale_p = args.scale_o = 1.0f;
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = args.stride_o_acc = k_heads * hdim;
    args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = hdim;
    args.nhead_stride_lse = args.nhead_stride_lse_acc = k_seqlen;
    args.nhead_stride_o_acc = hdim;
    args.batch_stride_q = args.batch_stride_k = args.batch_stride_v = args.batch_stride_o = k_seqlen * k_heads * hdim;
    args.batch_stride_o_acc = args.split_stride_o_acc = k_seqlen * k_heads * hdim;
    args.batch_stride_lse = args.batch_stride_lse_acc = args.split_stride_lse_acc = k_heads * k_seqlen;
    args.window_size_left = args.window_size_right = -1;
    return fmha_fwd_splitkv(traits, args, ck_tile::stream_config{});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM [splitkv]\n", argv[0]);
        return 2;
    }
    try {
        const bool split = argc > 2 && std::strcmp(argv[2], "splitkv") == 0;
        const float r = split ? split_kv(std::atoi(argv[1])) : forward(std::atoi(argv[1]));
        std::printf("returned %g\n", r);
        return r < 0 ? 3 : 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "exception: %s\n", e.what());
        return 4;
    }
}
