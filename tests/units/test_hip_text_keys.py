"""Test HIP entries that are found by the text from which they were made: LLVM IR of a kernel,
preprocessed text of a blob."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from built_units import Built
from hip_units import build
from rocm_layouts import need_real_hip, rocm6
from support import Lazyck

from _lazyck import trailer

pytestmark = [pytest.mark.hip]

HEADER = """
#include <hip/hip_runtime.h>
template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }
__device__ __noinline__ float summed(float* x, int n) {
    float s = 0;
    for (int i = 0; i < n; ++i) s += x[i] * s;
    return s;
}
"""
SOURCE = """
#include "kernels.h"
static __global__ void one(float* x) { x[0] = summed(x, 3); }
static __global__ void two(float* x) { x[0] = 2; }
extern "C" int launch(int n, float* x) {
    switch (n) {
        case 0: scale<float, 2><<<1, 32>>>(x); break;
        case 1: one<<<1, 1>>>(x); break;
        case 2: two<<<1, 1>>>(x); break;
    }
    return hipGetLastError();
}
"""
BLOB = SOURCE.replace('extern "C" int launch', "int launch_it")
MAIN = """
int launch_it(int, float*);
extern "C" int launch(int n, float* x) { return launch_it(n, x); }
"""
COMMENTED = "// 2.0\n\n#define VERSION 2\n" + HEADER
RELEASED = COMMENTED + "struct Other { int a[3]; };\n"
CHANGED = HEADER.replace("*= N", "+= N")

# This function builds a library from files, launches a kernel in a process, and returns what lazyck
# prints there.
Say = Callable[[str, dict[str, str], int], str]


@pytest.fixture
def say(shared_lazyck: Lazyck, tmp_path: Path, hip_spy: Path) -> Say:
    need_real_hip()
    built: dict[str, Built] = {}

    def launch(name: str, files: dict[str, str], n: int) -> str:
        if name not in built:
            grades = ("--kernels", "*.hip", "--blobs", "*/blob.hip")
            home = rocm6(tmp_path / f"home-{name}")
            built[name] = build(shared_lazyck, tmp_path / name, files, home, grades=grades)
        log = tmp_path / f"said-{name}{n}"
        env = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache"), "LAZYCK_LOG": "info", "LAZYCK_LOG_FILE": str(log)}
        env |= {"LAZYCK_BY_KERNEL": "0", "LAZYCK_TEXT_KEYS": "1"}
        assert built[name].run(hip_spy, "launch", n, **env)[0] == "0"
        return log.read_text()

    return launch


def images(where: Path, pattern: str) -> list[bytes]:
    """Return what the loader sees of the entries, oldest first."""
    found = sorted((where / "cache").glob(f"v1/*/*/{pattern}.so"), key=lambda p: p.stat().st_mtime_ns)
    return [p.read_bytes()[: -trailer.SIZE] for p in found]


def test_what_a_release_does_not_change_for_a_kernel_is_taken_over(say: Say, tmp_path: Path) -> None:
    said = [
        "took over" in say(name, {"kernels.h": header, "main.hip": SOURCE}, n)
        for name, header in (("first", HEADER), ("released", RELEASED), ("changed", CHANGED))
        for n in range(2)
    ]
    assert said == [False, False, True, True, False, True]
    first, second, third = images(tmp_path, "main.scale*")
    assert first == second != third


def test_a_whole_blob_is_taken_over(say: Say, tmp_path: Path) -> None:
    said = [
        say(name, {"kernels.h": header, "blob.hip": BLOB, "main.hip": MAIN}, 0)
        for name, header in (("first", HEADER), ("commented", COMMENTED), ("released", RELEASED))
    ]
    assert [re.findall("(compiled|took over) blob ", s) for s in said] == [["compiled"], ["took over"], ["compiled"]]
    first, second, _ = images(tmp_path, "blob-*")
    assert first == second
