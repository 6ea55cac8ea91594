// Calls CK's backward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head dim from argv[1].
#include "driver.hpp"
#include "fmha_bwd.hpp"

namespace {

float backward(int hdim) {
    fmha_bwd_traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.mask_type = mask_enum::mask_top_left;
    traits.bias_type = bias_enum::no_bias;

    const auto args = backward_args<fmha_bwd_args>(hdim);
    return fmha_bwd<>(traits, args, ck_tile::stream_config{});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM\n", argv[0]);
        return 2;
    }
    return report(backward, argv[1]);
}
