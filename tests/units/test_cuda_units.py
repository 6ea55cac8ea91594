"""Test CUDA sources whose kernels are compiled one by one: the library does what the one built
ahead of time does."""

from pathlib import Path

import pytest
from support import Lazyck, Once
from support.built_units import Built
from support.cuda_machine import VISIBLE, needs_nvcc, needs_nvcc_13
from support.cuda_units import LINK, build, build_ahead, used

pytestmark = [pytest.mark.cuda, needs_nvcc]

FILES = {
    "kernels.cuh": """
#pragma once
struct Shape { int sizes[5]; double scale; };
namespace ns { template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; } }
""",
    "main.cu": """
#include <cstdio>
#include <cassert>
#include "kernels.cuh"
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
    }
    return cudaGetLastError();
}
API ask(int n, float* x) {
    void* what = (void*)(void (*)(float*))ns::scale<float, 4>;
    cudaFuncAttributes attributes;
    cudaKernelNodeParams node = {};
    node.func = what;
    int found = 0;
    size_t size = 0;
    void* arguments[] = {&x};
    switch (n) {
        case 0: return cudaFuncSetAttribute(what, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
        case 1: return cudaFuncGetAttributes(&attributes, what);
        case 2: return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, what, 32, 0);
        case 3: return cudaLaunchCooperativeKernel(what, 1, 32, arguments);
        case 4: return cudaGraphAddKernelNode(nullptr, nullptr, nullptr, 0, &node);
        case 5: return cudaGraphKernelNodeSetParams(nullptr, &node);
        case 6: return cudaGraphExecKernelNodeSetParams(nullptr, nullptr, &node);
        case 7: return cudaLaunchKernel(what, 1, 32, arguments, 0, nullptr);
        case 8: return cudaFuncSetCacheConfig(what, cudaFuncCachePreferL1);
        case 9: { cudaFunction_t function; return cudaGetFuncBySymbol(&function, what); }
        case 10: return cudaMemcpyToSymbol(table, x, 4);
        case 11: return cudaGetSymbolAddress((void**)&x, counter);
        case 12: return cudaGetSymbolSize(&size, table);
        case 13: {
            cudaLaunchConfig_t config = {};
            config.gridDim = config.blockDim = 1;
            return cudaLaunchKernelEx(&config, ns::scale<float, 6>, x);
        }
        case 14: return cudaMemcpyFromSymbol(x, counter, 4);
    }
    return -1;
}
""",
    "other.cu": """
#include "kernels.cuh"
extern "C" int other(float* x) { ns::scale<float, 2><<<1, 32>>>(x); return cudaGetLastError(); }
""",
}
LAUNCHES, ASKS = 12, 15
# This lazy blob uses handles of another file's kernel.
BLOB = """
#include "kernels.cuh"
extern template __global__ void ns::scale<float, 2>(float*);
extern "C" int blob(int n, float* x) {
    if (n == 1) return cudaFuncSetAttribute(ns::scale<float, 2>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
    ns::scale<float, 2><<<1, 32>>>(x);
    return cudaGetLastError();
}
"""
OWNER = '#include "kernels.cuh"\ntemplate __global__ void ns::scale<float, 2>(float*);\n'
CALLER = 'extern "C" int blob(int, float*);\nextern "C" int call(int n, float* x) { return blob(n, x); }\n'


Pair = tuple[Built, Built]


@pytest.fixture(params=[pytest.param("", id="default"), pytest.param(VISIBLE, id="as-nvcc-12", marks=needs_nvcc_13)])
def both(request: pytest.FixtureRequest, once: Once, lazyck_shared: Lazyck) -> Pair:
    """Build the lazy library and the one ahead of time, with the flags of the parameter."""

    def make(where: Path) -> Pair:
        lazy = build(lazyck_shared, where / "lazy", FILES, request.param)
        return lazy, build_ahead(where / "ahead", FILES, request.param)

    return once(f"cuda_units{request.param.replace(' ', '').replace('/', '')}", make)


def test_every_source_is_by_kernel(both: Pair) -> None:
    lazy, _ = both
    assert "0 blobs deferred, 0 lazy with 0 symbols, 0 eager" in lazy.said
    assert "16 kernels of 2 sources, each compiled when it is first used" in lazy.said


def test_no_device_code_is_in_the_library(both: Pair) -> None:
    lazy, ahead = both
    code = b".text._ZN2ns5scale"  # name of a section in an image of machine code
    assert code in (ahead.where / "libx.so").read_bytes()
    assert code not in (lazy.where / "libx.so").read_bytes()


@pytest.mark.parametrize("n", range(LAUNCHES))
def test_a_launch_reaches_the_machine_code_that_it_does_ahead_of_time(both: Pair, spy: Path, n: int) -> None:
    lazy, ahead = both
    returned, seen = ahead.run(spy, "launch", n)
    assert returned == "0" and len(used(seen)) == 1
    mine, mine_seen = lazy.run(spy, "launch", n)
    assert (mine, used(mine_seen)) == (returned, used(seen))
    assert mine_seen[0] == "run", "the library registers nothing when it is loaded"


@pytest.mark.parametrize("n", range(ASKS))
def test_every_use_of_a_handle_finds_it_registered(both: Pair, spy: Path, n: int) -> None:
    lazy, ahead = both
    returned, seen = ahead.run(spy, "ask", n)
    assert returned == "0" and len(used(seen)) == 1
    mine, mine_seen = lazy.run(spy, "ask", n)
    assert (mine, used(mine_seen)) == (returned, used(seen))


def test_a_second_process_compiles_nothing(both: Pair, spy: Path) -> None:
    lazy, _ = both
    lazy.run(spy, "launch", 0)
    _, seen = lazy.run(spy, "launch", 0, LAZYCK_JIT="off")
    assert len(used(seen)) == 1


def test_two_sources_with_one_kernel_each_have_their_own(both: Pair, spy: Path) -> None:
    lazy, ahead = both
    assert used(lazy.run(spy, "other", 0)[1]) == used(ahead.run(spy, "other", 0)[1])


def test_one_kernel_is_compiled_for_one_launch(both: Pair, tmp_path: Path, spy: Path) -> None:
    lazy = both[0].fresh(tmp_path)
    lazy.run(spy, "launch", 0)
    assert len(lazy.units) == 1
    _, seen = lazy.run(spy, "launch", 3)
    assert [line.split()[1] for line in seen if line.startswith("register")] == ["_Z10overloadedPf"]


# All functions are templates, so nvcc makes names unique with the number of a process. The kernels
# could use a header's variable, as in every source with cccl's headers.
OWN_NAMES = """
namespace { struct Tag { float x; }; static __constant__ float unused[2]; }
namespace { template <class T> __global__ void unnamed(T* x) { x[0].x = 3; } }
static __global__ void own(float* x) { x[0] = 1; }
template <class T> int launches(int n, float* x) {
    if (n == 0) unnamed<<<1, 1>>>((T*)x);
    if (n == 1) own<<<1, 1>>>(x);
    if (n == 2) return cudaMemcpyToSymbol(unused, x, 4);
    return cudaGetLastError();
}
extern "C" __attribute__((visibility("default"))) int launch(int n, float* x);
template <class T> struct Api { static int launch(int n, float* x) { return launches<Tag>(n, x); } };
template struct Api<float>;
"""
CALLS_OWN_NAMES = """
template <class T> struct Api { static int launch(int n, float* x); };
extern "C" __attribute__((visibility("default"))) int launch(int n, float* x) { return Api<float>::launch(n, x); }
"""


@pytest.fixture
def elsewhere(once: Once, lazyck_shared: Lazyck) -> tuple[Built, Built, Built]:
    """Build these kernels lazily in two places, and ahead of time."""
    files = {"kernels.cu": OWN_NAMES, "calls.cpp": CALLS_OWN_NAMES}
    link = f"c++ -fPIC -c calls.cpp -o calls.o\n{LINK}"

    def make(where: Path) -> tuple[Built, Built, Built]:
        one, other = (build(lazyck_shared, where / name, files, link=link) for name in ("one", "a_longer_name"))
        return one, other, build_ahead(where / "ahead", files, link=link)

    return once("cuda_units_elsewhere", make)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_what_is_compiled_serves_a_build_in_another_place(
    elsewhere: tuple[Built, Built, Built], tmp_path: Path, spy: Path, n: int
) -> None:
    one, other, ahead = elsewhere
    shared = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache")}
    returned, seen = one.run(spy, "launch", n, **shared)
    assert returned == "0" and len(used(seen)) == 1 and not used(seen)[0].endswith(("UNREGISTERED", "none"))
    there, seen_there = other.run(spy, "launch", n, LAZYCK_JIT="off", **shared)
    assert (there, used(seen_there)) == (returned, used(seen))
    if n < 2:  # a unit has one variable, a whole source has all
        assert used(ahead.run(spy, "launch", n)[1])[0].split()[:2] == used(seen)[0].split()[:2]


def test_kernels_that_share_a_variable_are_in_one_module(both: Pair, spy: Path) -> None:
    lazy, _ = both
    _, seen = lazy.run(spy, "launch", 9)
    registered = {line.split()[1] for line in seen if line.startswith("register")}
    assert {"table", "_Z10with_tablePf", "counter", "_Z6countsv"} <= registered


@pytest.fixture
def owner(once: Once, lazyck_shared: Lazyck) -> Built:
    """Build the blob, and the host unit whose kernel it uses."""
    files = {"kernels.cuh": FILES["kernels.cuh"], "blob.cu": BLOB, "owner.cu": OWNER, "caller.cpp": CALLER}
    link = f"c++ -fPIC -c caller.cpp -o caller.o\n{LINK}"
    return once("cuda_units_owner", lambda where: build(lazyck_shared, where, files, VISIBLE, "*/blob.cu", link))


@pytest.mark.parametrize("n", [0, 1])
def test_a_blob_uses_the_handles_of_kernels_in_a_host_unit(owner: Built, tmp_path: Path, spy: Path, n: int) -> None:
    assert "1 blob deferred, 1 lazy with 1 symbol, 0 eager" in owner.said
    returned, seen = owner.fresh(tmp_path).run(spy, "call", n)
    assert (returned, len(used(seen))) == ("0", 1)
    assert not used(seen)[0].endswith(("UNREGISTERED", "none"))
