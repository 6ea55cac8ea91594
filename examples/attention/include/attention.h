/* The public C API of libattention: scaled dot product attention, forward and backward.
 *
 * Every function that returns int returns an attention_status. attention_last_error() returns the
 * text of this thread's last failure. No C++ exception leaves the library. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum attention_status {
    ATTENTION_OK = 0,
    ATTENTION_INVALID_ARGUMENT = 1,
    ATTENTION_VARIANT_NOT_BUILT = 2, /* the library was built without the variant that these arguments need */
    ATTENTION_RUNTIME_ERROR = 3      /* the GPU, or whatever provides the variant, failed */
};

enum attention_data_type { ATTENTION_FP32 = 0, ATTENTION_FP16 = 1, ATTENTION_BF16 = 2 };
enum attention_mask { ATTENTION_MASK_NONE = 0, ATTENTION_MASK_CAUSAL = 1, ATTENTION_MASK_WINDOW = 2 };
enum attention_bias { ATTENTION_BIAS_NONE = 0, ATTENTION_BIAS_ALIBI = 1 };

/* All data pointers are device pointers to contiguous tensors:
 *   q, out, dout, dq [batch][seqlen_q][nhead_q][head_dim],
 *   k, v, dk, dv [batch][seqlen_k][nhead_k][head_dim],
 *   lse [batch][nhead_q][seqlen_q] of float.
 * In group mode sequences of different lengths are packed: [total][nhead][head_dim], with lse
 * [nhead_q][total_q]. Sequence b has the rows seqstart[b] .. seqstart[b + 1] - 1.
 * Masks are aligned at the last row and the last key. */
typedef struct attention_args {
    size_t struct_size; /* sizeof(attention_args) */
    int data_type;      /* enum attention_data_type */
    int mask;           /* enum attention_mask */
    int bias;           /* enum attention_bias */
    int is_group;
    int batch;
    int seqlen_q; /* group mode: the longest sequence */
    int seqlen_k;
    int total_q; /* group mode only: the rows of q */
    int nhead_q;
    int nhead_k; /* divides nhead_q */
    int head_dim;
    int window_left; /* window mask: keys visible on each side of the diagonal; negative: all */
    int window_right;
    int log_level;         /* 1: print the name of the backward variant that runs */
    float scale;           /* of the scores; 0: 1/sqrt(head_dim) */
    float* elapsed_ms;     /* host pointer, may be null; if not, the call waits for the GPU and stores the time */
    void* stream;          /* hipStream_t or cudaStream_t; null: the default stream */
    const int* seqstart_q; /* group mode: batch + 1 offsets */
    const int* seqstart_k;
    const float* alibi_slopes; /* ALiBi: nhead_q slopes */
    const void* q;
    const void* k;
    const void* v;
    void* out;        /* written by forward, read by backward */
    float* lse;       /* log of the sum of exponents; written by forward, read by backward */
    const void* dout; /* backward only, from here on */
    void* dq;
    void* dk;
    void* dv;
    void* workspace; /* attention_backward_workspace_size() bytes */
} attention_args;

int attention_forward(const attention_args* args);
int attention_backward(const attention_args* args);
size_t attention_backward_workspace_size(const attention_args* args); /* 0 if the arguments are invalid */
/* Stores the name of the variant that attention_backward would run; needs no data pointers. */
int attention_backward_name(const attention_args* args, char* name, size_t name_size);

const char* attention_version(void);
const char* attention_last_error(void); /* empty if nothing has failed; valid until this thread's next call */

/* These functions manage memory for callers without a GPU library of their own. */
int attention_device_count(int* count);
int attention_malloc(void** pointer, size_t bytes);
int attention_free(void* pointer);
int attention_copy_to_device(void* device, const void* host, size_t bytes);
int attention_copy_to_host(void* host, const void* device, size_t bytes);
int attention_synchronize(void);

#ifdef __cplusplus
}
#endif

#endif
