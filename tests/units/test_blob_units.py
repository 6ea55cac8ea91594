"""Test blobs whose first call compiles either their host code and the kernel that it launches, or
all of them, whichever costs less."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck, Once
from support.base_wheels import make_wheel, pip_install
from support.built_units import Built
from support.cuda_machine import needs_nvcc
from support.cuda_units import LINK, build, build_ahead, used

pytestmark = [pytest.mark.cuda, needs_nvcc]

HEADER = """
#pragma once
struct Shape { int sizes[5]; double scale; };
namespace ns { template <class T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; } }
"""
BLOB = """
#include <cstdio>
#include <cassert>
#include "kernels.cuh"
namespace { template <class T> __global__ void unnamed(T* x) { x[0] = 3; } }
namespace { __global__ void overloaded(float* x) { assert(x); x[0] = 1; } }
namespace { __global__ void overloaded(double* x, Shape s) { x[0] = s.scale + s.sizes[1]; } }
static __global__ void own(int* x) { printf("own %d\\n", x[0]); }
template <class F> __global__ void apply(F f) { f(); }
static __constant__ float table[4];
static __global__ void with_table(float* x) { x[0] = table[threadIdx.x]; }
#define API extern "C" __attribute__((visibility("default"))) int
API launch(int n, float* x) {
    switch (n) {
        case 0: ns::scale<float, 2><<<1, 32>>>(x); break;
        case 1: ns::scale<double, 3><<<1, 32>>>((double*)x); break;
        case 2: unnamed<<<1, 1>>>(x); break;
        case 3: overloaded<<<1, 1>>>(x); break;
        case 4: overloaded<<<1, 1>>>((double*)x, Shape{}); break;
        case 5: own<<<1, 1>>>((int*)x); break;
        case 6: apply<<<1, 1>>>([=] __device__() { *x = 1; }); break;
        case 7: with_table<<<1, 1>>>(x); break;
    }
    return cudaGetLastError();
}
API ask(int n, float* x) {
    void* what = (void*)(void (*)(float*))ns::scale<float, 4>;
    cudaFuncAttributes attributes;
    cudaKernelNodeParams node = {};
    node.func = what;
    int found = 0;
    void* arguments[] = {&x};
    switch (n) {
        case 0: return cudaFuncSetAttribute(what, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
        case 1: return cudaFuncGetAttributes(&attributes, what);
        case 2: return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, what, 32, 0);
        case 3: return cudaLaunchCooperativeKernel(what, 1, 32, arguments);
        case 4: return cudaGraphAddKernelNode(nullptr, nullptr, nullptr, 0, &node);
        case 5: return cudaMemcpyToSymbol(table, x, 4);
    }
    return -1;
}
"""
FILES = {"kernels.cuh": HEADER, "blob.cu": BLOB}
LAUNCHES, ASKS = 8, 6
STATIC = LINK.replace("-cudart shared", "-cudart static")


def lazy_library(once: Once, lazyck_shared: Lazyck, link: str) -> Built:
    """Build with that link command, once for all tests."""

    def make(where: Path) -> Built:
        return build(lazyck_shared, where, FILES, blobs="*/blob.cu", link=link)

    return once(f"blob_units.{link.rpartition(' ')[2]}", make)


@pytest.fixture
def both(request: pytest.FixtureRequest, once: Once, lazyck_shared: Lazyck) -> tuple[Built, Built]:
    lazy = lazy_library(once, lazyck_shared, request.param)
    assert "1 blob deferred, 1 lazy with 2 symbols, 0 eager" in lazy.said
    return lazy, once("blob_units.ahead", lambda where: build_ahead(where, FILES))


@pytest.fixture
def blob(once: Once, lazyck_shared: Lazyck, tmp_path: Path) -> Built:
    return lazy_library(once, lazyck_shared, LINK).fresh(tmp_path / "cache")


@pytest.fixture
def own_blob(once: Once, lazyck_shared: Lazyck, tmp_path: Path) -> Built:
    """Return the library for a test that changes its bundle."""
    return lazy_library(once, lazyck_shared, LINK).with_own_bundle(tmp_path)


@pytest.fixture
def called(blob: Built, once: Once, spy: Path) -> Built:
    """Return the library after a first call of `launch(1)`. Beside its cache are what this call
    recorded and logged: `my.profile` and `said`."""

    def make(where: Path) -> Path:
        record = {"LAZYCK_RECORD": str(where / "my.profile")}
        log = {"LAZYCK_LOG_FILE": str(where / "said"), "LAZYCK_LOG_FORMAT": "json"}
        blob.fresh(where / "cache").run(spy, "launch", 1, **record, **log)
        return where

    shutil.copytree(once("blob_units.called", make), blob.cache.parent, dirs_exist_ok=True)
    return blob


def lazy_libraries(*, shared: Iterable[int], static: Iterable[int]) -> list[object]:
    """Return parameters: the links, and what is launched there. All that can be asked is asked of
    both."""
    return [
        pytest.param(link, function, n, id=f"{name}-{function}-{n}")
        for link, name, launches in ((LINK, "shared", shared), (STATIC, "static", static))
        for function, numbers in (("launch", launches), ("ask", range(ASKS)))
        for n in numbers
    ]


@pytest.mark.parametrize(
    ("both", "function", "n"), lazy_libraries(shared=range(LAUNCHES), static=(0, 7)), indirect=["both"]
)
def test_every_use_of_a_handle_is_as_ahead_of_time(both: tuple[Built, Built], spy: Path, function: str, n: int) -> None:
    lazy, ahead = both
    if "static" in lazy.where.joinpath("build.sh").read_text():
        # The spy cannot stand in for a static runtime, which sees that there is no driver.
        assert lazy.run(spy, function, n, LAZYCK_BY_KERNEL="1")[0] in ("35", "100")
        return
    returned, seen = ahead.run(spy, function, n)
    assert returned == "0" and len(used(seen)) == 1
    mine, mine_seen = lazy.run(spy, function, n, LAZYCK_BY_KERNEL="1")
    assert (mine, used(mine_seen)) == (returned, used(seen))


def test_a_first_call_compiles_host_code_and_one_kernel(called: Built, spy: Path) -> None:
    host, kernel = called.entries
    assert host == "blob.host" and kernel.startswith("blob.scale-")
    called.run(spy, "launch", 1, LAZYCK_JIT="off")
    assert called.entries == [host, kernel]


def test_a_log_for_programs_names_the_kernel(called: Built) -> None:
    lines = [json.loads(line) for line in (called.cache.parent / "said").read_text().splitlines()]
    ends = [(e["blob"], e.get("kernel")) for e in lines if e["event"] == "compile_end"]
    host, kernel = called.entries
    assert ends == [(host, None), (kernel, "_ZN2ns5scaleIdLi3EEEvPT_")]


def test_a_whole_blob_that_is_cached_is_taken(blob: Built, spy: Path, lazyck: Lazyck) -> None:
    env = {**blob.env, "LAZYCK_ARCHS": "80"}
    assert lazyck("prebuild", "build", "--manifest", "libx.so", "blob", cwd=blob.where, env=env).returncode == 0
    assert blob.entries == ["blob"]
    _, seen = blob.run(spy, "launch", 0, LAZYCK_JIT="off", LAZYCK_BY_KERNEL="1")
    assert len(used(seen)) == 1 and blob.entries == ["blob"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ("", True),  # the first blob goes by kernel, and its figures are noted
        # As in FlashAttention, a kernel is a small part of a blob.
        ("host 22.1 8.1 9.0 32 other\nkernel 32.3 other\n", True),
        # A kernel costs as much as the headers, all of which it reads.
        ("host 111.4 43.0 43.0 63 other\nkernel 44.3 other\n", False),
        # As in torch_scatter, a kernel reads a third of what all kernels read.
        ("host 80.0 10.0 33.0 345 other\nkernel 13.0 other\n", True),
        # The library has two kinds of blobs, and this blob's own figures count.
        ("host 111.4 43.0 43.0 63 other\nkernel 44.3 other\nhost 22.1 8.1 9.0 32 blob\nkernel 32.3 blob\n", True),
        ("host 22.1 8.1 9.0 32 other\nkernel 32.3 other\nhost 111.4 43.0 43.0 63 blob\nkernel 44.3 blob\n", False),
        ("host 3.0 1.0 1.0 1 other\n", False),  # nothing can be saved with one kernel
        ("host 22.1 8.1 9.0 32 other\n", True),  # the cost of its kernels is not known yet
        # For one kernel, all had to be compiled, because it cannot be compiled alone.
        ("host 22.1 8.1 9.0 32 other\nkernel 32.3 other\nrefused 32.3 other\n", False),
        ("host nonsense\nkernel\n\n\x01", True),
    ],
)
def test_what_costs_less_is_compiled(blob: Built, spy: Path, known: str, expected: bool) -> None:
    costs = blob.cache / ".costs"
    costs.mkdir(parents=True, mode=0o700)
    blob.cache.chmod(0o700)
    (costs / "libx.by-kernel").write_text(known)
    log = blob.cache.parent / "said"
    refused = {"LAZYCK_LAUNCHER": "/bin/false", "LAZYCK_LOG_FILE": str(log), "LAZYCK_LOG_FORMAT": "json"}
    with pytest.raises(AssertionError, match="cannot compile blob"):  # what is begun first was decided
        blob.run(spy, "launch", 0, **refused)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    begun = [e["blob"] for e in lines if e["event"] == "compile_begin"]
    assert begun[0] == ("blob.host" if expected else "blob")


def test_what_parts_cost_is_kept_for_the_next_decision(called: Built) -> None:
    lines = (called.cache / ".costs" / "libx.by-kernel").read_text().splitlines()
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["host", "kernel"] and all(line.endswith(" blob") for line in lines)
    everything, device, all_text, kernels = lines[0].split()[1:5]
    assert 0 < float(device) <= float(all_text) < float(everything) and int(kernels) == 9


def test_a_kernel_that_cannot_be_had_by_itself_is_remembered(blob: Built, spy: Path) -> None:
    blob.run(spy, "launch", 7)
    assert [name.split("-")[0] for name in blob.entries] == ["blob.device", "blob.host", "blob.with_table"]
    said = (blob.cache / ".costs" / "libx.by-kernel").read_text()
    assert [line.split()[0] for line in said.splitlines()] == ["host", "refused", "whole"]


def test_where_nothing_can_be_taken_apart_the_blob_is_compiled_whole(own_blob: Built, spy: Path) -> None:
    own_blob.unit_program().chmod(0o644)  # as on a file system that is mounted noexec
    _, seen = own_blob.run(spy, "launch", 0, LAZYCK_BY_KERNEL="1")
    assert len(used(seen)) == 1 and own_blob.entries == ["blob"]


def test_that_a_blob_cannot_be_taken_apart_is_remembered_and_no_error(own_blob: Built, spy: Path) -> None:
    own_blob.unit_program().chmod(0o644)
    cache, log = own_blob.cache, own_blob.cache.parent / "said"
    for tries_host_unit in (True, False):
        for made in cache.rglob("blob*"):
            made.unlink()
        own_blob.run(spy, "launch", 0, LAZYCK_LOG_FILE=str(log))
        assert any(cache.rglob("blob.host-*.log")) is tries_host_unit
    assert (cache / ".costs" / "libx.by-kernel").read_text() == "refused 0 blob\n"
    assert "blob.host for 80 cannot be compiled alone: the whole blob is compiled instead" in log.read_text()
    assert "error" not in log.read_text()


def test_a_kernel_that_does_not_compile_names_it_and_the_rest_goes_on(
    lazyck: Lazyck, tmp_path: Path, spy: Path
) -> None:
    broken = BLOB.replace(
        "x[0] = 3; }", 'if constexpr (sizeof(T) == 4) static_assert(sizeof(T) != 4, "not for floats"); x[0] = 3; }'
    )
    blob = build(lazyck, tmp_path, {**FILES, "blob.cu": broken}, blobs="*/blob.cu")
    assert blob.run(spy, "launch", 0)[0] == "0"
    with pytest.raises(AssertionError, match=r"not for floats(.|\n)*blob.cu(.|\n)*unnamed"):
        blob.run(spy, "launch", 2)
    assert blob.run(spy, "launch", 5)[0] == "0"


def test_a_profile_names_kernels_and_prefetch_makes_them_ready(called: Built, spy: Path) -> None:
    blob, profile = called, called.cache.parent / "my.profile"
    names = [line.split("\t")[0] for line in profile.read_text().splitlines() if not line.startswith("#")]
    assert names[0] == "blob" and names[1].startswith("blob.scale-")
    used_entries = blob.entries
    for path in blob.cache.rglob("*.so"):
        path.unlink()
    said = again(blob, f"x.prefetch(pathlib.Path({str(profile)!r})).wait()", LAZYCK_JOBS="2")
    assert blob.entries == used_entries
    began = [line.split()[2] for line in said.splitlines() if " compiling " in line]
    ended = [line.split()[2] for line in said.splitlines() if " compiled " in line]
    assert set(began[:2]) == set(ended) and said.index("compiled") > said.index(f"compiling {began[1]}")
    blob.run(spy, "launch", 1, LAZYCK_JIT="off")


def test_what_is_prefetched_by_its_name_is_whole(blob: Built) -> None:
    again(blob, "x.prefetch('blob').wait()")
    assert blob.entries == ["blob"]


def test_prefetching_a_blob_whose_host_code_is_loaded_makes_all_its_kernels_ready(called: Built, spy: Path) -> None:
    blob = called
    again(blob, "ctypes.CDLL('./libx.so').launch(1, None); x.prefetch('blob').wait()")
    assert [name.split("-")[0] for name in blob.entries] == ["blob.device", "blob.host", "blob.scale"]
    _, seen = blob.run(spy, "launch", 0, LAZYCK_JIT="off")
    assert len(used(seen)) == 1


def again(blob: Built, code: str, **more: str) -> str:
    """Run `code` in a process of its own, where `x` is the library. Return what lazyck prints."""
    lines = f"import ctypes, pathlib\nfrom lazyck.library import load\nx = load('./libx.so')\n{code}\n"
    env = {**blob.env, "LAZYCK_ARCHS": "80", "LAZYCK_BY_KERNEL": "1", "PYTHONPATH": str(REPOSITORY), **more}
    done = subprocess.run([sys.executable, "-c", lines], cwd=blob.where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_prebuild_makes_the_kernels_that_a_profile_names(called: Built, spy: Path, lazyck: Lazyck) -> None:
    blob, profile = called, called.cache.parent / "my.profile"
    made = blob.entries
    env = {**blob.env, "LAZYCK_ARCHS": "80", "LAZYCK_CACHE_DIR": str(blob.cache.parent / "cache2")}
    words = ("--manifest", "libx.so", "--blob-list", str(profile))
    done = lazyck("prebuild", "build", *words, cwd=blob.where, env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name.rpartition("-")[0] for p in (blob.cache.parent / "cache2").rglob("*.so")) == made
    _, seen = blob.run(spy, "launch", 1, LAZYCK_JIT="off", LAZYCK_CACHE_DIR=env["LAZYCK_CACHE_DIR"])
    assert len(used(seen)) == 1
    pruned = lazyck("profile", "prune", str(profile), "--manifest", "libx.so", cwd=blob.where, env=env)
    assert pruned.returncode == 0 and made[1] in profile.read_text()
    # The whole blob is compiled if nothing names its kernels.
    assert lazyck("prebuild", "build", "--manifest", "libx.so", "blob", cwd=blob.where, env=env).returncode == 0
    assert list((blob.cache.parent / "cache2").rglob("blob-*.so"))


def test_a_pack_has_the_host_unit_and_the_kernels_that_a_profile_names(
    called: Built, spy: Path, lazyck: Lazyck, tmp_path: Path
) -> None:
    blob, profile = called, called.cache.parent / "my.profile"
    base = make_wheel(tmp_path / "dist", blob.where, [blob.where / "libx.so"], "1.0")
    env = {**blob.env, "LAZYCK_ARCHS": "80"}
    done = lazyck("pack", "--base", base, "--blob-list", profile, "--wheel", base.parent, env=env)
    assert done.returncode == 0, done.stderr
    pip_install(tmp_path / "site", base.parent, "vectors-sm80")
    packed = tmp_path / "site" / "vectors_sm80" / "lazyck" / "cache"
    assert sorted(p.name.rpartition("-")[0] for p in packed.rglob("*.so")) == blob.entries
    frozen = {"LAZYCK_JIT": "off", "LAZYCK_CACHE_DIR": str(tmp_path / "empty")}
    _, seen = blob.run(spy, "launch", 1, LAZYCK_CACHE_PATH=str(packed), **frozen)
    assert len(used(seen)) == 1


def test_prebuild_lists_the_kernels_of_a_blob_whose_host_unit_is_cached(called: Built, lazyck: Lazyck) -> None:
    def listed(**env: str) -> list[list[str]]:
        words = ["prebuild", "list", "--manifest", "libx.so", "--kernels", "--match", "*blob*"]
        done = lazyck(*words, cwd=called.where, env={**called.env, **env})
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    assert listed(LAZYCK_CACHE_DIR=str(called.cache.parent / "empty")) == [["blob", "-"]]
    cached = {kernel: archs for name, archs, kernel in listed()}
    assert len(cached) == 9 and all(name.startswith("blob.") for name, _, _ in listed())
    assert cached["void ns::scale<double, 3>(double*)"] == "80"
    assert cached["void ns::scale<float, 2>(float*)"] == "-"


def test_a_name_that_no_kernel_has_is_refused(called: Built, lazyck: Lazyck) -> None:
    words = ("prebuild", "build", "--manifest", "libx.so", "blob.none-12345678")
    done = lazyck(*words, cwd=called.where, env=called.env)
    assert done.returncode != 0 and "no blob 'blob.none-12345678'" in done.stderr
