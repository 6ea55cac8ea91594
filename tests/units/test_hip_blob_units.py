"""Test HIP blobs whose first call compiles their host code and the kernel that it launches."""

import io
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support import Lazyck, Once
from support.built_units import Built, used
from support.hip_units import build, build_ahead
from support.rocm_layouts import need_real_hip, rocm6

pytestmark = [pytest.mark.hip]

FILES = {
    "blob.hip": """
#include "bare_hip.h"
template <int N> __global__ void scale(float* x) { x[threadIdx.x] *= N; }
static __global__ void own(float* x) { x[0] = 1; }
static __constant__ float table[4];
static __global__ void with_table(float* x) { x[0] = table[threadIdx.x]; }
template <class F> __global__ void apply(F f) { f(); }
int launch_it(int n, float* x) {
    if (n == 0) scale<2><<<1, 32>>>(x);
    if (n == 1) scale<3><<<1, 32>>>(x);
    if (n == 2) own<<<1, 1>>>(x);
    if (n == 3) with_table<<<1, 1>>>(x);
    if (n == 4) apply<<<1, 1>>>([=] __device__() { *x = 1; });
    if (n == 5) return hipMemcpyToSymbol(HIP_SYMBOL(table), x, 4);
    return hipGetLastError();
}
""",
    "only.hip": """
#include <hip/hip_runtime.h>
template <int N> __global__ void only(float* x) { x[threadIdx.x] -= N; }
int launch_only(float* x) { only<7><<<1, 32>>>(x); return hipGetLastError(); }
""",
    "none.hip": "int launch_none() { return 5; }\n",
    "main.hip": """
int launch_it(int, float*);
int launch_only(float*);
int launch_none();
#define API extern "C" __attribute__((visibility("default"))) int
API launch(int n, float* x) { return launch_it(n, x); }
API one(int, float* x) { return launch_only(x); }
API none(int, float*) { return launch_none(); }
""",
}
GRADES = ("--kernels", "*.hip", *(w for n in ("blob", "only", "none") for w in ("--blobs", f"*/{n}.hip")))


@pytest.fixture(scope="module")
def both(once: Once, lazyck_shared: Lazyck) -> tuple[Built, Built]:
    need_real_hip()

    def make(where: Path) -> tuple[Built, Built]:
        home = rocm6(where / "rocm")
        lazy = build(lazyck_shared, where / "lazy", FILES, home, grades=GRADES)
        return lazy, build_ahead(where / "ahead", FILES, home)

    built = once("hip_blob_units", make)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in built[0].said
    return built


@pytest.fixture
def lazy(both: tuple[Built, Built], tmp_path: Path) -> Built:
    return both[0].fresh(tmp_path / "cache")


@pytest.mark.parametrize(("function", "n"), [*(("launch", n) for n in range(6)), ("one", 0), ("none", 0)])
def test_a_call_does_what_it_does_ahead_of_time(
    both: tuple[Built, Built], hip_spy: Path, function: str, n: int
) -> None:
    by_kernel, ahead = both
    returned, seen = ahead.run(hip_spy, function, n)
    mine, mine_seen = by_kernel.run(hip_spy, function, n, LAZYCK_BY_KERNEL="1")
    assert (mine, used(mine_seen)) == (returned, used(seen))
    assert (function == "none") == (used(seen) == [])


def test_a_first_call_compiles_host_code_and_one_kernel(lazy: Built, hip_spy: Path) -> None:
    lazy.run(hip_spy, "launch", 1)
    host, kernel = lazy.entries
    assert host == "blob.host" and kernel.startswith("blob.scale-")
    _, seen = lazy.run(hip_spy, "launch", 1, LAZYCK_JIT="off")
    assert len(used(seen)) == 1
    lines = (lazy.cache / ".costs" / "libx.by-kernel").read_text().splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines] == [("host", "blob"), ("alone", "blob")]
    everything, text = map(float, lines[1].split()[1:3])
    assert 0 < text < everything


def test_kernels_that_a_variable_ties_are_compiled_with_their_source(lazy: Built, hip_spy: Path) -> None:
    _, seen = lazy.run(hip_spy, "launch", 3)
    assert [name.split("-")[0] for name in lazy.entries] == ["blob.device", "blob.host", "blob.with_table"]
    registered = {line.split()[1] for line in seen if line.startswith("register")}
    assert len([name for name in registered if "table" in name]) == 2, "the variable and its kernel"


@pytest.mark.parametrize(
    ("known", "by_kernel"),
    [
        ("", True),
        # As in ggml-hip's mmq, a kernel is a small part of 64.
        ("host 3.3 0 0 64 other\nalone 7.4 2.5 other\n", True),
        # As in ggml-hip's norm, a kernel costs little more than reading the text, which each kernel
        # does anew.
        ("host 1.2 0 0 12 other\nalone 1.2 0.9 other\nwhole 1.0 other\n", False),
        # As in Composable Kernel, there is one kernel.
        ("host 5.2 0 0 1 other\nwhole 39.0 other\n", False),
    ],
)
def test_what_costs_less_is_compiled(lazy: Built, hip_spy: Path, known: str, by_kernel: bool) -> None:
    costs = lazy.cache / ".costs"
    costs.mkdir(parents=True, mode=0o700)
    lazy.cache.chmod(0o700)
    (costs / "libx.by-kernel").write_text(known)
    lazy.run(hip_spy, "launch", 0)
    assert ("blob.host" in lazy.entries, "blob" in lazy.entries) == (by_kernel, not by_kernel)


def test_the_only_kernel_of_a_source_is_compiled_as_its_source_is(lazy: Built, hip_spy: Path) -> None:
    lazy.run(hip_spy, "one", 0)
    assert [name.split("-")[0] for name in lazy.entries] == ["only.host", "only.only"]
    lines = (lazy.cache / ".costs" / "libx.by-kernel").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["host", "whole"]


def data_of(image: ELFFile, name: str) -> bytes:
    section = image.get_section_by_name(name)
    assert section is not None, name
    return section.data()


def code_of(built: Built, name: str) -> list[bytes]:
    """Return the machine code and constants in the entry of blob `name`: the host's, and those of
    each code object."""
    (entry,) = [p for p in built.units if p.name.rpartition("-")[0] == name]
    with entry.open("rb") as f:
        image = ELFFile(f)
        found = [data_of(image, ".text")]
        bundle = data_of(image, ".hip_fatbin")
    at = bundle.find(b"\x7fELF")
    while at >= 0:
        object_file = ELFFile(io.BytesIO(bundle[at:]))
        found += [data_of(object_file, n) for n in (".text", ".rodata")]
        at = bundle.find(b"\x7fELF", at + 4)
    assert len(found) > 1
    return found


def log_of(built: Built) -> str:
    (log,) = built.cache.rglob("*.log")
    return log.read_text()


@pytest.fixture
def both_ways(both: tuple[Built, Built], tmp_path: Path) -> list[Built]:
    """Return the library twice, each time with a cache of its own."""
    return [both[0].fresh(tmp_path / name) for name in ("beside", "after")]


def test_host_and_device_code_are_compiled_at_the_same_time(both_ways: list[Built], hip_spy: Path) -> None:
    beside, after = both_ways
    seen = []
    for built, jobs in ((beside, "2"), (after, "1")):
        returned, told = built.run(hip_spy, "launch", 1, LAZYCK_BY_KERNEL="0", LAZYCK_JOBS=jobs)
        seen.append((returned, len(used(told))))
        assert built.entries == ["blob"]
    assert seen[0] == seen[1]
    assert ["hip-object" in log_of(built) for built in both_ways] == [True, False]
    assert code_of(beside, "blob") == code_of(after, "blob")


def test_a_source_without_device_code_is_compiled_at_the_same_time_too(lazy: Built, hip_spy: Path) -> None:
    lazy.run(hip_spy, "none", 0, LAZYCK_BY_KERNEL="0", LAZYCK_JOBS="2")
    assert "hip-object" in log_of(lazy) and "the plain command" not in log_of(lazy)


def test_where_they_cannot_be_the_plain_command_compiles_them(
    both: tuple[Built, Built], tmp_path: Path, hip_spy: Path
) -> None:
    lazy = both[0].with_own_bundle(tmp_path)
    lazy.unit_program().chmod(0o644)  # as on a file system that is mounted noexec
    lazy.run(hip_spy, "launch", 1, LAZYCK_BY_KERNEL="0", LAZYCK_JOBS="2")
    assert lazy.entries == ["blob"]
    assert "the plain command" in log_of(lazy)
