#pragma once

// Compute y[i] = x[i] * factor, and y[i] = x[i] + by, on a stream, and return the CUDA error of the
// launch. One blob each.
int scale_on(void* stream, const float* x, float* y, long n, float factor);
int shift_on(void* stream, const float* x, float* y, long n, float by);
