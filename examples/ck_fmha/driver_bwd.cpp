// Calls CK's backward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head
// dim from argv[1]. argv[2] may be a directory with the tensors q, k, v, o, lse and do; dq, dk and
// dv are written there.
#include "driver.hpp"
#include "fmha_bwd.hpp"

namespace {

float backward(int hdim, const Tensors& tensors) {
    fmha_bwd_traits traits{};
    traits.hdim_q = traits.hdim_v = hdim;
    traits.data_type = "fp16";
    traits.mask_type = mask_enum::mask_top_left;
    traits.bias_type = bias_enum::no_bias;

    const auto args = backward_args<fmha_bwd_args>(hdim);
    const std::size_t bytes = 2 * elements(hdim);
    tensors.load(const_cast<void*>(args.q_ptr), "q", bytes);
    tensors.load(const_cast<void*>(args.k_ptr), "k", bytes);
    tensors.load(const_cast<void*>(args.v_ptr), "v", bytes);
    tensors.load(const_cast<void*>(args.o_ptr), "o", bytes);
    tensors.load(const_cast<void*>(args.do_ptr), "do", bytes);
    tensors.load(const_cast<void*>(args.lse_ptr), "lse", sizeof(float) * rows());
    const float time = fmha_bwd<>(traits, args, ck_tile::stream_config{});
    tensors.save(args.dq_ptr, "dq", bytes);
    tensors.save(args.dk_ptr, "dk", bytes);
    tensors.save(args.dv_ptr, "dv", bytes);
    return time;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM [DIRECTORY]\n", argv[0]);
        return 2;
    }
    return report(backward, argv[1], argc > 2 ? argv[2] : nullptr);
}
