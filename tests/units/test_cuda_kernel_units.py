"""What is in a kernel unit: the machine code that the whole file gives the kernel, and no other kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_machine import needs_nvcc
from cuda_units import build, build_ahead, used
from support import Lazyck

pytestmark = [pytest.mark.cuda, needs_nvcc]

KERNEL = "template <int N> __global__ void K(float* x) { x[threadIdx.x] *= N; }\n"
LAUNCHES = """
extern "C" int launch(int n, float* x) {
    if (n == 1) CALL(1);
    if (n == 2) CALL(2);
    return cudaGetLastError();
}
"""
DIRECT = "#define CALL(n) K<n><<<1, 1>>>(x)\n"
KERNELS = "template __global__ void K<1>(float*);\ntemplate __global__ void K<2>(float*);\n"
CALLERS = """
template <int N> void call(float* x) { K<N><<<1, 1>>>(x); }
template void call<1>(float*);
template void call<2>(float*);
#define CALL(n) call<n>(x)
"""
# with as many live values as a kernel's bounds have a say in
HEAVY = """
template <int N> __global__ void K(float* x) {
    float y[120];
    for (int i = 0; i < 120; ++i) y[i] = x[i * 32 + threadIdx.x];
    for (int k = 0; k < N; ++k)
        for (int i = 0; i < 120; ++i) y[i] = y[i] * y[(i * 7 + 3) % 120] + k;
    for (int i = 0; i < 120; ++i) x[i * 32 + threadIdx.x] = y[i];
}
"""
# the compiler makes `shared` once, for all its callers: what it knows of the arguments depends on who these are
SHARED = """
__device__ __noinline__ float shared(float x, int n) {
    float y = x;
    for (int i = 0; i < n; ++i) y = y * x + i;
    return y;
}
template <int N> __global__ void K(float* x) { x[threadIdx.x] = shared(x[threadIdx.x], N); }
"""


@pytest.mark.parametrize("text", [KERNELS + DIRECT, CALLERS], ids=["of-kernels", "of-functions-that-launch"])
def test_explicit_instantiations_bring_no_other_kernel_along(
    lazyck: Lazyck, tmp_path: Path, spy: Path, text: str
) -> None:
    lazy = build(lazyck, tmp_path, {"x.cu": KERNEL + text + LAUNCHES})
    returned, seen = lazy.run(spy, "launch", 1)
    assert returned == "0" and len(used(seen)) == 1
    (unit,) = (tmp_path / "cache").rglob("*.so")
    assert unit.name.startswith("x.K")
    assert b".text._Z1KILi1EEvPf" in unit.read_bytes()
    assert b".text._Z1KILi2EEvPf" not in unit.read_bytes()


def test_an_instantiation_with_bounds_of_its_own_keeps_them(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    bounded = KERNELS.replace("void K<2>", "void __launch_bounds__(1024, 2) K<2>")
    text = {"x.cu": HEAVY + bounded + DIRECT + LAUNCHES}
    lazy, ahead = build(lazyck, tmp_path / "lazy", text), build_ahead(tmp_path / "ahead", text)
    for n in (1, 2):
        assert used(lazy.run(spy, "launch", n)[1]) == used(ahead.run(spy, "launch", n)[1])


@pytest.mark.parametrize("n", [1, 2])
def test_a_kernel_that_shares_a_function_has_the_code_of_the_whole_file(
    lazyck: Lazyck, tmp_path: Path, spy: Path, n: int
) -> None:
    text = {"x.cu": SHARED + DIRECT + LAUNCHES}
    lazy, ahead = build(lazyck, tmp_path / "lazy", text), build_ahead(tmp_path / "ahead", text)
    mine, theirs = (used(library.run(spy, "launch", n)[1]) for library in (lazy, ahead))
    assert mine == theirs and len(mine) == 1


# registered by nobody, as no host code names it
TEMPLATE_VARIABLE = """
template <class T> __device__ T counter = 3;
template <int N> __global__ void K(float* x) {
    if (N == 1) counter<int> += 1;
    if (N == 2) x[0] = counter<int>;
}
"""


def test_kernels_that_share_a_template_s_variable_are_in_one_module(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, {"x.cu": TEMPLATE_VARIABLE + DIRECT + LAUNCHES})
    _, seen = lazy.run(spy, "launch", 1)
    assert {line.split()[1] for line in seen if line.startswith("register")} == {"_Z1KILi1EEvPf", "_Z1KILi2EEvPf"}


def test_a_constant_of_the_compiler_is_each_kernel_s_own(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    sine = "template <int N> __global__ void K(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x] * N); }\n"
    lazy = build(lazyck, tmp_path, {"x.cu": sine + DIRECT + LAUNCHES})
    _, seen = lazy.run(spy, "launch", 1)
    assert [line.split()[1] for line in seen if line.startswith("register")] == ["_Z1KILi1EEvPf"]


# each name is declared twice, and if the nearer declaration were left out, the kernel would use the other one
NEAREST = """
constexpr int middle_of_three = 70;
enum Far { small = 90, large = 91 };
struct Sizes { int n; } size = {1};
__device__ Sizes twice(int n) { return {9 * n}; }
template <class T> struct Of { static const int value = 100; };
template <> struct Of<int> { static const int value = 6; };
__device__ int convert(double x) { return 3 * x; }
struct Both { int a, b; };
constexpr int Both::*member = &Both::a;
namespace ns {
constexpr int first_of_three = 1, middle_of_three = 2, last_of_three = 3;
enum { small = 4, large = 5 };
struct Doubled { int n; };
__device__ Doubled (twice)(int n) { return {2 * n}; }
typedef struct { int n[7]; } Unused, Sizes;
__device__ int convert(int x) { return x + 1; }
using Number = int;
constexpr Number (Both::*member) = &Both::b;
template <int N> __global__ void K(float* x) {
    const Both both = {N, 2 * N};
    const int names = middle_of_three + small + large + twice(N).n + convert(N) + both.*member;
    x[threadIdx.x] *= float(names + int(sizeof(Sizes)) + Of<int>::value);
}
}
using ns::K;
"""


def test_a_kernel_uses_the_declarations_that_it_does_in_its_file(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    text = {"x.cuh": NEAREST, "x.cu": '#include "x.cuh"\n' + DIRECT + LAUNCHES}
    lazy, ahead = build(lazyck, tmp_path / "lazy", text), build_ahead(tmp_path / "ahead", text)
    mine, theirs = (used(library.run(spy, "launch", 2)[1]) for library in (lazy, ahead))
    assert mine == theirs and len(mine) == 1
    assert "x.K" in {p.name.partition("-")[0] for p in (tmp_path / "lazy" / "cache").rglob("*.so")}
