"""Test HIP sources by kernel, with kernels that compute: fake_rocm_home runs them on the CPU."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support import FAKE_ROCM, Lazyck, Once

needs_clang = pytest.mark.skipif(not shutil.which("clang++-19"), reason="clang++-19 is not installed")
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
static const __device__ int primes[4] = {2, 12345678, 5, 7};
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
    }


def call(where: Path, env: Mapping[str, str], function: str, n: int = 0) -> tuple[str, list[str]]:
    """Return what `function(n)` prints in a process of its own, and the kernels that it
    launches."""
    log = Path(tempfile.mkstemp(dir=where)[1])  # a file for each process, because tests run in parallel
    code = f"import ctypes\nx = ctypes.CDLL('./libx.so')\nx.{function}({n})\n"
    argv = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        argv, cwd=where, env={**os.environ, **env, "FAKE_ROCM_LAUNCH_LOG": str(log)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [line.partition("kernel=")[2] for line in log.read_text().splitlines()]


Pair = tuple[Path, dict[str, str]]
CALLS = (("compute", 0), ("compute", 1), ("compute", 2), ("compute", 3), ("other", 0), ("plain", 1))


@pytest.fixture
def both(request: pytest.FixtureRequest, once: Once, lazyck_shared: Lazyck) -> tuple[Pair, Pair]:
    """Return the directories and environments of the library that is lazy, and of the one built
    ahead of time, by the compiler of the parameter."""
    compiler = request.param

    def make(where: Path) -> tuple[Pair, Pair]:
        lazy, ahead = where / "lazy", where / "ahead"
        env, lazy_env = project(ahead, FILES, compiler), project(lazy, FILES, compiler)
        subprocess.run(["sh", "build.sh"], cwd=ahead, env={**os.environ, **env}, check=True)
        done = lazyck_shared("build", "full", "--kernels", "*.hip", "--", "sh", "build.sh", cwd=lazy, env=lazy_env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "7 kernels of 3 sources, each compiled when it is first used" in done.stdout + done.stderr
        return (lazy, lazy_env), (ahead, env)

    return once(f"fake_rocm_units.{compiler}", make)


@pytest.mark.parametrize(
    ("both", "calls"), [("g++", CALLS), pytest.param("clang++-19", CALLS[2:5], marks=needs_clang)], indirect=["both"]
)
def test_kernels_compute_what_they_do_ahead_of_time(both: tuple[Pair, Pair], calls: Sequence[tuple[str, int]]) -> None:
    lazy, ahead = both
    for function, n in calls:
        called = call(*lazy, function, n)
        assert called == call(*ahead, function, n)
        if n == 3:
            assert called == ("registered\n0 1 63 7 7 0\n", ["_Z6countsv", "_Z5tellsPi"])


@pytest.mark.parametrize("both", ["g++"], indirect=True)
def test_no_kernel_is_in_the_library(both: tuple[Pair, Pair], tmp_path: Path) -> None:
    (lazy, env), (ahead, _) = both
    number = bytes.fromhex("4e613c4b")  # 12345678 as a float
    assert [number in (where / "libx.so").read_bytes() for where in (lazy, ahead)] == [False, True]
    call(lazy, {**env, "LAZYCK_CACHE_DIR": str(tmp_path / "cache")}, "compute", 1)
    assert any(number in entry.read_bytes() for entry in (tmp_path / "cache").rglob("*.so"))


def test_a_source_with_managed_variables_is_compiled_as_a_whole(lazyck: Lazyck, tmp_path: Path) -> None:
    env = project(tmp_path, MANAGED, "g++")
    done = lazyck("build", "full", "--kernels", "*.hip", "--", "sh", "build.sh", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not-by-kernel:hipcc: error: managed variables" in done.stderr
    assert call(tmp_path, env, "compute") == ("7\n", ["_Z4addsv"])
