// This extension module dispatches to the blobs, and turns their exceptions into Python's.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>

#include "scale.hpp"

double offset() { return 0.5; }

namespace {

struct NoSuchDim : std::exception {
    const char* what() const noexcept override { return "no such dim"; }
};

double dispatch(int dim, double x) {
    if (dim == 32) return run_scale<Traits<32>>(x);
    if (dim == 64) return run_scale<Traits<64>>(x);
    if (dim == 128) return run_scale<Traits<128>>(x);
    throw NoSuchDim();
}

PyObject* scale(PyObject*, PyObject* arguments) {
    int dim;
    double x;
    if (!PyArg_ParseTuple(arguments, "id", &dim, &x)) return nullptr;
    try {
        return PyFloat_FromDouble(dispatch(dim, x));
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
        return nullptr;
    }
}

PyMethodDef k_methods[] = {{"scale", scale, METH_VARARGS, "x * dim + offset"}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef k_module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, k_methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&k_module); }
