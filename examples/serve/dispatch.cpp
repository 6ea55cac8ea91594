// Calls the kernel for a factor. A call that lazyck refuses is an exception of C++, which must not
// reach ctypes, so it becomes a text, as torch makes a RuntimeError of it.
#include <cstdio>
#include <exception>

#include "scale.hpp"

// Returns 0, or 1 with the reason in `error`, which has room for `size` bytes.
extern "C" int scale_by(int factor, const float* in, float* out, int n, char* error, int size) {
    try {
        switch (factor) {
            case 2:
                scale<2>(in, out, n);
                return 0;
            case 3:
                scale<3>(in, out, n);
                return 0;
            case 5:
                scale<5>(in, out, n);
                return 0;
            case 7:
                scale<7>(in, out, n);
                return 0;
            default:
                std::snprintf(error, static_cast<unsigned>(size), "there is no kernel for the factor %d", factor);
        }
    } catch (const std::exception& e) {
        std::snprintf(error, static_cast<unsigned>(size), "%s", e.what());
    }
    return 1;
}
