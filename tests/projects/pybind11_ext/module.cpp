#include <pybind11/pybind11.h>

#include "scale.hpp"

PYBIND11_MODULE(pybind11_ext, m) {
    m.def("scale", [](int dim, double x) { return dim == 32 ? scale<32>(x) : scale<64>(x); });
}
