// Calls aiter's forward attention once, through the C++ interface that libmha_fwd.so exports: batch
// mode, fp16, causal, head dim from argv[1]. argv[2], if given, must be "splitkv", which calls
// aiter's split-kv interface.
#include <cstring>

#include "driver.hpp"
#include "mha_fwd.h"

namespace {

float forward(int hdim) {
    const auto args = forward_args<aiter::mha_fwd_args>(hdim);
    return aiter::mha_fwd(args, ck_tile::stream_config{}, "fp16",
                          /*is_group_mode=*/false, mask_enum::mask_top_left, bias_enum::no_bias,
                          /*has_lse=*/true,
                          /*use_ext_asm=*/false);
}

float split_kv(int hdim) {
    const auto args = split_kv_args<aiter::mha_fwd_splitkv_args>(hdim);
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
