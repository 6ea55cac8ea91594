"""Tests kernels of blobs that other files of the link launch or take the address of, as in NATTEN
and Marlin."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck
from support.cuda_machine import VISIBLE, cuda_environment, cuda_home, needs_nvcc, release

from lazyck.postbuild.cxx.instances import instances
from lazyck.postbuild.objects.elf import open_image
from lazyck.postbuild.probe.real_object import judge

pytestmark = [pytest.mark.cuda, needs_nvcc]

FILES = {
    "kernel.cuh": """
#pragma once
template <int N> __global__ void K(float* x) { x[threadIdx.x] *= N; }
extern "C" __global__ void plain(float* x);
""",
    # These blobs have a kernel and a function; nothing but a kernel, as in Marlin; a kernel that
    # nobody launches; and a kernel with a plain name.
    "blob/launched.cu": """
#include "kernel.cuh"
template __global__ void K<1>(float*);
int beside(int x) { return x + 1; }
""",
    "blob/asked.cu": '#include "kernel.cuh"\ntemplate __global__ void K<2>(float*);\n',
    "blob/alone.cu": '#include "kernel.cuh"\ntemplate __global__ void K<6>(float*);\n',
    "blob/c_name.cu": """
#include "kernel.cuh"
extern "C" __global__ void plain(float* x) { x[0] = 1; }
int beside_plain(int x) { return x; }
""",
    # This blob launches a kernel of another blob.
    "blob/caller.cu": """
#include "kernel.cuh"
extern template __global__ void K<3>(float*);
int call(float* x) { K<3><<<1, 32>>>(x); return cudaGetLastError(); }
""",
    "blob/called.cu": """
#include "kernel.cuh"
template __global__ void K<3>(float*);
int beside_called(int x) { return x; }
""",
    # Only this blob uses its kernels.
    "blob/own.cu": """
#include "kernel.cuh"
__constant__ float table[4];
namespace ns { __device__ int counter; }
template __global__ void K<4>(float*);
__global__ void with_table(float* x) { x[0] = table[0] + ++ns::counter; }
int own(float* x) {
    const float host[4] = {};
    cudaMemcpyToSymbol(table, host, sizeof host);
    K<4><<<1, 32>>>(x);
    with_table<<<1, 1>>>(x);
    return cudaGetLastError();
}
""",
    # The dispatcher has this kernel too, and sets its attributes.
    "blob/both.cu": """
#include "kernel.cuh"
int both(float* x) { K<7><<<1, 32>>>(x); return cudaGetLastError(); }
""",
    "main.cu": """
#include "kernel.cuh"
extern template __global__ void K<1>(float*);
extern template __global__ void K<2>(float*);
int beside(int);
int call(float*);
int own(float*);
int both(float*);
extern "C" __attribute__((visibility("default"))) int run(int n, float* x) {
    if (n == 7) {
        cudaFuncSetAttribute(K<7>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
        return both(x);
    }
    if (n == 1) { K<1><<<1, 32>>>(x); return cudaGetLastError() * 100 + beside(1); }
    if (n == 2) {
        auto kernel = K<2>;
        int error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16);
        if (error) return error;
        kernel<<<1, 32>>>(x);
    }
    if (n == 3) return call(x);
    if (n == 4) return own(x);
    if (n == 5) plain<<<1, 32>>>(x);
    return cudaGetLastError();
}
""",
}


@dataclass(frozen=True)
class Library:
    where: Path
    report: str
    env: Mapping[str, str]

    def by_kernel(self) -> set[str]:
        lines = (line.partition("by kernel: ")[2] for line in self.report.splitlines())
        return {line for line in lines if line}


def build(lazyck: Lazyck, where: Path, files: Mapping[str, str], flags: str, link: str = "-cudart shared") -> Library:
    for name, text in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)
    compile_one = f'nvcc -arch=sm_80 -I. -w {flags} -Xcompiler -fPIC -c "$f" -o "$f.o"'
    link_all = f"nvcc -shared *.o blob/*.o -o libx.so {link}"
    (where / "build.sh").write_text(f"set -e\nfor f in *.cu blob/*.cu; do {compile_one}; done\n{link_all}\n")
    env = cuda_environment(where)
    env["PATH"] = f"{cuda_home()}/bin:{env['PATH']}"
    done = lazyck("build", "full", "--", "sh", "build.sh", cwd=where, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Library(where, done.stdout + done.stderr, env)


HIDING = pytest.param("-Xcompiler -fvisibility=hidden", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["", HIDING], ids=["default", "hidden"])
def visible(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Library:
    return build(lazyck_shared, tmp_path_factory.mktemp("visible"), FILES, f"{VISIBLE} {request.param}")


def run(library: Library, spy: Path, n: int) -> tuple[str, list[str]]:
    """Return what `run(n)` returns in a process of its own, and what the spy saw from that call
    on."""
    log = library.where / f"spy.{n}"
    log.write_text("")
    code = f"import ctypes\nx = ctypes.CDLL('./libx.so')\nopen('{log}', 'a').write('run\\n')\nprint(x.run({n}, None))\n"
    # Otherwise the order of the tests would decide which blobs are compiled by kernel.
    env = {**library.env, "LAZYCK_ARCHS": "80", "LAZYCK_BY_KERNEL": "1", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log)}
    argv = [sys.executable, "-IS", "-c", code]
    done = subprocess.run(argv, cwd=library.where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = log.read_text().partition("run\n")[2].splitlines()
    return done.stdout.strip(), [line for line in seen if not line.startswith(("image", "register", "end"))]


def test_a_blob_whose_kernel_another_file_names_is_by_kernel_and_says_which(visible: Library) -> None:
    assert visible.by_kernel() == {
        "4 sources, each of which has a kernel that another file launches, or takes the address of: blob/asked.cu "
        "(K<2>, in main.cu); blob/c_name.cu (plain, in main.cu); blob/launched.cu (K<1>, in main.cu); "
        "blob/called.cu (K<3>, in caller.cu)",
        "blob/alone.cu defines nothing but kernels, which no stub can stand for",
    }
    assert "8 blobs deferred, 3 lazy with 3 symbols, 0 eager" in visible.report


def test_every_handle_that_is_asked_for_was_registered(visible: Library, spy: Path) -> None:
    assert run(visible, spy, 1) == ("2", ["launch _Z1KILi1EEvPf"])
    assert run(visible, spy, 2) == ("0", ["ask _Z1KILi2EEvPf", "launch _Z1KILi2EEvPf asked"])
    assert run(visible, spy, 3) == ("0", ["launch _Z1KILi3EEvPf"])
    assert run(visible, spy, 5) == ("0", ["launch plain"])


def test_a_kernel_that_a_real_object_and_a_blob_define_has_one_handle(visible: Library, spy: Path) -> None:
    assert run(visible, spy, 7) == ("0", ["ask _Z1KILi7EEvPf", "launch _Z1KILi7EEvPf asked"])


def test_a_blob_with_device_data_and_kernels_of_its_own_is_lazy(visible: Library, spy: Path) -> None:
    assert run(visible, spy, 4)[1] == ["ask table", "launch _Z1KILi4EEvPf", "launch _Z10with_tablePf"]
    assert list((visible.where / "cache").rglob("own.host-*.so"))


def test_kernels_that_nvcc_hides(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    if release() < 13:
        pytest.skip("nvcc 12 hides no kernels")
    files = {name: FILES[name] for name in ("kernel.cuh", "blob/alone.cu", "blob/c_name.cu", "blob/own.cu")}
    main = """
#include "kernel.cuh"
int own(float*);
extern "C" int run(int n, float* x) {
    if (n == 4) return own(x);
    plain<<<1, 32>>>(x);
    return cudaGetLastError();
}
"""
    library = build(lazyck, tmp_path, {**files, "main.cu": main}, "")
    assert library.by_kernel() == {
        "blob/c_name.cu has a kernel that another file launches, or takes the address of: plain, in main.cu",
        "blob/alone.cu defines kernels for other files, which nvcc hides",
    }
    assert run(library, spy, 5) == ("0", ["launch plain"])
    assert run(library, spy, 4)[1] == ["ask table", "launch _Z1KILi4EEvPf", "launch _Z10with_tablePf"]


def test_device_data_is_local_in_the_objects_of_nvcc(tmp_path: Path) -> None:
    source = tmp_path / "data.cu"
    source.write_text(
        "__constant__ float a[4];\n__device__ int b = 3;\n__managed__ int c;\nextern __device__ int d;\n"
        'extern "C" { __constant__ int e; }\nnamespace ns { __device__ int f; __constant__ const int g[2] = {1, 2}; }\n'
    )
    made = tmp_path / "data.o"
    subprocess.run([cuda_home() / "bin/nvcc", "-w", *VISIBLE.split(), "-c", source, "-o", made], check=True)
    image = open_image(made)
    assert [s.name for s in image.symbols() if s.type == "OBJECT" and s.binding != "LOCAL"] == []


@pytest.mark.parametrize("flags", ["", VISIBLE], ids=["default", "visible"])
def test_an_object_s_kernels_are_told_from_its_functions(tmp_path: Path, flags: str) -> None:
    source = tmp_path / "kernels.cu"
    source.write_text(
        "template <int N> __global__ void K(float* x) { x[0] = N; }\ntemplate __global__ void K<1>(float*);\n"
        'extern "C" __global__ void plain(float* x) { x[0] = 1; }\nnamespace ns { __global__ void inner() {} }\n'
        "static __global__ void own() {}\nnamespace { __global__ void unnamed() {} }\n"
        "void run() { own<<<1, 1>>>(); unnamed<<<1, 1>>>(); K<2><<<1, 1>>>(nullptr); }\n"
    )
    made = tmp_path / "kernels.o"
    subprocess.run([cuda_home() / "bin/nvcc", "-w", *flags.split(), "-c", source, "-o", made], check=True)
    own = instances(source.read_text())
    judged = judge(open_image(made), str(source), own_initializers=True, own=own)
    assert not judged.weak & set(judged.kernels)  # by its name, K<2> could be an explicit instance, as K<1> is
    implicit = judge(open_image(made), str(source), own_initializers=True)
    assert implicit.weak & set(judged.kernels) == {"_Z1KILi1EEvPf", "_Z1KILi2EEvPf"}
    assert judged.eager is None and "_Z3runv" in judged.symbols
    assert set(judged.kernels) == {"_Z1KILi1EEvPf", "_Z1KILi2EEvPf", "plain", "_ZN2ns5innerEv"}
    assert not set(judged.kernels) & set(judged.symbols)
    hides = not flags and release() >= 13
    assert set(judged.kernels) & set(judged.unreachable) == (set(judged.kernels) if hides else set())
