#pragma once

#include <ATen/core/Tensor.h>

// One explicit specialization per file in blob/.
template <typename T>
at::Tensor scale(const at::Tensor& x);
