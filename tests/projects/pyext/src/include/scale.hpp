#pragma once

template <int Dim>
struct Traits {
    static constexpr int dim = Dim;
};

// Defined by the module, called by blobs.
double offset();

// One explicit specialization per file in blob/.
template <typename Trait>
double run_scale(double x);
