"""Build tests/projects/hip_ops lazily with real HIP compilers, and call it in processes of its
own."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lazyck.interceptor.log import LogLine, read_log
from support import FAKE_ROCM, REPOSITORY, Lazyck

SYSTEM_PATH = "/usr/bin:/bin"
# clang reads a header of its own before each HIP source, which includes <cmath> and others. These
# flags leave it and HIP's whole header out, but not the directories of ROCm's headers.
LIGHT = "-DLIGHT_HIP -D__CLANG_HIP_RUNTIME_WRAPPER_H__"
NO_DEVICE = (100, 101)  # hipErrorNoDevice and hipErrorInvalidDevice, which HIP returns without a GPU
CALLER = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
data = (ctypes.c_float * 64)(*range(64))
print(lib.ops_devices(), lib.ops_scale(ord("f"), int(sys.argv[2]), data, 64))
"""


@dataclass(frozen=True)
class HipBuild:
    """Describes a copy of the project after `lazyck build full`."""

    dir: Path
    done: subprocess.CompletedProcess[str]

    @property
    def library(self) -> Path:
        return self.dir / "build/libhipops.so"

    @property
    def log(self) -> list[LogLine]:
        return read_log(self.dir.parent / "tmp/intercept.log")

    def deferred_by(self) -> set[str]:
        """Return the tools whose compiles were deferred."""
        return {line.tool for line in self.log if line.action == "defer"}

    def call(self, factor: int = 3, **env: str) -> subprocess.CompletedProcess[str]:
        """Call one float variant in a new process, which prints the number of devices and HIP's
        answer."""
        argv = [sys.executable, "-c", CALLER, str(self.library), str(factor)]
        return subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)

    def entries(self) -> list[Path]:
        """Return the libraries of the cached blobs."""
        return sorted(Path(os.environ["LAZYCK_CACHE_DIR"]).rglob("*.so"))


def build_hip(
    lazyck: Lazyck,
    where: Path,
    command: str,
    env: dict[str, str],
    *options: str,
    archs: str = "gfx90a",
    light: bool = True,
    expect_success: bool = True,
) -> HipBuild:
    """Run `command` in a copy of the project under `lazyck build full`, with two blobs and PATH
    from `env`. If `light`, its sources declare what they use of HIP instead of including all of
    it."""
    project = where / "hip ops"
    shutil.copytree(REPOSITORY / "tests/projects/hip_ops", project)
    full = {
        "PATH": SYSTEM_PATH,
        "TYPES": "float",
        "CXXFLAGS": f"-DFLOAT_ONLY {LIGHT if light else ''}",
        "ARCHS": archs,
        **env,
    }
    words = ["build", "full", "--tmp-dir", str(where / "tmp"), *options, "--", "sh", "-c", command]
    done = lazyck(*words, cwd=project, env=full)
    build = HipBuild(project, done)
    if expect_success:
        assert done.returncode == 0, done.stdout + done.stderr
    return build


def assert_calls_reach_hip(build: HipBuild, archs: tuple[str, ...] = ("gfx90a",)) -> None:
    """Check that a call compiles a whole blob, loads it and reaches HIP's own runtime, and that a
    second process finds the entry."""
    first, second = build.call(LAZYCK_BY_KERNEL="0"), build.call(PATH="/nonexistent")
    assert first.returncode == 0, first.stderr
    assert "compiled scale_float_3" in first.stderr
    devices, status = map(int, first.stdout.split())
    assert status == 0 if devices else status in NO_DEVICE, first.stdout
    assert (second.stdout, second.stderr) == (first.stdout, "")
    (entry,) = build.entries()
    code = entry.read_bytes()
    for arch in archs:
        assert f"amdgcn-amd-amdhsa--{arch}".encode() in code


def stand_in_runtime() -> Path:
    """Return the directory of the stand-in for libamdhip64, which records launches but runs
    none."""
    shown = subprocess.run([FAKE_ROCM / "bin/fake-rocm-build"], capture_output=True, text=True, check=True)
    return Path(shown.stdout.split()[-1])
