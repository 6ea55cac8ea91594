"""Test processes that see GPUs of several archs: each device finds its own code, which is in an
entry of its own."""

from pathlib import Path

import pytest
from support import Lazyck, Once, cuda_units, hip_units
from support.built_units import Built
from support.cuda_machine import needs_nvcc
from support.hip_units import HOMES
from support.rocm_layouts import need_real_hip

KERNELS = """
__device__ __noinline__ float shared(float x, int n) {
    float y = x;
    for (int i = 0; i < n; ++i) y = y * x + i;
    return y;
}
template <int N> __global__ void alone(float* x) { x[threadIdx.x] *= N; }
template <int N> __global__ void sharing(float* x) { x[threadIdx.x] = shared(x[threadIdx.x], N); }
extern "C" __attribute__((visibility("default"))) int launch(int n, float* x) {
    if (n == 1) alone<1><<<1, 1>>>(x);
    if (n == 2) alone<2><<<1, 1>>>(x);
    if (n == 3) sharing<1><<<1, 1>>>(x);
    if (n == 4) sharing<2><<<1, 1>>>(x);
    return 0;
}
"""
CUDA_ARCHS, HIP_ARCHS = ("80", "90"), ("gfx908", "gfx90a")


class Pair:
    """A library built lazily and ahead of time for two archs, and the spy to run both under."""

    def __init__(self, lazily: Built, ahead: Built, archs: tuple[str, str], spy: Path) -> None:
        self.lazily, self.ahead, self.archs, self.spy = lazily, ahead, archs, spy

    def code(self, built: Built, n: int, arch: str, devices: str, **more: str) -> list[str]:
        """Return what a launch uses, with its code for `arch`, in a process that sees
        `devices`."""
        more = {"SPY_DEVICES": devices, "SPY_ARCH": arch, "LAZYCK_ARCHS": "", **more}
        return cuda_units.used(built.run(self.spy, "launch", n, **more)[1])

    def entries(self, built: Built) -> list[tuple[str, str]]:
        """Return the kernel and the archs of each entry."""
        return sorted((p.name.rpartition("-")[0], p.parent.name.partition("-")[0]) for p in built.units)


@pytest.fixture(
    params=[pytest.param("cuda", marks=[pytest.mark.cuda, needs_nvcc]), pytest.param("hip", marks=pytest.mark.hip)]
)
def pair(request: pytest.FixtureRequest, lazyck: Lazyck, once: Once, tmp_path: Path) -> Pair:
    if request.param == "cuda":
        flags = " ".join(f"-gencode arch=compute_{a},code=sm_{a}" for a in CUDA_ARCHS)

        def make(where: Path) -> tuple[Built, Built]:
            files = {"x.cu": KERNELS}
            lazily = cuda_units.build(lazyck, where / "lazy", files, flags)
            return lazily, cuda_units.build_ahead(where / "ahead", files, flags)

        archs, spy = CUDA_ARCHS, request.getfixturevalue("spy")
    else:
        need_real_hip()

        def make(where: Path) -> tuple[Built, Built]:
            files, home = {"x.hip": '#include "bare_hip.h"\n' + KERNELS}, HOMES["clang19"](where / "home")
            lazily = hip_units.build(lazyck, where / "lazy", files, home, "--offload-arch=gfx908 --offload-compress")
            return lazily, hip_units.build_ahead(where / "ahead", files, home, "--offload-arch=gfx908")

        archs, spy = HIP_ARCHS, request.getfixturevalue("hip_spy")
    lazily, ahead = once(f"several-archs-{request.param}", make)
    return Pair(lazily.fresh(tmp_path / "cache"), ahead, archs, spy)


@pytest.mark.parametrize("n", [1, 3])
def test_each_device_finds_the_code_that_it_has_ahead_of_time(pair: Pair, n: int) -> None:
    """Kernel 3 shares a function with others, so it is compiled with all of its source."""
    for arch in pair.archs:
        lazily = pair.code(pair.lazily, n, arch, " ".join(pair.archs))
        assert lazily == pair.code(pair.ahead, n, arch, " ".join(pair.archs))
        assert "none" not in lazily[-1]
    assert {archs for _, archs in pair.entries(pair.lazily)} == set(pair.archs)


def test_entries_that_were_made_for_one_arch_each_serve_a_process_with_both(pair: Pair) -> None:
    for arch in pair.archs:
        pair.code(pair.lazily, 2, arch, arch)
    made = pair.entries(pair.lazily)
    assert sorted(archs for _, archs in made) == sorted(pair.archs)
    for arch in pair.archs:
        lazily = pair.code(pair.lazily, 2, arch, " ".join(pair.archs), LAZYCK_JIT="off")
        assert lazily == pair.code(pair.ahead, 2, arch, " ".join(pair.archs))
    assert pair.entries(pair.lazily) == made


def test_only_the_code_that_is_missing_is_compiled(pair: Pair) -> None:
    first, second = pair.archs
    pair.code(pair.lazily, 1, first, first)
    (kept,) = (p.stat().st_mtime_ns for p in pair.lazily.units)
    with pytest.raises(AssertionError, match=f"for {second} is missing"):
        pair.code(pair.lazily, 1, second, " ".join(pair.archs), LAZYCK_JIT="off")
    pair.code(pair.lazily, 1, second, " ".join(pair.archs))
    made = pair.entries(pair.lazily)
    assert [archs for _, archs in made] == sorted(pair.archs) and len({kernel for kernel, _ in made}) == 1
    assert kept in {p.stat().st_mtime_ns for p in pair.lazily.units}
