// Calls aiter's backward attention once, through the C++ interface that libmha_bwd.so exports: batch mode, fp16,
// causal, head dim from argv[1].
#include "driver.hpp"
#include "mha_bwd.h"

namespace {

float backward(int hdim) {
    const int row = k_heads * hdim;
    aiter::mha_bwd_args args{};
    set_shapes(args, hdim);
    args.max_seqlen_k = k_seqlen;
    args.scale = 0.125f;
    args.do_ptr = tensor(hdim);
    args.dq_ptr = tensor(hdim);
    args.dk_ptr = tensor(hdim);
    args.dv_ptr = tensor(hdim);
    args.dq_acc_ptr = float_tensor(hdim);
    args.d_ptr = float_per_row();
    args.stride_do = args.stride_dq = args.stride_dk = args.stride_dv = args.stride_dq_acc = row;
    args.nhead_stride_do = args.nhead_stride_dq = args.nhead_stride_dk = args.nhead_stride_dv = hdim;
    args.nhead_stride_dq_acc = hdim;
    args.nhead_stride_lsed = k_seqlen;
    args.batch_stride_do = args.batch_stride_dq = args.batch_stride_dk = args.batch_stride_dv = k_seqlen * row;
    args.batch_stride_dq_acc = k_seqlen * row;
    args.batch_stride_lsed = k_heads * k_seqlen;
    args.window_size_left = -1;
    args.window_size_right = 0;
    args.mask_type = static_cast<ck_tile::index_t>(mask_enum::mask_top_left);
    args.p_undrop = 1.0f;
    args.drop_seed_offset = std::make_pair(uint64_t{0}, uint64_t{0});
    return aiter::mha_bwd(args, ck_tile::stream_config{}, "fp16",
                          /*is_group_mode=*/false, mask_enum::mask_top_left, bias_enum::no_bias,
                          /*has_dbias=*/false,
                          /*is_store_randval=*/false,
                          /*deterministic=*/false,
                          /*use_ext_asm=*/false,
                          /*is_v3_atomic_fp32=*/false,
                          /*how_v3_bf16_cvt=*/0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM\n", argv[0]);
        return 2;
    }
    return report(backward, argv[1]);
}
