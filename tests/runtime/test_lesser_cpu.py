"""Tests that a blob for the build's CPU (`-march=native`) is compiled anew for a CPU that lacks
something of it, in the same cache. QEMU has such CPUs."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Lazyck

from lazyck import abi

# Lesser CPUs read other headers: of the project, and of the system.
BLOB = """
#ifndef __SSE4_2__
#include <sys/param.h>
#endif
#ifdef __AVX2__
#define LEVEL 3
#elif defined __SSE4_2__
#define LEVEL 2
#else
#include "plain.h"
#endif
extern "C" int level() { return LEVEL; }
"""
MAIN = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** words) {
    void* library = dlopen(words[1], RTLD_NOW);
    return !library || printf("%d", ((int (*)(void))dlsym(library, "level"))()) < 0;
}
"""
Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Return what calls `level` of a library on a CPU of QEMU's, or on this one, with one cache."""
    emulator = shutil.which("qemu-x86_64")
    flags = Path("/proc/cpuinfo").read_text()
    if platform.machine() != "x86_64" or not emulator or "avx2" not in flags:
        pytest.skip("no qemu-x86_64 (Debian: qemu-user), or no CPU with AVX2")
    (tmp_path / "main.c").write_text(MAIN)
    subprocess.run(["cc", "main.c", "-o", "main"], cwd=tmp_path, check=True)

    def on(library: Path, cpu: str = "", **env: str) -> str:
        argv = [*([emulator, "-cpu", cpu] if cpu else []), str(tmp_path / "main"), str(library)]
        done = subprocess.run(
            argv, env={**os.environ, "LAZYCK_CACHE_DIR": str(tmp_path / "cache"), **env}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return on


def built(tmp_path: Path, lazyck: Lazyck, options: str) -> Path:
    tree = tmp_path / "project"
    (tree / "blob").mkdir(parents=True)
    (tree / "blob/level.cpp").write_text(BLOB)
    (tree / "blob/plain.h").write_text("enum { LEVEL = 1 };\n")
    script = f"c++ -O1 -fPIC {options} -c blob/level.cpp -o level.o; c++ -shared level.o -o libx.so"
    words = ("--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--install-dir", tmp_path / "install")
    done = lazyck("build", "full", *words, "--", "sh", "-ec", script, cwd=tree)
    assert done.returncode == 0 and "1 lazy" in done.stdout + done.stderr, done.stdout + done.stderr
    shutil.rmtree(tree)
    return tmp_path / "install/libx.so"


def test_each_kind_of_cpu_gets_an_entry_that_it_can_run(tmp_path: Path, lazyck: Lazyck, call: Call) -> None:
    library = built(tmp_path, lazyck, "-march=native")
    cpus = {"": "3", "Haswell": "3", "Nehalem": "2", "core2duo": "1"}
    assert {cpu: call(library, cpu) for cpu in cpus} == cpus
    assert len([*(tmp_path / "cache").glob("**/level-*.so")]) == 4
    assert {cpu: call(library, cpu, LAZYCK_JIT="off") for cpu in cpus} == cpus  # each is found again
    shown = lazyck("inspect", "--blob", "level", library).stdout
    assert "on lesser ones -march=x86-64-v4, -march=x86-64-v3, -march=x86-64-v2, the default\n" in shown


def test_code_that_is_only_tuned_for_this_cpu_is_for_all(tmp_path: Path, lazyck: Lazyck, call: Call) -> None:
    library = built(tmp_path, lazyck, "-mtune=native")
    assert call(library) == call(library, "Nehalem", LAZYCK_JIT="off") == "1"


def test_headers_of_the_system_that_only_lesser_cpus_read_are_in_the_list(tmp_path: Path, lazyck: Lazyck) -> None:
    library = built(tmp_path, lazyck, "-march=native")
    (listed,) = (tmp_path / "tmp").glob(f"libs/*/bundle/*/tree/.lazyck/*{abi.BUNDLE_HEADERS}")
    assert b"sys/param.h" in listed.read_bytes(), library
