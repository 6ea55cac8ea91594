"""Test the host compiler, which starts before the stubs exist that it includes, and what becomes of
it if things go wrong."""

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import wait_until
from support.cuda_machine import cuda_home, needs_nvcc

from lazyck.files import private_directory
from lazyck.settings.environment import tools_dir
from lazyck.units.program import build_program

pytestmark = [pytest.mark.cuda, needs_nvcc]

# The names are so long that the text about these kernels exceeds a pipe's capacity.
MANY = (
    "".join(f"namespace long_name_of_a_namespace_that_has_others_within_itself_{n} {{\n" for n in range(9))
    + "template <int N> __global__ void kernel(float* x) { x[0] = N; }\n"
    + "".join(f"template __global__ void kernel<{n}>(float*);\n" for n in range(40))
    + 9 * "}\n"
)
UNCHECKED = """
#pragma nv_exec_check_disable of callbacks
template <class T> __host__ __device__ int f(T t) { return t(); }
#pragma hd_warning_disable
template <class T> __host__ __device__ int g(T t) { return t(); }
"""
COMPILES = 'case " $* " in *" -c "*) '


@pytest.fixture(scope="session")
def program() -> Path:
    """Return `lazyck-unit`. It lies where the user's own one lies, as it depends on nothing but its
    sources."""
    return build_program(private_directory(tools_dir(os.environ) / "programs"), ["c++"])


Started = Callable[[str, str], "subprocess.Popen[str]"]


@pytest.fixture
def started(tmp_path: Path, program: Path) -> Started:
    """Return a function that starts a host unit of a source. Its shell lines run before the host
    compiler."""

    def start(source: str, lines: str) -> subprocess.Popen[str]:
        (tmp_path / "many.cu").write_text(source)
        compiler = tmp_path / "g++"
        compiler.write_text(f'#!/bin/sh\ncd {shlex.quote(str(tmp_path))}\n{lines}\nexec g++ "$@"\n')
        compiler.chmod(0o755)
        nvcc, cu = str(cuda_home() / "bin" / "nvcc"), str(tmp_path / "many.cu")
        command = [nvcc, "-ccbin", str(compiler), "-arch=sm_80", "-c", cu, "-o", "x.o"]
        argv = [str(program), "host", "many", cu, str(tmp_path / "made.o"), "--", *command]
        return subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    return start


def test_it_has_all_stubs(started: Started, tmp_path: Path) -> None:
    process = started(MANY, "")
    assert process.communicate(timeout=200)[1] == "" and process.returncode == 0
    assert (tmp_path / "made.o").read_bytes().count(b"kernelILi39EEEvPf") > 0


def test_a_pragma_is_left_out_with_what_it_is_for(started: Started, tmp_path: Path) -> None:
    (tmp_path / "unchecked.cuh").write_text(UNCHECKED)
    process = started('#include "unchecked.cuh"\n__global__ void kernel(float* x) { x[0] = 1; }\n', "")
    assert process.communicate(timeout=200)[1] == "" and process.returncode == 0


def test_it_fails_before_it_reads_them(started: Started) -> None:
    process = started(MANY, f"{COMPILES} echo too bad >&2; exit 5;; esac")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 3 and "too bad" in said and "g++ ends with status 5" in said


def test_it_ends_when_who_makes_them_is_killed(started: Started, tmp_path: Path) -> None:
    # The host compiler kills its parent as soon as it begins, and itself goes on.
    process = started(MANY, f'{COMPILES} kill -KILL $PPID; g++ "$@"; echo $? > ended; exit;; esac')
    process.wait(timeout=200)
    assert process.returncode < 0
    wait_until((tmp_path / "ended").exists, 100, said=lambda: "the compiler waits for ever")


def test_an_error_is_said_once(started: Started) -> None:
    process = started(MANY + "int wrong() { return not_declared; }\n", "")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 3 and said.count("not_declared") == 2, "in the message, and in the line"
    process = started('#include "nowhere.h"\n', "")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 3 and said.count("fatal error") == 1


def test_what_the_device_s_front_end_refuses_is_all_that_is_said(started: Started) -> None:
    of_device = "#ifdef __CUDA_ARCH__\n#error not for devices\n#endif\n"
    process = started(MANY + of_device, "")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 3 and said.count("error: #error not for devices") == 1
    process = started(MANY + "#ifdef __CUDA_ARCH__\nusing Wrong = not_declared;\n#endif\n", "")
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 3 and "not_declared" in said and "there are no stubs" not in said
