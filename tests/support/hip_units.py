"""Provide what tests of HIP sources that are compiled kernel by kernel share: how they build."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import Lazyck, bare_hip
from support.built_units import Built
from support.rocm_layouts import rocm5, rocm6

ARCH = "gfx90a"  # known to Debian's device libraries
HOMES = {"clang15": rocm5, "clang19": rocm6}


def flags_of(name: str, files: Mapping[str, str]) -> str:
    """Return the flags for a source that reads ROCm's headers neither itself nor by a header of
    `files`."""
    texts = [text for header, text in files.items() if header == name or f'"{header}"' in files[name]]
    return "" if any("<hip/" in text for text in texts) else bare_hip.FLAGS


def write(where: Path, files: Mapping[str, str], flags: str, home: Path) -> dict[str, str]:
    """Write a project of `files`, and bare_hip.h, which they may include in place of ROCm's
    headers. Return the environment to build it in."""
    where.mkdir(exist_ok=True)
    for name, text in {**files, "bare_hip.h": bare_hip.HEADER}.items():
        (where / name).write_text(text)
    words = f"hipcc --offload-arch={ARCH} -O2 -w -fPIC {flags}"
    sources = [name for name in files if name.endswith(".hip")]
    lines = [f"{words} {flags_of(name, files)} -c {name} -o {name}.o" for name in sources]
    (where / "build.sh").write_text("\n".join(["set -e", *lines, "hipcc -shared *.o -o libx.so"]))
    path = [d for d in os.environ["PATH"].split(os.pathsep) if not os.access(Path(d, "nvcc"), os.X_OK)]
    return {
        "PATH": os.pathsep.join([str(home / "bin"), *path]),
        "ROCM_PATH": str(home),
        "LAZYCK_CACHE_DIR": str(where / "cache"),
    }


def build(
    lazyck: Lazyck,
    where: Path,
    files: Mapping[str, str],
    home: Path,
    flags: str = "",
    grades: Sequence[str] = ("--kernels", "*.hip"),
) -> Built:
    env = write(where, files, flags, home)
    done = lazyck("build", "full", *grades, "--", "sh", "build.sh", cwd=where, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(where, done.stdout + done.stderr, env, ARCH, "HIP_SPY")


def build_ahead(where: Path, files: Mapping[str, str], home: Path, flags: str = "") -> Built:
    env = write(where, files, flags, home)
    subprocess.run(["sh", "build.sh"], cwd=where, env=env, check=True, capture_output=True)
    return Built(where, "", env, ARCH, "HIP_SPY")
