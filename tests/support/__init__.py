"""Defines paths, the type of the `lazyck` fixture, and helpers that test modules import by name."""

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import ninja
import pytest

Made = TypeVar("Made")

REPOSITORY = Path(__file__).resolve().parents[2]
NINJA = Path(ninja.BIN_DIR, "ninja") if ninja.BIN_DIR else Path(shutil.which("ninja") or "ninja")
FAKE_ROCM = REPOSITORY / "scripts" / "fake_rocm_home"


def on_terminal(*words: str | Path, columns: int = 80, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a `lazyck` command whose stderr is a terminal of `columns` columns (0: the terminal does
    not know). Return its status, and what it wrote to the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    argv = [sys.executable, "-m", "lazyck", *map(str, words)]
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm", **(env or {})}
    process = subprocess.Popen(argv, env=full, stderr=theirs)
    os.close(theirs)
    seen = read_to_end(ours)
    os.close(ours)
    return process.wait(), seen


def read_to_end(terminal: int) -> str:
    """Return what was written to a pseudo-terminal until its last writer closed it. One read need
    not return all of it."""
    seen = b""
    with contextlib.suppress(OSError):  # reading fails once no process has the terminal open
        while part := os.read(terminal, 65536):
            seen += part
    return seen.decode()


@dataclass(frozen=True)
class Machine:
    """A machine to build for.

    `cxx` is its C++ compiler, and `runner` starts its programs here. `cpu` is the CPU that they
    see; it is empty if there is only one. `missing` says what is missing here; it is empty if
    nothing is. `flags` are for all that is compiled for it.
    """

    name: str
    cxx: str
    runner: tuple[str, ...] = ()
    cpu: str = ""
    missing: str = ""
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return the name that tells it from the other machines of a test."""
        return "-".join(filter(None, (self.name, self.cpu, "".join(self.flags[:1]).partition("=")[2])))

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        return [pytest.mark.skipif(bool(self.missing), reason=self.missing)]

    @property
    def env(self) -> dict[str, str]:
        return {"QEMU_CPU": self.cpu} if self.cpu else {}


def _emulated(name: str, cpu: str, *, is_the_native: bool = True) -> Machine:
    if platform.machine() == name:
        return Machine(name, "g++", missing="" if is_the_native else "the native CPU is tested instead")
    compiler, emulator = f"{name}-linux-gnu-g++", f"qemu-{name}"
    absent = [tool for tool in (compiler, emulator) if not shutil.which(tool)]
    missing = f"no {' and no '.join(absent)} (Debian: g++-{name}-linux-gnu qemu-user)" if absent else ""
    return Machine(name, compiler, (shutil.which(emulator) or "", "-L", f"/usr/{name}-linux-gnu"), cpu, missing)


HERE = Machine(platform.machine(), shutil.which("g++") or "g++")
AARCH64 = _emulated("aarch64", "max")  # with SVE, signed return addresses and branch target identification
AARCH64_PLAIN = _emulated("aarch64", "cortex-a72", is_the_native=False)
RISCV64 = _emulated("riscv64", "")


def _sanitizing_compiler() -> str:
    """Return the compiler that takes least time for code with sanitizers: clang takes less than
    half of what g++ takes, but its sanitizers may not be installed."""
    clang = shutil.which("clang++-19") or shutil.which("clang++")
    asked = [clang, "-print-resource-dir"] if clang else ["true"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    has_sanitizers = found and len([*Path(found).glob("lib/*/libclang_rt.[at]san*.a")]) > 1
    return clang if clang and has_sanitizers else HERE.cxx


def _sanitized(sanitizer: str) -> Machine:
    # The thread sanitizer needs addresses that the kernel might use otherwise, so address
    # randomization is off. A finding ends a program with a status of its own.
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    return Machine(HERE.name, _SANITIZING, ("setarch", "-R"), flags=flags)


_SANITIZING = _sanitizing_compiler()
SANITIZED = (_sanitized("address,undefined"), _sanitized("thread"))


def machine_params(*machines: Machine) -> list[object]:
    """Return parameters for a test that runs on each of `machines`. A machine that cannot be built
    for is skipped with the reason."""
    return [pytest.param(m, id=m.label, marks=m.marks) for m in machines]


# This marks a test that takes the fixture `machine`, directly or through other fixtures.
on_each_machine = pytest.mark.parametrize("machine", machine_params(HERE, AARCH64), indirect=True)
# These mark such a test that also runs under sanitizers.
with_sanitizers = pytest.mark.parametrize("machine", machine_params(HERE, *SANITIZED), indirect=True)
on_each_machine_with_sanitizers = pytest.mark.parametrize(
    "machine", machine_params(HERE, AARCH64, *SANITIZED), indirect=True
)


class Services(Protocol):
    """A server of a test, and workers of it that have names."""

    def start(self) -> object: ...
    def add(self, name: str) -> None: ...
    def stop(self) -> None: ...


ServicesT = TypeVar("ServicesT", bound=Services)


@contextlib.contextmanager
def running(services: ServicesT, *workers: str) -> Iterator[ServicesT]:
    """Start a server and its workers, and stop all of them at the end."""
    try:
        services.start()
        for name in workers:
            services.add(name)
        yield services
    finally:
        services.stop()


class Once:
    """Builds what is costly once in a test run, for all tests and all xdist workers that read
    it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, name: str, make: Callable[[Path], Made]) -> Made:
        """Call `make` with an empty directory of its own, and return its result. Later callers wait
        and get that result, pickled. `name` tells what is made from what else the module of `make`
        has made once.

        If `make` raises, the next caller calls it again. Nobody may change the directory afterwards
        in a way that another test would see: processes that run side by side share it.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        name = f"{make.__module__}.{name}"
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


def wait_until(
    is_so: Callable[[], object],
    seconds: float = 60,
    *,
    pause: float = 0.02,
    process: "subprocess.Popen[bytes] | subprocess.Popen[str] | None" = None,
    said: Callable[[], object] = lambda: "it did not happen",
) -> None:
    """Wait until `is_so()` is true, asking every `pause` seconds. Fail with what `said()` returns
    if it is not within `seconds`, or `process` has ended before."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end and (process is None or process.poll() is None), said()
        time.sleep(pause)


def wait_for_another_time(resolution: int = 1) -> None:
    """Wait until the clock shows another time in units of `resolution` seconds."""
    now = int(time.time()) // resolution
    wait_until(lambda: int(time.time()) // resolution != now)
