// The C API: checks arguments, lays out tensors, turns every failure into a status and a message.
#include "attention.h"

#include <cmath>
#include <exception>
#include <string>

#include "attn/attn_bwd.hpp"
#include "attn/attn_fwd.hpp"

namespace {

// A failure that already knows its status.
class AttentionError : public std::exception {
 public:
    AttentionError(attention_status status, std::string message) : m_status(status), m_message(std::move(message)) {}
    attention_status status() const { return m_status; }
    const char* what() const noexcept override { return m_message.c_str(); }

 private:
    attention_status m_status;
    std::string m_message;
};

std::string& last_error() {
    static thread_local std::string message;
    return message;
}

template <typename Action>
int guarded(Action action) {
    try {
        action();
        return ATTENTION_OK;
    } catch (const AttentionError& error) {
        last_error() = error.what();
        return error.status();
    } catch (const std::exception& error) {
        last_error() = error.what();
    } catch (...) {
        last_error() = "unknown error";
    }
    return ATTENTION_RUNTIME_ERROR;
}

void require(bool condition, const char* message) {
    if (!condition) {
        throw AttentionError(ATTENTION_INVALID_ARGUMENT, message);
    }
}

void check_problem(const attention_args* args) {
    require(args != nullptr, "args is null");
    require(args->struct_size == sizeof(attention_args), "args->struct_size is not that of this library's version");
    require(args->data_type >= ATTENTION_FP32 && args->data_type <= ATTENTION_BF16, "unknown data_type");
    require(args->mask >= ATTENTION_MASK_NONE && args->mask <= ATTENTION_MASK_WINDOW, "unknown mask");
    require(args->bias >= ATTENTION_BIAS_NONE && args->bias <= ATTENTION_BIAS_ALIBI, "unknown bias");
    require(args->head_dim > 0, "head_dim must be positive");
}

void check_shape(const attention_args& args) {
    require(args.batch > 0 && args.seqlen_q > 0 && args.seqlen_k > 0, "batch and sequence lengths must be positive");
    require(args.nhead_q > 0 && args.nhead_k > 0, "head counts must be positive");
    require(args.nhead_q % args.nhead_k == 0, "nhead_k must divide nhead_q");
    require(!args.is_group || args.total_q > 0, "total_q must be positive in group mode");
}

void check_pointers(const attention_args& args) {
    require(args.q && args.k && args.v && args.out && args.lse, "q, k, v, out and lse must not be null");
    require(!args.is_group || (args.seqstart_q && args.seqstart_k), "group mode needs seqstart_q and seqstart_k");
    require(args.bias != ATTENTION_BIAS_ALIBI || args.alibi_slopes, "ALiBi needs alibi_slopes");
}

attn_problem problem_of(const attention_args& args) {
    return {args.head_dim, static_cast<attn_data_type>(args.data_type), args.is_group != 0,
            static_cast<attn_mask>(args.mask), static_cast<attn_bias>(args.bias)};
}

std::string variant_name(const char* direction, const attention_args& args) {
    static const char* const k_data_types[] = {"fp32", "fp16", "bf16"};
    static const char* const k_masks[] = {"nomask", "causal", "window"};
    static const char* const k_biases[] = {"nobias", "alibi"};
    return std::string("attn_") + direction + "_d" + std::to_string(args.head_dim) + "_" +
           k_data_types[args.data_type] + "_" + (args.is_group ? "group" : "batch") + "_" + k_masks[args.mask] + "_" +
           k_biases[args.bias];
}

[[noreturn]] void throw_not_built(const char* direction, const attention_args& args) {
    throw AttentionError(ATTENTION_VARIANT_NOT_BUILT,
                         "variant not built: " + variant_name(direction, args) + " is not part of this library");
}

attn_shape shape_of(const attention_args& args) {
    const float scale = args.scale != 0.0f ? args.scale : 1.0f / std::sqrt(static_cast<float>(args.head_dim));
    return {args.batch,       args.seqlen_q,     args.seqlen_k,   args.nhead_q,    args.nhead_k,     scale,
            args.window_left, args.window_right, args.seqstart_q, args.seqstart_k, args.alibi_slopes};
}

template <typename Data>
attn_tensor<Data> tensor(Data* data, int rows, int nhead, int head_dim) {
    const std::int64_t row_stride = static_cast<std::int64_t>(nhead) * head_dim;
    return {data, rows * row_stride, row_stride, head_dim};
}

template <typename Data>
attn_tensor<Data> q_like(const attention_args& args, Data* data) {
    return tensor(data, args.seqlen_q, args.nhead_q, args.head_dim);
}

template <typename Data>
attn_tensor<Data> k_like(const attention_args& args, Data* data) {
    return tensor(data, args.seqlen_k, args.nhead_k, args.head_dim);
}

template <typename Data>
attn_row_stats<Data> stats(const attention_args& args, Data* data) {
    const std::int64_t rows = args.is_group ? args.total_q : args.seqlen_q;
    return {data, args.nhead_q * rows, rows};
}

std::size_t workspace_size(const attention_args& args) {
    const std::size_t rows =
        args.is_group ? static_cast<std::size_t>(args.total_q) : static_cast<std::size_t>(args.batch) * args.seqlen_q;
    return rows * args.nhead_q * sizeof(float);
}

stream_config config_of(const attention_args& args) {
    stream_config config;
    config.stream = static_cast<gpu_stream_t>(args.stream);
    config.time_kernel = args.elapsed_ms != nullptr;
    config.log_level = args.log_level;
    return config;
}

// Reports the result of a dispatcher, which returns a negative time if it has no such variant.
void finish(float elapsed_ms, const char* direction, const attention_args& args) {
    if (elapsed_ms < 0.0f) {
        throw_not_built(direction, args);
    }
    if (args.elapsed_ms != nullptr) {
        *args.elapsed_ms = elapsed_ms;
    }
}

void forward(const attention_args& args) {
    check_pointers(args);
    attn_fwd_args a;
    a.shape = shape_of(args);
    a.q = q_like(args, args.q);
    a.k = k_like(args, args.k);
    a.v = k_like(args, args.v);
    a.out = q_like(args, args.out);
    a.lse = stats(args, args.lse);
    finish(attn_fwd(problem_of(args), a, config_of(args)), "fwd", args);
}

void backward(const attention_args& args) {
    check_pointers(args);
    require(args.dout && args.dq && args.dk && args.dv, "dout, dq, dk and dv must not be null");
    require(args.workspace, "workspace must not be null; see attention_backward_workspace_size");
    attn_bwd_args a;
    a.shape = shape_of(args);
    a.q = q_like(args, args.q);
    a.k = k_like(args, args.k);
    a.v = k_like(args, args.v);
    a.out = q_like(args, static_cast<const void*>(args.out));
    a.dout = q_like(args, args.dout);
    a.lse = stats(args, static_cast<const float*>(args.lse));
    a.delta = stats(args, static_cast<float*>(args.workspace));
    a.dq = q_like(args, args.dq);
    a.dk = k_like(args, args.dk);
    a.dv = k_like(args, args.dv);
    finish(attn_bwd(problem_of(args), a, config_of(args)), "bwd", args);
}

}  // namespace

extern "C" {

int attention_forward(const attention_args* args) {
    return guarded([&] {
        check_problem(args);
        check_shape(*args);
        forward(*args);
    });
}

int attention_backward(const attention_args* args) {
    return guarded([&] {
        check_problem(args);
        check_shape(*args);
        backward(*args);
    });
}

size_t attention_backward_workspace_size(const attention_args* args) {
    std::size_t size = 0;
    guarded([&] {
        check_problem(args);
        check_shape(*args);
        size = workspace_size(*args);
    });
    return size;
}

int attention_backward_name(const attention_args* args, char* name, size_t name_size) {
    return guarded([&] {
        check_problem(args);
        require(name != nullptr, "name is null");
        const std::string found = attn_bwd_name(problem_of(*args));
        if (found.empty()) {
            throw_not_built("bwd", *args);
        }
        require(found.size() < name_size, "the buffer is too small for the name");
        found.copy(name, found.size());
        name[found.size()] = '\0';
    });
}

const char* attention_version(void) { return "1.0.0"; }

const char* attention_last_error(void) { return last_error().c_str(); }

int attention_device_count(int* count) {
    return guarded([&] {
        require(count != nullptr, "count is null");
        check_gpu(gpu_device_count(count), "counting devices failed");
    });
}

int attention_malloc(void** pointer, size_t bytes) {
    return guarded([&] {
        require(pointer != nullptr, "pointer is null");
        check_gpu(gpu_malloc(pointer, bytes), "allocating device memory failed");
    });
}

int attention_free(void* pointer) {
    return guarded([&] { check_gpu(gpu_free(pointer), "freeing device memory failed"); });
}

int attention_copy_to_device(void* device, const void* host, size_t bytes) {
    return guarded([&] { check_gpu(gpu_copy_to_device(device, host, bytes), "copying to the device failed"); });
}

int attention_copy_to_host(void* host, const void* device, size_t bytes) {
    return guarded([&] { check_gpu(gpu_copy_to_host(host, device, bytes), "copying to the host failed"); });
}

int attention_synchronize(void) {
    return guarded([] { check_gpu(gpu_device_synchronize(), "waiting for the device failed"); });
}

}  // extern "C"
