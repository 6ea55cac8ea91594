"""Tests that CMake projects that name their compilers by absolute paths become lazy through CMake's
launchers."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck

from lazyck.interceptor.log import read_log

CXX = next((p for n in ("g++-12", "g++-13", "g++-14", "g++", "c++") if (p := shutil.which(n))), "")
NVCC = next((p for p in ("/usr/local/cuda/bin/nvcc", shutil.which("nvcc")) if p and Path(p).exists()), "")
CLANG = next((p for n in ("clang++-15", "clang++-19") if (p := shutil.which(n))), "")
HAS_HIP = bool(CLANG) and Path("/usr/include/hip/hip_runtime.h").exists()
pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")

LISTS = """cmake_minimum_required(VERSION 3.21)
project(p LANGUAGES CXX {languages})
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() {{ return 0; }}" WORKS)
if(NOT WORKS)
  message(FATAL_ERROR "try_compile does not work")
endif()
add_library(x SHARED dispatch.{suffix} blob/v1.{suffix})
target_include_directories(x PRIVATE inc)
"""
KERNEL = "__global__ void kernel() {}\nvoid launch() { kernel<<<1, 1>>>(); }\n"


def write_project(where: Path, language: str, suffix: str, prelude: str = "") -> None:
    """Write a project with a library of one blob and one dispatcher in `language`."""
    files = {
        "CMakeLists.txt": LISTS.format(languages=language, suffix=suffix),
        "inc/twice.h": "#pragma once\ntemplate <int N> int twice(int x);\n",
        f"dispatch.{suffix}": '#include "twice.h"\nextern "C" int run(int x) { return twice<1>(x); }\n',
        f"blob/v1.{suffix}": f'{prelude}#include "twice.h"\ntemplate <> int twice<1>(int x) {{ return x * 2; }}\n',
    }
    for name, text in files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)


def build(
    lazyck: Lazyck, project: Path, options: str, generator: str = "Ninja", toolchain: str = "auto", **env: str
) -> subprocess.CompletedProcess[str]:
    script = f"cmake -G '{generator}' -S . -B out -DCMAKE_CXX_COMPILER={CXX} {options}\ncmake --build out -v\n"
    words = ["build", "full", "--toolchain", toolchain, "--tmp-dir", project / "tm p", "--", "sh", "-ec", script]
    return lazyck(*words, cwd=project, env=env)


def actions(project: Path) -> list[tuple[str, str, str]]:
    lines = read_log(project / "tm p" / "intercept.log")
    return [(line.action, line.reason, line.tool) for line in lines if line.action != "pass" or line.blobs]


def returns_42(library: Path) -> bool:
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).run(21))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.stdout == "42\n" and "compiling v1" in done.stderr


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_cxx_by_its_path_compiles_and_links_lazily(lazyck: Lazyck, tmp_path: Path, generator: str) -> None:
    write_project(tmp_path, "", "cpp")
    done = build(lazyck, tmp_path, "", generator, "host")
    assert done.returncode == 0, done.stdout + done.stderr
    name = Path(CXX).name
    assert actions(tmp_path) == [("defer", "blob", name), ("link", "deferred-input", name)]
    assert "1 blob deferred, 1 lazy" in done.stderr
    assert returns_42(tmp_path / "out/libx.so")


def test_a_toolchain_file_that_names_the_compiler(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, "", "cpp")
    (tmp_path / "tools.cmake").write_text(f"set(CMAKE_CXX_COMPILER {CXX})\n")
    done = build(lazyck, tmp_path, "-DCMAKE_TOOLCHAIN_FILE=$PWD/tools.cmake", toolchain="host")
    assert "1 blob deferred, 1 lazy" in done.stderr, done.stdout + done.stderr


@pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")
def test_the_user_s_ccache_keeps_real_compiles_and_no_deferred_object(lazyck: Lazyck, tmp_path: Path) -> None:
    env = {"CCACHE_DIR": str(tmp_path / "cc"), "CMAKE_CXX_COMPILER_LAUNCHER": "ccache"}
    write_project(tmp_path / "project", "", "cpp")
    for _ in range(2):
        done = build(lazyck, tmp_path / "project", "", toolchain="host", **env)
        assert "1 blob deferred, 1 lazy" in done.stderr, done.stdout + done.stderr
        shutil.rmtree(tmp_path / "project/out")
    said = subprocess.run(["ccache", "--print-stats"], env={**os.environ, **env}, capture_output=True, text=True).stdout
    numbers = dict(line.split("\t") for line in said.splitlines())
    assert int(numbers["direct_cache_hit"]) >= 1
    script = (
        f"ccache {CXX} -Dx_EXPORTS -I{tmp_path}/project/inc -fPIC -c {tmp_path}/project/blob/v1.cpp -o {tmp_path}/v1.o"
    )
    subprocess.run(script.split(), env={**os.environ, **env}, check=True)
    assert "twice" in subprocess.run(["nm", "-C", tmp_path / "v1.o"], capture_output=True, text=True).stdout


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
def test_cuda_by_its_path(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, "CUDA", "cu", KERNEL)
    options = f"-DCMAKE_CUDA_COMPILER={NVCC} -DCMAKE_CUDA_ARCHITECTURES=80"
    done = build(lazyck, tmp_path, options, CUDACXX="")
    assert done.returncode == 0, done.stdout + done.stderr
    *deferred, link = actions(tmp_path)
    # The dispatcher is compiled by kernel.
    assert deferred == [("defer", "blob", "nvcc")] * 2 and link[:2] == ("link", "deferred-input")
    assert "1 blob deferred, 1 lazy" in done.stderr
    ctypes.CDLL(str(tmp_path / "out/libx.so"))
    # If the host compiler is named by its path, that link has no launcher. So nothing is deferred
    # unless the project includes lazyck.cmake.
    options += f" -DCMAKE_CUDA_HOST_COMPILER={CXX}"
    shutil.rmtree(tmp_path / "out")
    done = build(lazyck, tmp_path, options)
    said = [line for line in done.stderr.splitlines() if "2 blobs compiled by the real compiler, unseen-link:" in line]
    assert len(said) == 1 and "v1.cu" in said[0], done.stderr
    shutil.rmtree(tmp_path / "out")
    done = build(lazyck, tmp_path, f"{options} '-DCMAKE_PROJECT_INCLUDE={tmp_path}/tm p/lazyck.cmake'")
    assert "1 blob deferred, 1 lazy" in done.stderr, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
@pytest.mark.parametrize(
    "variables",
    [{}, {"CUDAHOSTCXX": CXX}, {"NVCC_CCBIN": CXX}, {"NVCC_CCBIN": str(Path(CXX).parent)},
     {"NVCC_PREPEND_FLAGS": f"-ccbin={CXX}"}],
    ids=["option", "CUDAHOSTCXX", "file", "directory", "flags"],
)  # fmt: skip
def test_cuda_s_links_by_a_host_compiler_that_is_named_are_seen(
    lazyck: Lazyck, tmp_path: Path, variables: dict[str, str]
) -> None:
    write_project(tmp_path, "CUDA", "cu", KERNEL)
    options = "-DCMAKE_CUDA_ARCHITECTURES=80" + ("" if variables else f" -DCMAKE_CUDA_HOST_COMPILER={CXX}")
    path = f"{Path(NVCC).parent}{os.pathsep}{os.environ['PATH']}"
    done = build(lazyck, tmp_path, options, CUDACXX="", PATH=path, **variables)
    assert "1 blob deferred, 1 lazy" in done.stderr, done.stdout + done.stderr
    ctypes.CDLL(str(tmp_path / "out/libx.so"))


@pytest.mark.slow
@pytest.mark.hip
@pytest.mark.skipif(not HAS_HIP, reason="needs clang and HIP's headers")
def test_hip_by_its_path_with_the_file_for_cmake(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, "HIP", "hip", "#include <hip/hip_runtime.h>\n" + KERNEL)
    package = tmp_path / "root/lib/cmake/hip-lang"  # Debian's package requires more packages than a compile does
    package.mkdir(parents=True)
    (package / "hip-lang-config.cmake").write_text(
        'add_library(hip-lang::device INTERFACE IMPORTED)\nset(_CMAKE_HIP_DEVICE_RUNTIME_TARGET "hip-lang::device")\n'
    )
    options = (
        f"-DCMAKE_HIP_COMPILER={CLANG} -DCMAKE_HIP_COMPILER_ROCM_ROOT=$PWD/root -DCMAKE_HIP_ARCHITECTURES=gfx90a "
        f"'-DCMAKE_HIP_FLAGS=-nogpulib --rocm-path=/usr' '-DCMAKE_PROJECT_INCLUDE={tmp_path}/tm p/lazyck.cmake'"
    )
    done = build(lazyck, tmp_path, options, HIP_PLATFORM="amd", HIPCXX="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 blob deferred, 1 lazy" in done.stderr, done.stderr
    assert actions(tmp_path)[0] == ("defer", "blob", Path(CLANG).name)
