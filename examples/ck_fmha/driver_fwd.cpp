// Calls CK's forward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head dim from argv[1].
// argv[2], when given, must be "splitkv": then the split-kv dispatcher is called (head dim 160 has no such kernel).
#include <cstring>

#include "driver.hpp"
#include "fmha_fwd.hpp"

namespace {

template <typename Traits>
Traits make_traits(int hdim, mask_enum mask) {
    Traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.is_v_rowmajor = true;
    traits.mask_type = mask;
    traits.bias_type = bias_enum::no_bias;
    traits.has_lse = true;
    return traits;
}

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
    auto args = make_args<fmha_fwd_args>(hdim);
    args.window_size_right = 0;
    args.mask_type = static_cast<ck_tile::index_t>(mask_enum::mask_top_left);
    args.drop_seed_offset = std::make_pair(uint64_t{0}, uint64_t{0});
    return fmha_fwd(make_traits<fmha_fwd_traits>(hdim, mask_enum::mask_top_left), args, ck_tile::stream_config{});
}

float split_kv(int hdim) {
    auto args = make_args<fmha_fwd_splitkv_args>(hdim);
    args.num_splits = 4;
    args.lse_acc_ptr = float_per_row(args.num_splits);
    args.o_acc_ptr = float_tensor(hdim, args.num_splits);
    args.stride_o_acc = k_heads * hdim;
    args.nhead_stride_lse_acc = k_seqlen;
    args.nhead_stride_o_acc = hdim;
    args.batch_stride_o_acc = args.split_stride_o_acc = k_seqlen * k_heads * hdim;
    args.batch_stride_lse_acc = args.split_stride_lse_acc = k_heads * k_seqlen;
    const auto traits = make_traits<fmha_fwd_splitkv_traits>(hdim, mask_enum::no_mask);
    return fmha_fwd_splitkv(traits, args, ck_tile::stream_config{});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM [splitkv]\n", argv[0]);
        return 2;
    }
    return report(argc > 2 && std::strcmp(argv[2], "splitkv") == 0 ? split_kv : forward, argv[1]);
}
