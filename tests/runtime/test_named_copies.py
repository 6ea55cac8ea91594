"""Test blobs under HIP 6.0 to 6.2, which open the file that a blob is mapped from by its name in
/proc/self/maps, up to the first blank."""

import os
import subprocess
from pathlib import Path

import pytest
from support.lazylib import LazyLibrary, build_lazy_library

from lazyck import abi

HEADER = "#pragma once\nint opened(); int use();\n"
BLOBS = {
    "opened": r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>
#include "demo.h"
static int own;
int opened() {
    std::FILE* maps = std::fopen("/proc/self/maps", "r");
    char line[8192], *path = nullptr;
    unsigned long low, high;
    while (path == nullptr && std::fgets(line, sizeof line, maps)) {
        std::sscanf(line, "%lx-%lx", &low, &high);
        const auto here = reinterpret_cast<std::uintptr_t>(&own);
        if (low <= here && here < high) path = std::strchr(line, '/');
    }
    std::fclose(maps);
    if (path == nullptr) return 1;
    path[std::strcspn(path, " \n")] = '\0';
    struct stat st;
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr || fstat(fileno(file), &st) != 0) return 2;
    std::printf("%o %s\n", static_cast<unsigned>(st.st_mode & 07777), path);
    return 0;
}
"""
}
MAIN = '#include "demo.h"\nint use() { return opened(); }\n'
PROGRAM = '#include "demo.h"\nint main() { return use(); }\n'


def build(where: Path, objects_dir: Path, toolchain: str) -> LazyLibrary:
    lib = build_lazy_library(
        where, objects_dir, BLOBS, MAIN, header=HEADER, symbols={"opened": ("_Z6openedv",)}, toolchain=toolchain,
        arch_flags=(f"-DFOR_{abi.PH_ARCH}",), archs=["gfx90a" if toolchain == "rocm" else "90"],
    )  # fmt: skip
    lib.program(PROGRAM)
    return lib


def can_mount() -> bool:
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def call(lib: LazyLibrary, script: str, temporary: Path, **env: str) -> tuple[int, str, str]:
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    full = {"TMPDIR": str(temporary), "LAZYCK_ARCHS": lib.manifest.archs[0], **env}
    done = lib.call("sh", "-euc", script, env=full)
    assert list(temporary.iterdir()) == [], "copies go with the process"
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(not can_mount(), reason="only root may mount, and not in every container")
def test_a_hip_blob_of_a_noexec_cache_is_mapped_from_a_file_that_can_be_opened(
    tmp_path: Path, objects_dir: Path
) -> None:
    lib = build(tmp_path, objects_dir, "rocm")
    lib.cache.mkdir()
    mounts = f"mount -t tmpfs -o noexec,mode=700 none '{lib.cache}'; '{tmp_path}/main'; '{tmp_path}/main'"
    status, out, said = call(lib, f'exec unshare -m sh -euc "{mounts}"', tmp_path / "tmp")
    assert status == 0, said
    for line in out.splitlines():
        assert line.startswith(f"500 {tmp_path}/tmp/lazyck-"), line
    assert len(out.splitlines()) == 2


def test_a_hip_blob_of_a_cache_with_a_blank_in_its_path_is_mapped_from_one_without(
    tmp_path: Path, objects_dir: Path
) -> None:
    lib = build(tmp_path, objects_dir, "rocm")
    cache = tmp_path / "a cache"
    for _ in range(2):
        status, out, said = call(lib, f"'{tmp_path}/main'", tmp_path / "tmp", LAZYCK_CACHE_DIR=str(cache))
        assert status == 0 and out.startswith(f"500 {tmp_path}/tmp/lazyck-"), said
    assert lib.compiles() == 1
    blank = tmp_path / "b lank"
    blank.mkdir()
    status, out, said = call(lib, f"'{tmp_path}/main'", blank, LAZYCK_CACHE_DIR=str(cache))
    assert status == 0 and out.startswith("500 /tmp/lazyck-"), said
    assert not Path(out.split()[1]).parent.exists()


@pytest.mark.parametrize(
    ("toolchain", "name", "status"), [("rocm", "cache", 0), ("cuda", "cache", 0), ("cuda", "a b", 2)]
)
def test_other_blobs_are_mapped_from_the_cache_itself(
    tmp_path: Path, objects_dir: Path, toolchain: str, name: str, status: int
) -> None:
    lib = build(tmp_path, objects_dir, toolchain)
    found, out, said = call(lib, f"'{tmp_path}/main'", tmp_path / "tmp", LAZYCK_CACHE_DIR=str(tmp_path / name))
    assert found == status, said
    assert status != 0 or str(tmp_path / name) in out
