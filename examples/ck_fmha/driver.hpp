// What the two drivers share: device memory, the sizes of the one problem that they pose, and the way a call ends.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

constexpr int k_batch = 1, k_heads = 2, k_seqlen = 256;

inline void* device_buffer(std::size_t bytes) {
    void* p = nullptr;
    if (hipMalloc(&p, bytes) != hipSuccess) {
        std::fprintf(stderr, "hipMalloc of %zu bytes failed\n", bytes);
        std::exit(2);
    }
    return p;
}

inline std::size_t elements(int hdim) { return std::size_t{k_batch} * k_seqlen * k_heads * hdim; }

inline void* tensor(int hdim) { return device_buffer(2 * elements(hdim)); }  // fp16

inline void* float_tensor(int hdim, int copies = 1) { return device_buffer(sizeof(float) * copies * elements(hdim)); }

inline void* float_per_row(int copies = 1) {
    return device_buffer(sizeof(float) * copies * k_batch * k_heads * k_seqlen);
}

// Shapes and strides that all of CK's attention arguments have: [batch, seqlen, heads, head dim], dense.
template <typename Args>
void set_shapes(Args& args, int hdim) {
    args.batch = k_batch;
    args.seqlen_q = args.seqlen_k = args.max_seqlen_q = k_seqlen;
    args.hdim_q = args.hdim_v = hdim;
    args.nhead_q = args.nhead_k = k_heads;
    args.q_ptr = tensor(hdim);
    args.k_ptr = tensor(hdim);
    args.v_ptr = tensor(hdim);
    args.o_ptr = tensor(hdim);
    args.lse_ptr = float_per_row();
    args.stride_q = args.stride_k = args.stride_v = args.stride_o = k_heads * hdim;
    args.nhead_stride_q = args.nhead_stride_k = args.nhead_stride_v = args.nhead_stride_o = hdim;
    args.batch_stride_q = args.batch_stride_k = args.batch_stride_v = args.batch_stride_o = k_seqlen * k_heads * hdim;
}

// Calls `variant(head dim)`, which returns CK's time or a negative number, and gives the process's status: 0, 3 where
// no kernel fitted, 4 for an exception.
template <typename Variant>
int report(Variant variant, const char* hdim) {
    try {
        const float r = variant(std::atoi(hdim));
        std::printf("returned %g\n", r);
        return r < 0 ? 3 : 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "exception: %s\n", e.what());
        return 4;
    }
}
