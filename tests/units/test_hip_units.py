"""Test HIP sources whose kernels are compiled one by one: the library does what the one built ahead
of time does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support import Lazyck, Once
from support.built_units import Built, used
from support.hip_units import HOMES, build, build_ahead
from support.rocm_layouts import need_real_hip

pytestmark = [pytest.mark.hip]

FILES = {
    "kernels.h": """
#pragma once
#include <hip/hip_runtime.h>
struct Shape { int sizes[5]; double scale; };
namespace ns { template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; } }
""",
    "main.hip": """
#include <cstdio>
#include <cassert>
#include "kernels.h"
#include <hip/hip_ext.h>
__constant__ float table[4];
__device__ int counter;
static const __device__ int primes[4] = {2, 3, 5, 7};
namespace { template <class T> __global__ void unnamed(T* x) { x[0] = 3; } }
__global__ void overloaded(float* x) { assert(x); x[0] = 1; }
__global__ void overloaded(double* x, Shape s) { x[0] = s.scale + s.sizes[1]; }
static __global__ void own(int* x) { printf("own %d\\n", x[0]); }
extern "C" __global__ void plain(int n) {}
__global__ void with_table(float* x) { x[0] = table[threadIdx.x]; }
__global__ void counts() { counter += 1; }
__global__ void with_primes(int* x) { x[0] = primes[threadIdx.x]; }
template <class F> __global__ void apply(F f) { f(); }
template <int N> __global__ void never(float* x) { x[0] = N; }
void nobody(float* x) { never<5><<<1, 1>>>(x); }
__device__ __noinline__ float apart(float x) {
    __shared__ float s[64];
    s[threadIdx.x] = x;
    __syncthreads();
    return s[0];
}
__global__ void first(float* x) { x[0] = apart(x[1]) * 2; }
__global__ void second(float* x) { x[0] = apart(x[1]) + 2; }
extern __shared__ float all_of_it[];
__global__ void shares(float* x) { all_of_it[threadIdx.x] = x[0]; __syncthreads(); x[0] = all_of_it[1] + sinf(x[1]); }
static __device__ float shared(float* p, float x, int n, bool b) {
    for (int i = 0; i < n; ++i) { x = x * p[i] + i; if (b) p[i] = x; __syncthreads(); }
    return x;
}
__device__ __forceinline__ float more(float* p, float x, int n) {
    float s[8];
    for (int i = 0; i < 8; ++i) s[i] = p[i * n];
    for (int i = 0; i < n; ++i) x += s[i % 8] * shared(p, x, n, i & 1);
    return x;
}
template <int N> __global__ void constant(float* p) { p[0] = shared(p, p[N], N, N % 2) + more(p, 1.f, N); }
__global__ void varying(float* p, int n) { p[0] = more(p, p[1], n) + expf(p[2]); }

#define API extern "C" __attribute__((visibility("default"))) int
API launch(int n, float* x) {
    switch (n) {
        case 0: ns::scale<float, 2><<<1, 32>>>(x); break;
        case 1: ns::scale<double, 3><<<1, 32>>>((double*)x); break;
        case 2: unnamed<<<1, 1>>>(x); break;
        case 3: overloaded<<<1, 1>>>(x); break;
        case 4: overloaded<<<1, 1>>>((double*)x, Shape{}); break;
        case 5: own<<<1, 1>>>((int*)x); break;
        case 6: plain<<<1, 1>>>(7); break;
        case 7: apply<<<1, 1>>>([=] __device__() { *x = 1; }); break;
        case 8: apply<<<1, 1>>>([=] __device__() { *x = 2; }); break;
        case 9: with_table<<<1, 1>>>(x); break;
        case 10: counts<<<1, 1>>>(); break;
        case 11: with_primes<<<1, 1>>>((int*)x); break;
        case 12: first<<<1, 64>>>(x); break;
        case 13: second<<<1, 64>>>(x); break;
        case 14: shares<<<1, 64, 256>>>(x); break;
        case 16: constant<2><<<1, 64>>>(x); break;
        case 17: varying<<<1, 64>>>(x, 3); break;
        case 18: constant<8><<<1, 64>>>(x); break;
        case 15: hipLaunchKernelGGL((ns::scale<float, 9>), 1, 64, 0, 0, x); break;
    }
    return hipGetLastError();
}
API ask(int n, float* x) {
    void* what = (void*)(void (*)(float*))ns::scale<float, 4>;
    hipFuncAttributes attributes;
    hipKernelNodeParams node = {};
    node.func = what;
    node.extra = &what;  // CUDA has the function at this place
    hipLaunchParams launches[2] = {};
    launches[0].func = what;
    launches[1].func = (void*)(void (*)(float*))ns::scale<float, 6>;
    int found = 0, more = 0;
    size_t size = 0;
    void* arguments[] = {&x};
    switch (n) {
        case 0: return hipFuncSetAttribute(what, hipFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
        case 1: return hipFuncGetAttributes(&attributes, what);
        case 2: return hipOccupancyMaxActiveBlocksPerMultiprocessor(&found, what, 32, 0);
        case 3: return hipLaunchCooperativeKernel(what, 1, 32, arguments, 0, nullptr);
        case 4: return hipGraphAddKernelNode(nullptr, nullptr, nullptr, 0, &node);
        case 5: return hipGraphKernelNodeSetParams(nullptr, &node);
        case 6: return hipGraphExecKernelNodeSetParams(nullptr, nullptr, &node);
        case 7: return hipLaunchKernel(what, 1, 32, arguments, 0, nullptr);
        case 8: return hipFuncSetCacheConfig(what, hipFuncCachePreferL1);
        case 9: return hipExtLaunchKernel(what, 1, 32, arguments, 0, nullptr, nullptr, nullptr, 0);
        case 10: return hipMemcpyToSymbol(HIP_SYMBOL(table), x, 4);
        case 11: return hipGetSymbolAddress((void**)&x, HIP_SYMBOL(counter));
        case 12: return hipGetSymbolSize(&size, HIP_SYMBOL(table));
        case 13: return hipMemcpyFromSymbol(x, HIP_SYMBOL(counter), 4);
        case 14: return hipOccupancyMaxPotentialBlockSize(&found, &more, what, 0, 0);
        case 15: return hipExtLaunchMultiKernelMultiDevice(launches, 2, 0);
    }
    return -1;
}
""",
    "other.hip": """
#include "kernels.h"
extern "C" int other(float* x) { ns::scale<float, 2><<<1, 32>>>(x); return hipGetLastError(); }
""",
}
# The older compiler, behind the real hipcc, compiles one source and runs only a sample.
LAUNCHES = [*(("clang19", n) for n in range(19)), *(("clang15", n) for n in (0, 7, 9, 12, 16))]
ASKS = [*(("clang19", n) for n in range(16)), ("clang15", 10), ("clang15", 15)]
MANAGED = """
#include "bare_hip.h"
__managed__ int shared_by_all;
__global__ void counts() { shared_by_all += 1; }
extern "C" int launch(int, float*) { counts<<<1, 1>>>(); return hipGetLastError(); }
"""


Pair = tuple[Built, Built]


@pytest.fixture(scope="module")
def pair(once: Once, lazyck_shared: Lazyck) -> Callable[[str], Pair]:
    """Return a function that builds the lazy library and the one ahead of time with the named
    compiler."""
    need_real_hip()

    def made(compiler: str) -> Pair:
        def make(where: Path) -> Pair:
            home = HOMES[compiler](where / "rocm")
            files = {name: text for name, text in FILES.items() if compiler == "clang19" or name != "other.hip"}
            return build(lazyck_shared, where / "lazy", files, home), build_ahead(where / "ahead", files, home)

        return once(f"hip_units.{compiler}", make)

    return made


@pytest.fixture
def both(pair: Callable[[str], Pair]) -> Pair:
    return pair("clang19")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    need_real_hip()
    return HOMES["clang19"](tmp_path / "rocm")


def test_every_source_is_by_kernel(both: Pair) -> None:
    lazy, _ = both
    assert "0 lazy with 0 symbols, 0 eager" in lazy.said
    assert "23 kernels of 2 sources, each compiled when it is first used" in lazy.said


def test_no_device_code_is_in_the_library(both: Pair) -> None:
    lazy, ahead = both
    assert b"amdgcn-amd-amdhsa" in (ahead.where / "libx.so").read_bytes()
    assert b"amdgcn-amd-amdhsa" not in (lazy.where / "libx.so").read_bytes()


@pytest.mark.parametrize(("compiler", "n"), LAUNCHES)
def test_a_launch_reaches_the_machine_code_that_it_does_ahead_of_time(
    pair: Callable[[str], Pair], hip_spy: Path, compiler: str, n: int
) -> None:
    lazy, ahead = pair(compiler)
    returned, seen = ahead.run(hip_spy, "launch", n)
    assert returned == "0" and len(used(seen)) == 1 and "-" in used(seen)[0]
    mine, mine_seen = lazy.run(hip_spy, "launch", n)
    assert (mine, used(mine_seen)) == (returned, used(seen))
    assert mine_seen[0] == "run", "the library registers nothing when it is loaded"


@pytest.mark.parametrize(("compiler", "n"), ASKS)
def test_every_use_of_a_handle_finds_it_registered(
    pair: Callable[[str], Pair], hip_spy: Path, compiler: str, n: int
) -> None:
    lazy, ahead = pair(compiler)
    returned, seen = ahead.run(hip_spy, "ask", n)
    assert returned == "0" and len(used(seen)) >= 1
    mine, mine_seen = lazy.run(hip_spy, "ask", n)
    assert (mine, used(mine_seen)) == (returned, used(seen))


def test_a_second_process_compiles_nothing(both: Pair, hip_spy: Path) -> None:
    lazy, _ = both
    lazy.run(hip_spy, "launch", 0)
    _, seen = lazy.run(hip_spy, "launch", 0, LAZYCK_JIT="off")
    assert len(used(seen)) == 1


def test_two_sources_with_one_kernel_each_have_their_own(both: Pair, hip_spy: Path) -> None:
    lazy, ahead = both
    assert used(lazy.run(hip_spy, "other", 0)[1]) == used(ahead.run(hip_spy, "other", 0)[1])


def test_one_kernel_is_compiled_for_one_launch(both: Pair, tmp_path: Path, hip_spy: Path) -> None:
    lazy = both[0].fresh(tmp_path)
    lazy.run(hip_spy, "launch", 0)
    assert len(lazy.units) == 1
    _, seen = lazy.run(hip_spy, "launch", 4)
    assert [line.split()[1] for line in seen if line.startswith("register")] == ["_Z10overloadedPd5Shape"]


# Each of these is a source's own and has a handle.
OWN_NAMES = """
#include "bare_hip.h"
static __constant__ float table[4];
namespace { struct Tag { float x; }; template <class T> __global__ void unnamed(T* x) { x[0].x = 3; } }
static __global__ void own(float* x) { x[0] = 1; }
extern "C" __attribute__((visibility("default"))) int launch(int n, float* x) {
    if (n == 0) unnamed<<<1, 1>>>((Tag*)x);
    if (n == 1) own<<<1, 1>>>(x);
    if (n == 2) return hipMemcpyToSymbol(HIP_SYMBOL(table), x, 4);
    return hipGetLastError();
}
"""


def test_what_is_compiled_serves_a_build_in_another_place(
    lazyck: Lazyck, tmp_path: Path, home: Path, hip_spy: Path
) -> None:
    one, other = (build(lazyck, tmp_path / name, {"x.hip": OWN_NAMES}, home) for name in ("one", "a_longer_name"))
    for n in range(3):
        shared = {"LAZYCK_CACHE_DIR": str(tmp_path / f"cache{n}")}
        returned, seen = one.run(hip_spy, "launch", n, **shared)
        assert returned == "0" and len(used(seen)) == 1 and not used(seen)[0].endswith(("UNREGISTERED", "none"))
        there, seen_there = other.run(hip_spy, "launch", n, LAZYCK_JIT="off", **shared)
        assert (there, used(seen_there)) == (returned, used(seen)), n


def test_kernels_that_share_a_variable_are_in_one_module(both: Pair, hip_spy: Path) -> None:
    lazy, _ = both
    _, seen = lazy.run(hip_spy, "launch", 9)
    registered = {line.split()[1] for line in seen if line.startswith("register")}
    assert {"table", "_Z10with_tablePf", "counter", "_Z6countsv"} <= registered


def test_a_source_with_managed_variables_is_compiled_as_a_whole(
    lazyck: Lazyck, tmp_path: Path, home: Path, hip_spy: Path
) -> None:
    lazy = build(lazyck, tmp_path, {"main.hip": MANAGED}, home)
    assert "not-by-kernel:" in lazy.said and "it has managed variables" in lazy.said
