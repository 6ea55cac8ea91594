// Calls CK's forward attention dispatcher once, as flash-attn does: batch mode, fp16, causal, head
// dim from argv[1]. argv[2] may be "splitkv" to call the split-kv dispatcher (head dim 160 has no
// such kernel), or a directory with the tensors q, k and v; o and lse are written there.
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

float forward(int hdim, const Tensors& tensors) {
    const auto args = forward_args<fmha_fwd_args>(hdim);
    const std::size_t bytes = 2 * elements(hdim);
    tensors.load(const_cast<void*>(args.q_ptr), "q", bytes);
    tensors.load(const_cast<void*>(args.k_ptr), "k", bytes);
    tensors.load(const_cast<void*>(args.v_ptr), "v", bytes);
    const auto traits = make_traits<fmha_fwd_traits>(hdim, mask_enum::mask_top_left);
    const float time = fmha_fwd(traits, args, ck_tile::stream_config{});
    tensors.save(args.o_ptr, "o", bytes);
    tensors.save(args.lse_ptr, "lse", sizeof(float) * rows());
    return time;
}

float split_kv(int hdim, const Tensors&) {
    const auto args = split_kv_args<fmha_fwd_splitkv_args>(hdim);
    const auto traits = make_traits<fmha_fwd_splitkv_traits>(hdim, mask_enum::no_mask);
    return fmha_fwd_splitkv(traits, args, ck_tile::stream_config{});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s HEAD_DIM [splitkv|DIRECTORY]\n", argv[0]);
        return 2;
    }
    const bool is_split = argc > 2 && std::strcmp(argv[2], "splitkv") == 0;
    return report(is_split ? split_kv : forward, argv[1], argc > 2 && !is_split ? argv[2] : nullptr);
}
