// This ordinary source has a kernel of its own, and the proofs. Each printed line says what a CUDA
// call returned and what memory holds then.
#include <cstdio>
#include <cstring>
#include <exception>

#include "late.cuh"

namespace {

constexpr float k_table[4] = {5, 6, 7, 8};

__global__ void ordinary(float* x) { x[threadIdx.x] += 1; }

cudaError_t launch_ordinary(float* x) {
    ordinary<<<1, k_threads>>>(x);
    return cudaGetLastError();
}

// Holds 32 numbers on the device, initially 0 to 31. Without a device there is no memory, but every
// function is called all the same.
template <class T>
class Numbers {
 public:
    Numbers() {
        T host[k_threads];
        for (int i = 0; i < k_threads; ++i) host[i] = i;
        if (cudaMalloc(&m_data, sizeof(T) * k_threads) != cudaSuccess) m_data = nullptr;
        cudaMemcpy(m_data, host, sizeof(T) * k_threads, cudaMemcpyHostToDevice);
        cudaGetLastError();  // Clears the error that a missing device causes.
    }
    ~Numbers() { cudaFree(m_data); }
    Numbers(const Numbers&) = delete;
    Numbers& operator=(const Numbers&) = delete;

    T* data() const { return m_data; }

    // Prints the error of a call, the first three numbers and the last one.
    void print(const char* what, cudaError_t error) const {
        T host[k_threads] = {-1, -1, -1, -1};
        const cudaError_t copied = cudaMemcpy(host, m_data, sizeof(T) * k_threads, cudaMemcpyDeviceToHost);
        std::printf("%s: %s, %s %g %g %g %g\n", what, cudaGetErrorName(error), cudaGetErrorName(copied),
                    double(host[0]), double(host[1]), double(host[2]), double(host[k_threads - 1]));
    }

 private:
    T* m_data = nullptr;
};

void print(const char* what, cudaError_t error) { std::printf("%s: %s\n", what, cudaGetErrorName(error)); }

void ordinary_first() {
    const Numbers<float> x;
    x.print("ordinary", launch_ordinary(x.data()));
    x.print("first", launch_double(x.data()));
    x.print("second", launch_double(x.data()));
    x.print("ordinary again", launch_ordinary(x.data()));
}

void two_types() {
    const Numbers<float> x;
    const Numbers<double> y;
    x.print("float", launch_double(x.data()));
    y.print("double", launch_triple(y.data()));
}

void attribute_first() {
    const Numbers<float> x;
    print("attribute", allow_reversed());
    x.print("launch", launch_reversed(x.data()));
}

void without_attribute() {
    const Numbers<float> x;
    x.print("launch", launch_reversed(x.data()));
}

void constant_first() {
    const Numbers<float> x;
    print("copy", fill_table(k_table));
    x.print("launch", launch_look_up(x.data()));
}

void constant_after() {
    const Numbers<float> x;
    x.print("launch", launch_look_up(x.data()));
    print("copy", fill_table(k_table));
    x.print("launch again", launch_look_up(x.data()));
}

struct Proof {
    const char* name;
    void (*run)();
};
constexpr Proof k_proofs[] = {
    {"an ordinary kernel first", ordinary_first},      {"two types", two_types},
    {"an attribute before a launch", attribute_first}, {"a launch without its attribute", without_attribute},
    {"a constant before a launch", constant_first},    {"a constant after a launch", constant_after},
};

struct Call {
    const char* name;
    cudaError_t (*make)();
};
constexpr Call k_calls[] = {
    {"ordinary", [] { return launch_ordinary(nullptr); }}, {"double", [] { return launch_double(nullptr); }},
    {"triple", [] { return launch_triple(nullptr); }},     {"look up", [] { return launch_look_up(nullptr); }},
    {"copy", [] { return fill_table(k_table); }},          {"attribute", [] { return allow_reversed(); }},
    {"reversed", [] { return launch_reversed(nullptr); }},
};

}  // namespace

// Prints what the proof of that name sees. Returns 2 if there is no such proof.
extern "C" __attribute__((visibility("default"))) int prove(const char* name) {
    for (const Proof& proof : k_proofs) {
        if (std::strcmp(proof.name, name) != 0) continue;
        proof.run();
        std::fflush(stdout);
        return 0;
    }
    return 2;
}

// Returns what the call of that name returns. Returns -1 if it has thrown, with the text in
// `thrown`, and -2 if there is no such call.
extern "C" __attribute__((visibility("default"))) int call(const char* name, char* thrown, int size) {
    for (const Call& call : k_calls) {
        if (std::strcmp(call.name, name) != 0) continue;
        try {
            return call.make();
        } catch (const std::exception& e) {
            std::strncpy(thrown, e.what(), size - 1);
            return -1;
        }
    }
    return -2;
}
