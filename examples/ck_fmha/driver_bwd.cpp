// Calls CK's backward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head dim from argv[1].
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "fmha_bwd.hpp"

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

float backward(int hdim) {
    const std::size_t elements = std::size_t{k_batch} * k_seqlen * k_heads * hdim;
    const int row = k_heads * hdim;
    fmha_bwd_traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.mask_type = mask_enum::mask_top_left;
    traits.bias_type = bias_enum::no_bias;

    fmha_bwd_args args{};
    for (const void** p : {&args.q_ptr, &args.k_ptr, &args.v_ptr, &args.o_ptr, &args.do_ptr}) {
        *p = device_buffer(2 * elements);
    }
    for (void** p : {&args.dq_ptr, &args.dk_ptr, &args.dv_ptr}) *p = device_buffer(2 * elements);
    args.dq_acc_ptr = device_buffer(sizeof(float) * elements);
    args.lse_ptr = device_buffer(sizeof(float) * k_batch * k_heads * k_seqlen);
    args.d_ptr = device_buffer(sizeof(float) * k_batch * k_heads * k_seqlen);
    args.batch = k_batch;
    args.seqlen_q = args.seqlen_k = args.max_seqlen_q = args.max_seqlen_k = k_seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.nhead_q = args.nhead_k = k_heads;
    args.scale = 0.125f;
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = args.stride_do = row;
    args.stride_dq = args.stride_dk = args.stride_dv = args.stride_dq_acc = row;
    args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = args.nhead_stride_do = hdim;
    args.nhead_stride_dq = args.nhead_stride_dk = args.nhead_stride_dv = args.nhead_stride_dq_acc = hdim;
    args.nhead_stride_lsed = k_seqlen;
    args.batch_stride_q = args.batch_stride_k = args.batch_stride_v = k_seqlen * row;
    args.batch_stride_o = args.batch_stride_do = k_seqlen * row;
    args.batch_stride_dq = args.batch_stride_dk = args.batch_stride_dv = args.batch_stride_dq_acc = k_seqlen * row;
    args.batch_stride_lsed = k_heads * k_seqlen;
    args.window_size_left = -1;
    args.window_size_right = 0;
    args.mask_type = static_cast<ck_tile::index_t>(mask_enum::mask_top_left);
    args.p_undrop = 1.0f;
    args.drop_seed_offset = std::make_pair(uint64_t{0}, uint64_t{0});
    return fmha_bwd<>(traits, args, ck_tile::stream_config{});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM\n", argv[0]);
        return 2;
    }
    try {
        const float r = backward(std::atoi(argv[1]));
        std::printf("returned %g\n", r);
        return r < 0 ? 3 : 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "exception: %s\n", e.what());
        return 4;
    }
}
