// This file is the dispatcher, which is compiled ahead of time and calls the blobs. `prove NAME`
// prints what they report.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "launches.cuh"

namespace {

constexpr int k_n = 1 << 12;

// Returns a line with the error of copying `x` to the host, and whether all values are `expected`.
std::string contents(float* x, float expected) {
    std::vector<float> host(k_n, -1);
    const cudaError_t copied = cudaMemcpy(host.data(), x, k_n * sizeof(float), cudaMemcpyDeviceToHost);
    float worst = 0;
    for (const float value : host) worst = std::fmax(worst, std::fabs(value - expected));
    return line("copied", copied, worst <= 1e-3f * std::fabs(expected) ? "right" : "WRONG");
}

float* make(cudaError_t* error) {
    float* x = nullptr;
    *error = cudaMalloc(&x, k_n * sizeof(float));
    if (*error == cudaSuccess) {
        const std::vector<float> ones(k_n, 1);
        *error = cudaMemcpy(x, ones.data(), k_n * sizeof(float), cudaMemcpyHostToDevice);
    }
    return x;
}

// Runs four threads, each with two streams and memory of its own, whose first launches coincide.
std::string streams_and_threads() {
    std::atomic<int> right{0}, wrong{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int s = 0; s < 2; ++s) {
                cudaError_t error;
                float* x = make(&error);
                cudaStream_t stream = nullptr;
                if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, s);
                for (int i = 0; i < 10; ++i) scale(x, k_n, 2, stream);
                if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
                if (error != cudaSuccess) {
                    ++refused;
                } else {
                    ++(contents(x, 1024).find("right") != std::string::npos ? right : wrong);
                }
                cudaFree(x);
            }
        });
    }
    for (std::thread& t : threads) t.join();
    return "threads: " + std::to_string(right) + " right, " + std::to_string(wrong) + " wrong, " +
           std::to_string(refused) + " refused\n";
}

// Replays a graph of 11 launches 1,000 times.
std::string replayed_graph() {
    cudaError_t error;
    float* x = make(&error);
    std::string said = line("memory", error);
    cudaStream_t stream = nullptr;
    said += line("stream", cudaStreamCreate(&stream));
    scale(x, k_n, 1, stream);  // the warm-up
    said += line("begun", cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 10; ++i) scale(x, k_n, i % 2 ? 0.5f : 2, stream);
    scale(x, k_n, 1.001f, stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    said += line("ended", cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
    said += line("nodes", counted, std::to_string(nodes));
    said += line("made", cudaGraphInstantiate(&executable, graph, 0));
    cudaError_t worst = cudaSuccess;
    for (int i = 0; i < 1000; ++i) {
        if (const cudaError_t e = cudaGraphLaunch(executable, stream)) worst = e;
    }
    said += line("replayed", worst) + line("finished", cudaStreamSynchronize(stream));
    return said + contents(x, std::pow(1.001f, 1000));
}

// Calls a function for the first time while a stream is captured. The call must either be refused
// without spoiling anything, or be done right. Then calls it outside of the capture.
template <int WHICH>
std::string first_call_in_capture(unsigned flags, cudaStreamCaptureMode mode) {
    cudaError_t error;
    float* x = make(&error);
    std::string said = line("memory", error);
    cudaStream_t stream = nullptr;
    said += line("stream", cudaStreamCreateWithFlags(&stream, flags));
    scale(x, k_n, 1, stream);
    said += line("begun", cudaStreamBeginCapture(stream, mode));
    scale(x, k_n, 2, stream);
    float expected = 2;
    try {
        shift<WHICH>(x, k_n, 1, stream);
        said += line("called", cudaGetLastError());
        expected += 1;
    } catch (const std::exception& e) {
        said += std::string("refused: ") + (std::strstr(e.what(), "captur") ? "says why" : e.what()) + "\n";
    }
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t asked = cudaStreamIsCapturing(stream, &status);
    said += line("asked", asked, std::to_string(status));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    said += line("ended", cudaStreamEndCapture(stream, &graph));
    said += line("made", cudaGraphInstantiate(&executable, graph, 0));
    said += line("replayed", cudaGraphLaunch(executable, stream)) + line("finished", cudaStreamSynchronize(stream));
    said += contents(x, expected);
    try {
        shift<WHICH>(x, k_n, 1, stream);
        said += line("called outside", cudaGetLastError()) + line("finished", cudaStreamSynchronize(stream));
    } catch (const std::exception& e) {
        said += std::string("REFUSED outside: ") + e.what() + "\n";
    }
    return said + contents(x, expected + 1);
}

const std::map<std::string, std::string (*)()> k_proofs = {
    {"attributes", attributes_of_kernels},
    {"occupancy", occupancy_of_kernels},
    {"cooperative launch", cooperative_launch},
    {"clusters", cluster_launch},
    {"shared memory over 48 KB", large_shared_memory},
    {"cudaLaunchKernelEx", extended_launch},
    {"constants, variables, managed memory", memory_of_symbols},
    {"streams and threads", streams_and_threads},
    {"a kernel that traps", launch_that_traps},
    {"a launch out of memory", launch_out_of_memory},
    {"too many threads", launch_of_too_many_threads},
    {"more threads than its bounds", launch_past_its_bounds},
    {"replays", replayed_graph},
    {"blocking stream", [] { return first_call_in_capture<1>(cudaStreamDefault, cudaStreamCaptureModeGlobal); }},
    {"non-blocking stream",
     [] { return first_call_in_capture<2>(cudaStreamNonBlocking, cudaStreamCaptureModeGlobal); }},
    {"thread's capture", [] { return first_call_in_capture<3>(cudaStreamDefault, cudaStreamCaptureModeThreadLocal); }},
    {"relaxed capture", [] { return first_call_in_capture<4>(cudaStreamDefault, cudaStreamCaptureModeRelaxed); }},
};

}  // namespace

// Prints what the proof of that name sees. Returns 2 if there is no such proof.
extern "C" __attribute__((visibility("default"))) int prove(const char* name) {
    const auto found = k_proofs.find(name);
    if (found == k_proofs.end()) return 2;
    std::fputs(found->second().c_str(), stdout);
    std::fflush(stdout);
    return 0;
}

// Launches a kernel `count` times and stores the seconds per launch on the host and on the device.
// Returns CUDA's error for the last burst of launches.
extern "C" __attribute__((visibility("default"))) int measure(int count, double* host, double* device) {
    constexpr int k_burst = 100;  // fewer than the launches that a stream queues before it blocks
    static float* x = nullptr;
    cudaError_t error = cudaSuccess;
    if (x == nullptr) x = make(&error);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    double on_host = 0, on_device = 0;
    for (int done = 0; done < count; done += k_burst) {
        cudaDeviceSynchronize();
        cudaEventRecord(begin);
        const auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < k_burst; ++i) scale(x, k_n, 1, nullptr);
        on_host += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        cudaEventRecord(end);
        error = cudaEventSynchronize(end);
        float ms = 0;
        cudaEventElapsedTime(&ms, begin, end);
        on_device += ms / 1e3;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    *host = on_host / count;
    *device = on_device / count;
    return error;
}
