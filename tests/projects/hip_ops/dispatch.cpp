// Users of the library call this file. It picks a variant and returns HIP's own error code.
#include "ops.hpp"

template <>
int scale<float, 2>(float*, int, hipStream_t);
template <>
int scale<float, 3>(float*, int, hipStream_t);
#ifndef FLOAT_ONLY
template <>
int scale<double, 2>(double*, int, hipStream_t);
template <>
int scale<double, 3>(double*, int, hipStream_t);
template <>
int scale<int, 2>(int*, int, hipStream_t);
template <>
int scale<int, 3>(int*, int, hipStream_t);
#endif

namespace {

template <typename T>
int pick(int factor, void* data, int n) {
    T* values = static_cast<T*>(data);
    if (factor == 2) return scale<T, 2>(values, n, nullptr);
    if (factor == 3) return scale<T, 3>(values, n, nullptr);
    return -1;
}

}  // namespace

extern "C" int ops_scale(char type, int factor, void* data, int n) {
    if (type == 'f') return pick<float>(factor, data, n);
#ifndef FLOAT_ONLY
    if (type == 'd') return pick<double>(factor, data, n);
    if (type == 'i') return pick<int>(factor, data, n);
#endif
    return -1;
}

extern "C" int ops_devices() {
    int count = 0;
    return static_cast<int>(hipGetDeviceCount(&count)) == 0 ? count : 0;
}
