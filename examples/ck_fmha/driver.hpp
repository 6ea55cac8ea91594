// What the two drivers share: device memory, the sizes of the one problem that they pose, its
// tensors in files, and the end of a call.
#pragma once
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr int k_batch = 1, k_heads = 2, k_seqlen = 256;
constexpr int k_mask_top_left = 1;  // CK's mask_enum::mask_top_left: causal

inline void* device_buffer(std::size_t bytes) {
    void* p = nullptr;
    if (hipMalloc(&p, bytes) != hipSuccess) {
        std::fprintf(stderr, "hipMalloc of %zu bytes failed\n", bytes);
        std::exit(2);
    }
    return p;
}

inline std::size_t elements(int hdim) { return std::size_t{k_batch} * k_seqlen * k_heads * hdim; }

inline std::size_t rows() { return std::size_t{k_batch} * k_heads * k_seqlen; }

inline void* tensor(int hdim) { return device_buffer(2 * elements(hdim)); }  // fp16

inline void* float_tensor(int hdim, int copies = 1) { return device_buffer(sizeof(float) * copies * elements(hdim)); }

inline void* float_per_row(int copies = 1) { return device_buffer(sizeof(float) * copies * rows()); }

// Loads and saves tensors in files of a directory, with the bytes that they have on the device.
// Without a directory the device's memory is left as it is, and nothing is read back.
class Tensors {
 public:
    explicit Tensors(const char* directory) : m_directory(directory == nullptr ? "" : directory) {}

    void load(void* device, const char* name, std::size_t bytes) const {
        if (m_directory.empty()) return;
        std::vector<char> host(bytes);
        std::ifstream in(path(name), std::ios::binary);
        if (!in.read(host.data(), static_cast<std::streamsize>(bytes)))
            throw std::runtime_error("reading " + path(name));
        check(hipMemcpy(device, host.data(), bytes, hipMemcpyHostToDevice), name);
    }

    void save(const void* device, const char* name, std::size_t bytes) const {
        if (m_directory.empty()) return;
        std::vector<char> host(bytes);
        check(hipMemcpy(host.data(), device, bytes, hipMemcpyDeviceToHost), name);
        std::ofstream out(path(name), std::ios::binary);
        if (!out.write(host.data(), static_cast<std::streamsize>(bytes)))
            throw std::runtime_error("writing " + path(name));
    }

 private:
    static void check(hipError_t error, const char* name) {
        if (error != hipSuccess) throw std::runtime_error(std::string(name) + ": " + hipGetErrorString(error));
    }
    std::string path(const char* name) const { return m_directory + "/" + name; }

    std::string m_directory;
};

// Sets the shapes and strides that all of CK's attention arguments have: [batch, seqlen, heads,
// head dim], dense.
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

template <typename Args>
Args make_forward_args(int hdim) {
    Args args{};
    set_shapes(args, hdim);
    args.scale_s = 0.125f;
    args.scale_p = args.scale_o = 1.0f;
    args.nhead_stride_lse = k_seqlen;
    args.batch_stride_lse = k_heads * k_seqlen;
    args.window_size_left = args.window_size_right = -1;
    return args;
}

// Returns one forward problem: causal, with the logarithms of the sums.
template <typename Args>
Args forward_args(int hdim) {
    auto args = make_forward_args<Args>(hdim);
    args.window_size_right = 0;
    args.mask_type = k_mask_top_left;
    args.drop_seed_offset = std::make_pair(std::uint64_t{0}, std::uint64_t{0});
    return args;
}

// Returns a forward problem in four splits, without a mask.
template <typename Args>
Args split_kv_args(int hdim) {
    auto args = make_forward_args<Args>(hdim);
    args.num_splits = 4;
    args.lse_acc_ptr = float_per_row(args.num_splits);
    args.o_acc_ptr = float_tensor(hdim, args.num_splits);
    args.stride_o_acc = k_heads * hdim;
    args.nhead_stride_lse_acc = k_seqlen;
    args.nhead_stride_o_acc = hdim;
    args.batch_stride_o_acc = args.split_stride_o_acc = k_seqlen * k_heads * hdim;
    args.batch_stride_lse_acc = args.split_stride_lse_acc = k_heads * k_seqlen;
    return args;
}

// Returns one backward problem: causal.
template <typename Args>
Args backward_args(int hdim) {
    const int row = k_heads * hdim;
    Args args{};
    set_shapes(args, hdim);
    args.max_seqlen_k = k_seqlen;
    args.scale = 0.125f;
    args.do_ptr = tensor(hdim);
    args.dq_ptr = tensor(hdim);
    args.dk_ptr = tensor(hdim);
    args.dv_ptr = tensor(hdim);
    args.dq_acc_ptr = float_tensor(hdim);  // the kernel adds to it
    if (hipMemset(args.dq_acc_ptr, 0, sizeof(float) * elements(hdim)) != hipSuccess) std::exit(2);
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
    args.mask_type = k_mask_top_left;
    args.p_undrop = 1.0f;
    args.drop_seed_offset = std::make_pair(std::uint64_t{0}, std::uint64_t{0});
    return args;
}

// Calls `variant(head dim, tensors)`, which returns CK's time or a negative number. Returns the
// process's status: 0, 3 where no kernel fitted, 4 for an exception.
template <typename Variant>
int report(Variant variant, const char* hdim, const char* directory) {
    try {
        const float r = variant(std::atoi(hdim), Tensors(directory));
        std::printf("returned %g\n", r);
        return r < 0 ? 3 : 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "exception: %s\n", e.what());
        return 4;
    }
}
