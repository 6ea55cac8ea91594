"""Test that the probe of CUDA blobs with the host's compiler alone yields what the probe with nvcc
does."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.probe_bench import Bench, by_stem

from lazyck import proc
from lazyck.postbuild.probe.group import Probed
from lazyck.toolchains import CUDA

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")]

HEADER = """
#pragma once
#include <cmath>
#include <tuple>
#include <vector>
template <typename T> struct Params { T* p; };
template <typename T, int N> __global__ void instance(Params<T> p) { p.p[0] = N; }
template <typename T> __device__ T twice(T t) { return 2 * t; }
template <typename T> void launch(T* p) { instance<T, 2><<<1, 32>>>({p}); }
template <typename T> __host__ __device__ inline T half(T t) { return t / 2; }
struct Shape { virtual ~Shape() {} virtual int area() const { return 1; } __device__ int sides() { return 3; } };
"""
BLOBS = {
    "plain": "__global__ void kernel(float* p) { *p = 1; }\nvoid run(float* p) { kernel<<<1, 1>>>(p); }\n",
    "instances": "template __global__ void instance<float, 1>(Params<float>);\n"
    "template void launch<double>(double*);\n",
    "both": 'extern "C" __global__ void __launch_bounds__(64) c_kernel(int* p) { *p = 1; }\n'
    "__host__ __device__ int either(int a) { return a; }\n__device__ int device_only(int a) { return a; }\n"
    "static __global__ void own(int) {}\nnamespace { __global__ void unnamed(int) {} }\n"
    "namespace n { __global__ void inner(Params<int>) {} int f(const std::vector<int>&, Shape) { return 1; } }\n",
    "device_data": "__constant__ float table[3];\n__device__ int counter;\n"
    "float g(float a) { own_table<<<1, 1>>>(); return std::pow(a, 2) + a; }\n",
    "again": "__global__ void kernel(float* p) { *p = 1; }\nvoid other(float* p) { kernel<<<1, 1>>>(p); }\n",
}
BLOBS["device_data"] = "static __global__ void own_table() {}\n" + BLOBS["device_data"]
VISIBLE = ("-static-global-template-stub=false", "-device-entity-has-hidden-visibility=false")


def probed(bench: Bench, flags: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Probed], list[str]]:
    """Probe, and return the results with the names of the programs that compiled units."""
    ran: list[str] = []
    run = proc.run

    def noted(argv: Sequence[str], **how: object) -> proc.Result:
        if any("probe.cu" in word for word in argv) and "--dryrun" not in argv:
            ran.append(Path(argv[0]).name)
        return run(argv, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(proc, "run", noted)
        (bench.at / "h.cuh").write_text(HEADER)
        result = bench.probe_all({n: '#include "h.cuh"\n' + t for n, t in BLOBS.items()}, *flags)
    assert not result.eager, result.eager
    return {n: replace(p, headers=frozenset()) for n, p in by_stem(result).items()}, ran


@pytest.mark.parametrize(
    ("standard", "flags"),
    [
        ("c++17", ()),
        ("c++20", VISIBLE),
        ("c++17", ("-Xcompiler", "-fvisibility=hidden")),
        ("c++20", ("-rdc=false", "-O3", "-G")),
    ],
)
def test_both_ways_say_the_same(
    standard: str, flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, (str(shutil.which("nvcc")), f"-std={standard}"), "cuda", ".cu")
    by_host, ran = probed(bench, flags, monkeypatch)
    assert ran and "nvcc" not in ran
    monkeypatch.setattr(type(CUDA), "text_compile", lambda *args, **how: None)
    by_nvcc, ran = probed(bench, flags, monkeypatch)
    assert set(ran) == {"nvcc"}
    assert by_host == by_nvcc
    assert by_host["plain"].kernels == ("_Z6kernelPf",) and by_host["plain"].symbols == ("_Z3runPf",)
