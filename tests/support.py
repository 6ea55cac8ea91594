"""Where things are, and the type of the `lazyck` fixture: what test modules import by name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import platform
import pty
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")

REPOSITORY = Path(__file__).resolve().parent.parent
FAKE_ROCM = REPOSITORY / "scripts" / "fake_rocm_home"


def on_terminal(*words: str | Path, columns: int = 80, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status of a `lazyck` command whose stderr is a terminal of so many columns (0: it does not know), and what
    it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    argv = [sys.executable, "-m", "lazyck", *map(str, words)]
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm", **(env or {})}
    process = subprocess.Popen(argv, env=full, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # of a terminal that nobody writes to any more
        while part := os.read(ours, 65536):
            seen += part
    os.close(ours)
    return process.wait(), seen.decode()


@dataclass(frozen=True)
class Machine:
    """A machine to build for: its C++ compiler, what starts its programs here, which CPU those see ("": the only one),
    and what is missing here for all that."""

    name: str
    cxx: str
    runner: tuple[str, ...] = ()
    cpu: str = ""
    missing: str = ""

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        return [pytest.mark.skipif(bool(self.missing), reason=self.missing)]

    @property
    def env(self) -> dict[str, str]:
        return {"QEMU_CPU": self.cpu} if self.cpu else {}


def _aarch64(cpu: str) -> Machine:
    if platform.machine() == "aarch64":
        return Machine("aarch64", "g++", missing="" if cpu == "max" else "the native CPU is tested instead")
    compiler, emulator = "aarch64-linux-gnu-g++", "qemu-aarch64"
    absent = [tool for tool in (compiler, emulator) if not shutil.which(tool)]
    missing = f"no {' and no '.join(absent)} (Debian: g++-aarch64-linux-gnu qemu-user)" if absent else ""
    return Machine("aarch64", compiler, (shutil.which(emulator) or "", "-L", "/usr/aarch64-linux-gnu"), cpu, missing)


HERE = Machine(platform.machine(), shutil.which("g++") or "g++")
AARCH64 = _aarch64("max")  # with SVE, signed return addresses and branch target identification
AARCH64_PLAIN = _aarch64("cortex-a72")


def machine_params(*machines: Machine) -> list[object]:
    """Parameters for a test that runs on each of `machines`; skipped with the reason where one cannot be built for."""
    return [pytest.param(m, id="-".join(filter(None, (m.name, m.cpu))), marks=m.marks) for m in machines]


# For a test that takes the fixture `machine`, or fixtures that do.
on_each_machine = pytest.mark.parametrize("machine", machine_params(HERE, AARCH64), indirect=True)


class Once:
    """What costs much to build, made once in a run of the tests for all tests and all xdist workers that read it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, name: str, make: Callable[[Path], Made]) -> Made:
        """What `make` returned of an empty directory of its own; the others wait for it, and have it pickled.

        A `make` that raises is called again by the next who asks. Nobody may write into the directory afterwards what
        another test would see: processes that run side by side share it.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        result = self._root / f"{name}.pickle"
        with (self._root / f"{name}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                directory = self._root / name
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir()
                result.write_bytes(pickle.dumps(make(directory)))
        found: Made = pickle.loads(result.read_bytes())
        return found


Lazyck = Callable[..., "subprocess.CompletedProcess[str]"]


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Until it is; fails when it is not within that time."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
