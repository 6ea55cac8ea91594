// Defines what the test programs share: every failed check is printed, and counts for the exit
// code.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>

inline int& failures() {
    static int count = 0;
    return count;
}

#define CHECK(condition)                                                         \
    do {                                                                         \
        if (!(condition)) {                                                      \
            printf("%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
            ++failures();                                                        \
        }                                                                        \
    } while (false)

#define CHECK_HIP(call)                                                                    \
    do {                                                                                   \
        const hipError_t status = (call);                                                  \
        if (status != hipSuccess) {                                                        \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hipGetErrorName(status)); \
            ++failures();                                                                  \
        }                                                                                  \
    } while (false)

#define CHECK_FAILS(call, error)                                                                           \
    do {                                                                                                   \
        const hipError_t status = (call);                                                                  \
        if (status != (error)) {                                                                           \
            printf("%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call, hipGetErrorName(status), #error); \
            ++failures();                                                                                  \
        }                                                                                                  \
    } while (false)

template <class T>
T* device_array(size_t count) {
    void* pointer = nullptr;
    CHECK_HIP(hipMalloc(&pointer, count * sizeof(T)));
    return static_cast<T*>(pointer);
}

template <class T>
T read_back(const T* address) {
    T value;
    CHECK_HIP(hipMemcpy(&value, address, sizeof(T), hipMemcpyDeviceToHost));
    return value;
}

inline int finish() {
    if (failures() == 0) puts("ok");
    return failures() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
