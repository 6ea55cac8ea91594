// This file registers two torch operators as extensions do. Nothing in it knows of lazyck.
#include "ops.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace {

using Launch = int(void*, const float*, float*, long, float);

template <Launch* LAUNCH>
at::Tensor apply(const at::Tensor& x, double value) {
    const at::Tensor in = x.contiguous();
    at::Tensor out = at::empty_like(in);
    const int error = LAUNCH(c10::cuda::getCurrentCUDAStream().stream(), in.const_data_ptr<float>(),
                             out.mutable_data_ptr<float>(), in.numel(), static_cast<float>(value));
    TORCH_CHECK(error == 0, "CUDA error ", error);
    return out;
}

}  // namespace

TORCH_LIBRARY(lazy_ops, library) {
    library.def("scale(Tensor x, float factor) -> Tensor");
    library.def("shift(Tensor x, float by) -> Tensor");
}

TORCH_LIBRARY_IMPL(lazy_ops, CUDA, library) {
    library.impl("scale", apply<scale_on>);
    library.impl("shift", apply<shift_on>);
}
