// Calls aiter's backward attention once, through the C++ interface that libmha_bwd.so exports:
// batch mode, fp16, causal, head dim from argv[1].
#include "driver.hpp"
#include "mha_bwd.h"

namespace {

float backward(int hdim) {
    const auto args = backward_args<aiter::mha_bwd_args>(hdim);
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
