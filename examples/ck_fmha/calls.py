"""Call a lazily built library without a GPU: a stand-in HIP runtime answers for the device and
records launches."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Call:
    """Holds what one process did: `kernels` are CK's kernel classes that it launched, sorted,
    joined by commas."""

    name: str
    seconds: float
    status: int
    compilers: int
    launches: int
    kernels: str
    errors: str


def stand_in_environment(work: Path, home: Path, name: str, arch: str) -> dict[str, str]:
    """Return the environment of a call: the stand-in HIP runtime comes first; launches and compiler
    calls are recorded below `work`."""
    fake = REPOSITORY / "scripts" / "fake_rocm_home"
    lib = subprocess.run(
        [str(fake / "bin" / "fake-rocm-build")], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        **os.environ,
        "LD_LIBRARY_PATH": lib,
        "FAKE_ROCM_ARCH": arch,
        "FAKE_ROCM_LAUNCH_LOG": str(work / f"{name}.launches"),
        "CK_HIPCC_LOG": str(work / f"{name}.compiles"),
        "LAZYCK_CACHE_DIR": str(work / "cache"),
        "ROCM_PATH": str(home),
    }


def call(work: Path, home: Path, argv: list[str], name: str, arch: str) -> Call:
    """Run `argv` in a process of its own and return what it did; the cache is `work`/cache."""
    env = stand_in_environment(work, home, name, arch)
    for log in ("FAKE_ROCM_LAUNCH_LOG", "CK_HIPCC_LOG"):
        Path(env[log]).unlink(missing_ok=True)
    begun = time.monotonic()
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    launches = read_lines(Path(env["FAKE_ROCM_LAUNCH_LOG"]))
    compiles = read_lines(Path(env["CK_HIPCC_LOG"]))
    # CK's kernel classes are found in the mangled names: _ZN7ck_tile...13FmhaFwdKernelI...
    kernels = ", ".join(sorted(set(re.findall(r"\d(Fmha[A-Za-z]*Kernel)", "\n".join(launches)))))
    sys.stderr.write(done.stderr)
    return Call(name, seconds, done.returncode, len(compiles), len(launches), kernels, done.stderr)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, or none if the file does not exist."""
    return path.read_text().splitlines() if path.is_file() else []
