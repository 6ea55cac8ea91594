// This dispatcher is compiled ahead of time and never edited. What it calls in blob/ is undefined
// in its object.
#include <cstring>
#include <stdexcept>

#include "ops.hpp"

static int count = 0;
void register_one() { ++count; }
int registered() { return count; }

template <int Dim>
static float special(bool masked, const Args& args) {
    return masked ? run_special<Traits<Dim, true>>(args) : run_special<Traits<Dim, false>>(args);
}

extern "C" {

double ops_special(int dim, int masked, const float* in, float* out, int n) {
    const Args args{in, out, n};
    try {
        switch (dim) {
            case 32:
                return special<32>(masked, args);
            case 64:
                return special<64>(masked, args);
            case 128:
                return special<128>(masked, args);
        }
    } catch (const std::runtime_error& e) {
        std::strncpy(reinterpret_cast<char*>(out), e.what(), sizeof(float) * n);
        return -2;
    }
    return -1;
}

double ops_instance(const char* type, int scale, int n) {
    const float f[4] = {1, 2, 3, 4};
    const double d[4] = {1, 2, 3, 4};
    const int i[4] = {1, 2, 3, 4};
    if (!std::strcmp(type, "float")) return scale == 2 ? run_instance<float, 2>(f, n) : run_instance<float, 3>(f, n);
    if (!std::strcmp(type, "double")) return scale == 2 ? run_instance<double, 2>(d, n) : run_instance<double, 3>(d, n);
    return scale == 2 ? run_instance<int, 2>(i, n) : run_instance<int, 3>(i, n);
}

int ops_name(char* out, int size) {
    const std::string name = name_of<float, 2>();
    std::strncpy(out, name.c_str(), size);
    return static_cast<int>(name.size());
}

double ops_plain(float x) { return ops::plain(x) + c_plain(2, 3, 4); }

int ops_table(int i) { return table[i]; }

int ops_registered() { return registered(); }

// A lazily compiled function has a real function's address, which is equal everywhere.
int ops_same_address() {
    double (*volatile a)(double, double, int) = c_plain;
    double (*volatile b)(double, double, int) = &c_plain;
    return a == b && a(1, 2, 3) == 5;
}
}
