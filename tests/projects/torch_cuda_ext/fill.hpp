#pragma once

template <int Value>
struct Traits {
    static constexpr int value = Value;
};

// Fills `count` numbers on the device and returns the CUDA error. Each file in blob/ has one
// explicit specialization.
template <typename Trait>
int run_fill(int* out, int count);
