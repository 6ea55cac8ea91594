"""Test HIP entries that are found by the text from which they were made: LLVM IR of a kernel,
preprocessed text of a blob."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Lazyck
from support.built_units import Built
from support.hip_units import build
from support.rocm_layouts import need_real_hip, rocm6

from lazyck.formats import trailer

pytestmark = [pytest.mark.hip]

HEADER = """
#include "bare_hip.h"
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
extern "C" int launch(int n, float* x) {
    switch (n) {
        case 0: scale<float, 2><<<1, 32>>>(x); break;
        case 1: one<<<1, 1>>>(x); break;
    }
    return hipGetLastError();
}
"""
BLOB = """
#include "kernels.h"
int launch_it(float* x) { scale<float, 2><<<1, 32>>>(x); return hipGetLastError(); }
"""
MAIN = (
    SOURCE
    + """
int launch_it(float*);
extern "C" int launch_blob(int, float* x) { return launch_it(x); }
"""
)
COMMENTED = "// 2.0\n\n#define VERSION 2\n" + HEADER
RELEASED = COMMENTED + "struct Other { int a[3]; };\n"
CHANGED = HEADER.replace("*= N", "+= N")
RELEASES = {"first": HEADER, "commented": COMMENTED, "released": RELEASED, "changed": CHANGED}

# This function calls a function of a release in a process, and returns what lazyck prints there.
Say = Callable[[str, str, int], str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> dict[str, Built]:
    """Build the library with each release of the header."""
    need_real_hip()
    where = tmp_path_factory.mktemp("hip_text_keys")
    home = rocm6(where / "home")
    made = {}
    for name, header in RELEASES.items():
        files = {"kernels.h": header, "blob.hip": BLOB, "main.hip": MAIN}
        made[name] = build(
            lazyck_shared, where / name, files, home, grades=("--kernels", "*.hip", "--blobs", "*/blob.hip")
        )
    return made


@pytest.fixture
def say(built: dict[str, Built], tmp_path: Path, hip_spy: Path) -> Say:
    def call(name: str, function: str, n: int) -> str:
        log = tmp_path / f"said-{name}{n}"
        env = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache"), "LAZYCK_LOG": "info", "LAZYCK_LOG_FILE": str(log)}
        env |= {"LAZYCK_BY_KERNEL": "0", "LAZYCK_TEXT_KEYS": "1"}
        assert built[name].run(hip_spy, function, n, **env)[0] == "0"
        return log.read_text()

    return call


def images(where: Path, pattern: str) -> list[bytes]:
    """Return what the loader sees of the entries, oldest first."""
    found = sorted((where / "cache").glob(f"v1/*/*/{pattern}.so"), key=lambda p: p.stat().st_mtime_ns)
    return [p.read_bytes()[: -trailer.SIZE] for p in found]


def test_what_a_release_does_not_change_for_a_kernel_is_taken_over(say: Say, tmp_path: Path) -> None:
    said = ["took over" in say(name, "launch", n) for name in ("first", "released", "changed") for n in range(2)]
    assert said == [False, False, True, True, False, True]
    first, second, third = images(tmp_path, "main.scale*")
    assert first == second != third


def test_a_whole_blob_is_taken_over(say: Say, tmp_path: Path) -> None:
    said = [say(name, "launch_blob", 0) for name in ("first", "commented", "released")]
    assert [re.findall("(compiled|took over) blob ", s) for s in said] == [["compiled"], ["took over"], ["compiled"]]
    first, second, _ = images(tmp_path, "blob-*")
    assert first == second
