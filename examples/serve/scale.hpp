// Declares the kernels of the example: one specialization for each factor, in gen/.
#pragma once

template <int Factor>
void scale(const float* in, float* out, int n);
