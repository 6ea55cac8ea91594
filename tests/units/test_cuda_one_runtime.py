"""Tests that a lazy library and its blobs share one CUDA runtime: one error state, and one stack of
launch configurations."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.cuda_machine import cuda_environment, cuda_home, needs_nvcc

pytestmark = [pytest.mark.cuda, needs_nvcc]

DECLARED = """
extern "C" unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
inline int pop() {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    const int error = __cudaPopCallConfiguration(&grid, &block, &shared, &stream);
    return error ? -error : grid.x * 100 + block.x;
}
"""
BLOB = """
__global__ void kernel(float* x) { x[0] = 1; }
int fails(float* x) { kernel<<<1, 32>>>(x); return cudaGetLastError(); }
int pops() { return pop(); }
void pushes() { __cudaPushCallConfiguration(dim3(5), dim3(6), 0, nullptr); }
"""
MAIN = """
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
DECLARED
int fails(float*);
int pops();
void pushes();
extern "C" int run(int n) {
    if (n == 1) { const int raised = fails(nullptr); return raised * 1000 + cudaPeekAtLastError(); }
    if (n == 2) { void* p; const int raised = cudaMalloc(&p, 64); return raised * 1000 + fails(nullptr); }
    if (n == 3) { __cudaPushCallConfiguration(dim3(3), dim3(4), 0, nullptr); return pops(); }
    pushes();
    return pop();
}
int main(int, char** words) { return printf("%d\\n", run(atoi(words[1]))) < 0; }
"""
SHARED = {1: "100100", 2: "100100", 3: "304", 4: "506"}
LINKS = {
    "static": "nvcc -shared main.o b.o",
    "cxx": "c++ -shared main.o b.o $CUDA_HOME/lib64/libcudart_static.a -lrt -ldl -lpthread",
    "shared": "nvcc -cudart shared -shared main.o b.o",
    "script": "nvcc -shared main.o b.o -Xlinker --version-script=api.map",
}


@dataclass(frozen=True)
class Built:
    """One library per way to link, and a driver without a device in `driver/`."""

    where: Path
    env: Mapping[str, str]
    report: str

    def run(self, library: str, n: int) -> str:
        """Return what `run(n)` returns in a process that loads `library`, or in the program if
        `library` is empty."""
        places = f"{self.where / 'driver'}:{cuda_home() / 'lib64'}"
        load = [sys.executable, "-IS", "-c", f"import ctypes; print(ctypes.CDLL('./lib{library}.so').run({n}))"]
        done = subprocess.run(
            load if library else ["./program", str(n)],
            env={**self.env, "LAZYCK_ARCHS": "80", "LD_LIBRARY_PATH": places},
            cwd=self.where, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Built:
    where = tmp_path_factory.mktemp("one-runtime")
    (where / "blob").mkdir()
    (where / "driver").mkdir()
    (where / "blob/b.cu").write_text(DECLARED + BLOB)
    (where / "main.cpp").write_text(MAIN.replace("DECLARED", DECLARED))
    (where / "api.map").write_text("{ global: run; local: *; };\n")
    driver = ["-Wl,-soname,libcuda.so.1", f"{REPOSITORY}/tests/support/cuda_driver.cpp", "-o", "driver/libcuda.so.1"]
    subprocess.run(["c++", "-fPIC", "-shared", *driver], cwd=where, check=True)
    sources = {"main": "main.cpp", "b": "blob/b.cu"}
    compile_all = [f"nvcc -arch=sm_80 -Xcompiler -fPIC -c {source} -o {name}.o" for name, source in sources.items()]
    links = [*(f"{words} -o lib{name}.so" for name, words in LINKS.items()), "nvcc main.o b.o -o program"]
    (where / "build.sh").write_text("\n".join(["set -e", *compile_all, *links, ""]))
    env = cuda_environment(where)
    env["PATH"] = f"{cuda_home()}/bin:{env['PATH']}"
    done = lazyck_shared("build", "full", "--", "sh", "build.sh", cwd=where, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(where, env, done.stdout + done.stderr)


@pytest.mark.parametrize("library", LINKS)
def test_errors_and_launches_pass_between_a_library_and_its_blobs(built: Built, library: str) -> None:
    assert f"lib{library}: 1 blob deferred, 1 lazy with 3 symbols, 0 eager" in built.report
    assert {n: built.run(library, n) for n in SHARED} == SHARED


def test_a_program_and_its_blobs_share_its_runtime(built: Built) -> None:
    assert "program: 1 blob deferred, 1 lazy with 3 symbols, 0 eager" in built.report
    assert {n: built.run("", n) for n in SHARED} == SHARED


def test_a_library_offers_nobody_its_runtime(built: Built) -> None:
    words = ["nm", "-D", "--defined-only", "libstatic.so"]
    shown = subprocess.run(words, cwd=built.where, check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in shown.splitlines() if "cuda" in line]
    assert len(names) == 1 and names[0].startswith("lazyck.cudart_")
