// Declares the interface of a tiny kernel library: one function template per kind of kernel,
// specialized in blob/.
#pragma once
#include <iosfwd>  // declares std::string; only a few sources define functions that return one

struct Args {
    const float* in;
    float* out;
    int n;
};

template <int Dim, bool Masked>
struct Traits {};

// explicit specializations, one per blob
template <typename Trait>
float run_special(const Args& args);

// explicit instantiations of a template whose body only blobs see
template <typename T, int Scale>
T run_instance(const T* in, int n);

template <typename T, int Scale>
std::string name_of();

namespace ops {
inline namespace v1 {
float plain(float x);
}
}  // namespace ops

extern "C" double c_plain(double a, double b, int c);

// not a kernel: data that a blob defines, and a registry that a blob's initializer fills
extern int table[4];
int registered();
void register_one();
