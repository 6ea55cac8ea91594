"""Test HIP sources by kernel, with kernels that compute: fake_rocm_home runs them on the CPU."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import FAKE_ROCM, Lazyck

FILES = {
    "kernels.h": """
#pragma once
#include <hip/hip_runtime.h>
#include <cstdio>
template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
""",
    "main.hip": """
#include "kernels.h"
struct Registrar { Registrar() { puts("registered"); } } registrar;
__constant__ float table[4];
__device__ int counter = 5;
static const __device__ int primes[4] = {2, 3, 5, 7};
__device__ __forceinline__ float twice(float x) { return 2 * x; }
static __global__ __launch_bounds__(64) void own(float* x) {
    __shared__ float s[64];
    s[threadIdx.x] = twice(x[threadIdx.x]);
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x] + primes[1];
}
namespace { __global__ void with_table(float* x) { x[threadIdx.x] += table[threadIdx.x % 4]; } }
__global__ void counts() { if (threadIdx.x == 0) counter += 1; }
__global__ void tells(int* x) { *x = counter; }
extern "C" int compute(int part) {
    float v[64], t[4] = {1, 2, 3, 4};
    int told = 0, n = 0;
    for (int i = 0; i < 64; ++i) v[i] = i;
    if (part == 0) scale<float, 3><<<1, 64>>>(v);
    if (part == 1) own<<<1, 64>>>(v);
    if (part == 2) {
        (void)hipMemcpyToSymbol(HIP_SYMBOL(table), t, sizeof t);
        hipLaunchKernelGGL(with_table, 1, 64, 0, 0, v);
    }
    if (part == 3) {
        counts<<<2, 64>>>();
        tells<<<1, 1>>>(&told);
        (void)hipMemcpyFromSymbol(&n, HIP_SYMBOL(counter), sizeof n);
    }
    printf("%g %g %g %d %d %d\\n", v[0], v[1], v[63], told, n, (int)hipGetLastError());
    fflush(stdout);
    return 0;
}
""",
    "other.hip": """
#include "kernels.h"
extern "C" int other(int) {
    float v[64];
    for (int i = 0; i < 64; ++i) v[i] = i;
    scale<float, 3><<<1, 64>>>(v);
    scale<float, 5><<<1, 64>>>(v);
    printf("%g %d\\n", v[63], (int)hipGetLastError());
    fflush(stdout);
    return 0;
}
""",
    "plain.hip": 'extern "C" int plain(int x) { return x + 1; }\n',
}
MANAGED = {
    "main.hip": """
#include "kernels.h"
__managed__ int everywhere = 1;
__global__ void adds() { everywhere += 2; }
extern "C" int compute(int) { everywhere = 5; adds<<<1, 1>>>(); printf("%d\\n", everywhere); fflush(stdout); return 0; }
""",
    "kernels.h": FILES["kernels.h"],
}
BUILD = """set -e
for f in *.hip; do hipcc -O2 --offload-arch=gfx942 -w -fPIC -c "$f" -o "$f.o"; done
hipcc -shared *.o -o libx.so
"""


def project(where: Path, files: Mapping[str, str], compiler: str) -> dict[str, str]:
    where.mkdir(exist_ok=True)
    for name, text in files.items():
        (where / name).write_text(text)
    (where / "build.sh").write_text(BUILD)
    return {
        "PATH": f"{FAKE_ROCM}/bin:{os.environ['PATH']}",
        "ROCM_PATH": str(FAKE_ROCM),
        "FAKE_ROCM_CXX": compiler,
        "LAZYCK_CACHE_DIR": str(where / "cache"),
        "FAKE_ROCM_LAUNCH_LOG": str(where / "launches"),
    }


def call(where: Path, env: Mapping[str, str], function: str, n: int = 0) -> tuple[str, list[str]]:
    """Return what `function(n)` prints in a process of its own, and the kernels that it
    launches."""
    (where / "launches").write_text("")
    code = f"import ctypes\nx = ctypes.CDLL('./libx.so')\nx.{function}({n})\n"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=where, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line.partition("kernel=")[2] for line in (where / "launches").read_text().splitlines()]


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_kernels_compute_what_they_do_ahead_of_time(lazyck: Lazyck, tmp_path: Path, compiler: str) -> None:
    ahead, lazy = tmp_path / "ahead", tmp_path / "lazy"
    env = project(ahead, FILES, compiler)
    subprocess.run(["sh", "build.sh"], cwd=ahead, env={**os.environ, **env}, check=True)
    lazy_env = project(lazy, FILES, compiler)
    done = lazyck("build", "full", "--kernels", "*.hip", "--", "sh", "build.sh", cwd=lazy, env=lazy_env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 kernels of 3 sources, each compiled when it is first used" in done.stdout + done.stderr
    for function, n in (("compute", 0), ("compute", 1), ("compute", 2), ("compute", 3), ("other", 0), ("plain", 1)):
        assert call(lazy, lazy_env, function, n) == call(ahead, env, function, n)
    printed, launched = call(lazy, lazy_env, "compute", 3)
    assert printed == "registered\n0 1 63 7 7 0\n" and launched == ["_Z6countsv", "_Z5tellsPi"]


def test_no_kernel_is_in_the_library(lazyck: Lazyck, tmp_path: Path) -> None:
    env = project(tmp_path, {**FILES, "main.hip": FILES["main.hip"].replace("primes[1]", "12345678")}, "g++")
    done = lazyck("build", "full", "--kernels", "*.hip", "--", "sh", "build.sh", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    number = bytes.fromhex("4e613c4b")  # 12345678 as a float
    assert number not in (tmp_path / "libx.so").read_bytes()
    call(tmp_path, env, "compute", 1)
    assert any(number in entry.read_bytes() for entry in (tmp_path / "cache").rglob("*.so"))


def test_a_source_with_managed_variables_is_compiled_as_a_whole(lazyck: Lazyck, tmp_path: Path) -> None:
    env = project(tmp_path, MANAGED, "g++")
    done = lazyck("build", "full", "--kernels", "*.hip", "--", "sh", "build.sh", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 eager" in done.stdout + done.stderr and "managed variables" in done.stdout + done.stderr
    assert call(tmp_path, env, "compute") == ("7\n", ["_Z4addsv"])
