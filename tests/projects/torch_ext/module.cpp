#include <torch/extension.h>

#include "scale.hpp"

at::Tensor dispatch(const at::Tensor& x) { return x.scalar_type() == at::kFloat ? scale<float>(x) : scale<double>(x); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &dispatch); }
