// Calls aiter's forward attention once, through the C++ interface that libmha_fwd.so exports: batch mode, fp16, causal,
// head dim from argv[1]. argv[2], when given, must be "splitkv": then aiter's split-kv interface is called.
#include <cstring>

#include "driver.hpp"
#include "mha_fwd.h"

namespace {

template <typename Args>
Args make_args(int hdim) {
    Args args{};
    set_shapes(args, hdim);
    args.scale_s = 0.125f;
    args.scale_p = args.scale_o = 1.0f;
    args.nhead_stride_lse = k_seqlen;
    args.batch_stride_lse = k_heads * k_seqlen;
    args.window_size_left = args.window_size_right = -1;
    return args;
}

float forward(int hdim) {
    auto args = make_args<aiter::mha_fwd_args>(hdim);
    args.window_size_right = 0;
    args.mask_type = static_cast<ck_tile::index_t>(mask_enum::mask_top_left);
    args.drop_seed_offset = std::make_pair(uint64_t{0}, uint64_t{0});
    return aiter::mha_fwd(args, ck_tile::stream_config{}, "fp16",
                          /*is_group_mode=*/false, mask_enum::mask_top_left, bias_enum::no_bias,
                          /*has_lse=*/true,
                          /*use_ext_asm=*/false);
}

float split_kv(int hdim) {
    auto args = make_args<aiter::mha_fwd_splitkv_args>(hdim);
    args.num_splits = 4;
    args.lse_acc_ptr = float_per_row(args.num_splits);
    args.o_acc_ptr = float_tensor(hdim, args.num_splits);
    args.stride_o_acc = k_heads * hdim;
    args.nhead_stride_lse_acc = k_seqlen;
    args.nhead_stride_o_acc = hdim;
    args.batch_stride_o_acc = args.split_stride_o_acc = k_seqlen * k_heads * hdim;
    args.batch_stride_lse_acc = args.split_stride_lse_acc = k_heads * k_seqlen;
    return aiter::mha_fwd_splitkv(args, ck_tile::stream_config{}, "fp16",
                                  /*is_group_mode=*/false, mask_enum::no_mask, bias_enum::no_bias,
                                  /*has_lse=*/true);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM [splitkv]\n", argv[0]);
        return 2;
    }
    return report(argc > 2 && std::strcmp(argv[2], "splitkv") == 0 ? split_kv : forward, argv[1]);
}
