#pragma once
#include <string>

#include "ops.hpp"

template <typename T, int Scale>
T run_instance(const T* in, int n) {
    T sum{};
    for (int i = 0; i < n; ++i) sum += in[i] * Scale;
    return sum;
}

template <typename T, int Scale>
std::string name_of() {
    return "scale " + std::to_string(Scale) + " of " + std::to_string(sizeof(T)) + " bytes";
}
