"""Provides a small lazy library, a compiler that remembers its results, and programs and tools that
make things go wrong."""

import errno
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from support import REPOSITORY
from support.lazylib import CXX, LazyLibrary, build_lazy_library, run
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

HERE = REPOSITORY / "tests" / "faults"
OTHER_USER = 54321  # no machine knows this user

# This program calls both blobs, each up to argv[1] times until it works, with argv[2] milliseconds
# (default 20) between. It prints the results and the errors, and whether a blob was loaded from
# memory.
CALLS = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>
int pause_ms = 20;
template <typename Call> int attempt(const char* name, int tries, int wanted, Call call) {
    for (int i = 0; i < tries; ++i) {
        try {
            const int got = call();
            std::printf("%s: %d\n", name, got);
            return got == wanted ? 0 : 9;
        } catch (const lazyck::CompileError& e) {
            std::printf("%s failed: %s\n", name, e.what());
            std::fflush(stdout);
            usleep(pause_ms * 1000);
        }
    }
    return 3;
}
int main(int argc, char** argv) {
    const int tries = argc > 1 ? std::atoi(argv[1]) : 1;
    if (argc > 2) pause_ms = std::atoi(argv[2]);
    int result = attempt("add", tries, 8, [] { return use(4); });
    if (const int second = attempt("sub", tries, 3, [] { return sub(5, 2); })) result = second;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("memfd:lazyck-blob") != std::string::npos) { std::puts("from memory"); break; }
    return result;
}
"""
GOOD = "add: 8\nsub: 3\n"


def build(directory: Path, source: str, *flags: str) -> Path:
    """Build a C source beside this file, unless `directory` has what it makes."""
    directory.mkdir(parents=True, exist_ok=True)
    made = directory / source.removesuffix(".c")
    if not made.exists():
        part = directory / f"{made.name}-{os.getpid()}"
        run(["gcc", *flags, "-O1", "-Wall", "-Wextra", "-Werror", HERE / source, "-o", part, "-ldl"])
        part.replace(made)
    return made


def build_shim(directory: Path) -> Path:
    """Build the library that makes system calls fail (see shim.c)."""
    return build(directory, "shim.c", "-shared", "-fPIC")


def remembering_compiler(path: Path, calls: Path, memory: Path, program: Path) -> None:
    """Write a compiler that logs its calls, and that compiles and links each text only once, since
    there are many cases (`program`, see remember.c)."""
    memory.mkdir()
    argv = shlex.join([str(program), str(memory), CXX])
    path.write_text(f'#!/bin/sh\nprintf \'%s\\n\' " $* " >> {shlex.quote(str(calls))}\nexec {argv} "$@"\n')
    path.chmod(0o755)


@dataclass
class Patient:
    """A lazy library, a program that calls it, and an empty cache for each case."""

    lib: LazyLibrary
    program: Path
    shim: Path
    cache: Path

    def call(
        self, *words: str, env: Mapping[str, str] | None = None, by: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end. If `by` is given, this command starts it, with the program's
        path as the last word."""
        return subprocess.run(
            [*by, str(self.program), *words],
            capture_output=True,
            text=True,
            env=self.env(env),
            timeout=120,
            check=False,
        )

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Run the program in a process group of its own."""
        return subprocess.Popen(
            [str(self.program), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env(env),
            start_new_session=True,
        )  # fmt: skip

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        full = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        places = {"LAZYCK_CACHE_DIR": str(self.cache), "TMPDIR": str(self.cache.parent / "tmp")}
        places[abi.TEST_UNRESTRICTED] = "1"  # the compiler reads what it remembers
        return {**full, **self.lib.env, **places, **(more or {})}

    def faulty(self, first: int, error: int, **more: str) -> dict[str, str]:
        """Return the environment in which the program's call number `first` that changes the cache
        fails with `error`."""
        return {
            "LD_PRELOAD": str(self.shim),
            "FAULT_PROGRAM": self.program.name,
            "FAULT_BELOW": str(self.cache),
            "FAULT_FIRST": str(first),
            "FAULT_ERRNO": str(error),
            "FAULT_LOG": str(self.cache.parent / "faults.log"),
            **more,
        }

    def logged(self, operations: str) -> list[str]:
        """Run the program with no failures. Return its calls below the cache, as lines of "call
        path"."""
        done = self.call(env=self.faulty(1, 0, FAULT_LAST="1000000", FAULT_OPS=operations))
        assert done.returncode == 0, done
        return [line.split(" ", 1)[1] for line in self.injected()]

    def injected(self) -> list[str]:
        """Return what failed since the last time, as lines of "number call path"."""
        log = self.cache.parent / "faults.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("v1/*/*/*.so"))

    def seconds(self) -> float:
        """Return how many seconds the program takes on this machine when it compiles."""
        self.clear()
        start = time.monotonic()
        self.call()
        return time.monotonic() - start

    def clear(self) -> None:
        """Empty the cache, and reset the count of compiles."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.lib.calls.unlink(missing_ok=True)

    def expect_recovery(self) -> subprocess.CompletedProcess[str]:
        """Check that a normal run succeeds and that another one has no message. Return the first
        run."""
        done = self.call()
        assert (done.returncode, done.stdout) == (0, GOOD), done
        again = self.call()
        assert (again.returncode, again.stdout, again.stderr) == (0, GOOD, ""), again
        return done


def make_patient(directory: Path, objects_dir: Path) -> Patient:
    """Build a library in `directory`, which other users can read."""
    (directory / "lib").mkdir()
    (directory / "tmp").mkdir()
    (directory / "tmp").chmod(0o1777)
    lib = build_lazy_library(directory / "lib", objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    program = lib.program(CALLS, name="calls")
    remember = build(directory / "lib", "remember.c")  # other users run it
    remembering_compiler(lib.compiler, lib.calls, directory / "memory", remember)
    patient = Patient(lib, program, build_shim(objects_dir / "shim"), directory / "cache")
    assert patient.call().returncode == 0
    patient.clear()
    return patient


@contextmanager
def public_directory() -> Iterator[Path]:
    """Yield a directory that other users can reach. pytest's own directories are closed to them.

    It lies in memory if programs can run there and it has a gigabyte (containers may have little),
    because the cases wait for the disk most of their time otherwise: each compile makes sure that
    its entry is on the disk."""
    memory = Path("/dev/shm")
    is_usable = os.access(memory, os.W_OK) and not (about := os.statvfs(memory)).f_flag & os.ST_NOEXEC
    is_usable = is_usable and about.f_bavail * about.f_frsize >= 1 << 30
    with tempfile.TemporaryDirectory(prefix="lazyck-test-", dir=memory if is_usable else None) as name:
        Path(name).chmod(0o755)
        yield Path(name)


# -- cases that tests run a few times, and `python -m tests.faults` as often as asked --------------


def kill_at_random(patient: Patient, dice: random.Random, longest: float) -> str:
    """Kill a process that compiles, at a random moment. A normal run must then succeed. Return
    "killed" or "too late"."""
    if dice.random() < 0.7:
        patient.clear()
    process = patient.start()
    time.sleep(dice.uniform(0, longest))  # any moment is wanted, not an event
    process.send_signal(signal.SIGKILL)
    process.communicate()
    patient.expect_recovery()
    return "too late" if process.returncode == 0 else "killed"


# These are all calls from the first look-up in the cache to the end of the clean-up, including the
# starts of compilers.
EVERY_STEP = "mkdir,open,read,write,fsync,ftruncate,rename,chmod,flock,unlink,spawn"
KILL = -1


def kill_at_step(patient: Patient, number: int) -> list[str]:
    """Kill a process that compiles, right before its call `number`. A normal run must then succeed.
    Return the call in a list, which is empty if there are fewer calls."""
    patient.clear()
    done = patient.call(env=patient.faulty(number, KILL, FAULT_OPS=EVERY_STEP))
    steps = patient.injected()
    assert done.returncode == (-signal.SIGKILL if steps else 0), done
    patient.expect_recovery()
    return steps


def kill_at_each_step(patient: Patient, until: str = "") -> list[str]:
    """Do `kill_at_step` for every call that resolving makes, up to the first call whose path
    contains `until`. Return the calls."""
    steps: list[str] = []
    while (step := kill_at_step(patient, len(steps) + 1)) and not (until and until in step[0]):
        steps += step
    return steps


def tear(data: bytes, dice: random.Random) -> bytes:
    """Return what a power cut may leave of a file: the file is cut short, has zeros in a page or
    from a page on, or has a flipped bit."""
    kind = dice.randrange(4)
    at = dice.randrange(len(data))
    page = at // 4096 * 4096
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:page] + bytes(len(data) - page)
    if kind == 2:
        return data[:page] + bytes(len(data[page : page + 4096])) + data[page + 4096 :]
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


def tear_an_entry(patient: Patient, dice: random.Random) -> str:
    """Damage one entry. It must be found, moved aside and rebuilt. Return "torn", or "unharmed" if
    the damage changed nothing."""
    if len(patient.entries()) != 2:
        patient.expect_recovery()
    entry = dice.choice(patient.entries())
    whole = entry.read_bytes()
    torn = tear(whole, dice)
    entry.write_bytes(torn)
    done = patient.expect_recovery()
    if torn == whole:  # the page was zero before
        return "unharmed"
    assert "is damaged" in done.stderr, done
    assert entry.read_bytes() == whole
    for aside in entry.parent.glob("*.bad-*"):
        aside.unlink()
    return "torn"


def fail_one_call(patient: Patient, number: int, error: int) -> list[str]:
    """Make call `number` that changes the cache fail. The program must succeed all the same, and so
    must the next run. Return the failed call in a list, which is empty if there are fewer calls."""
    patient.clear()
    done = patient.call(env=patient.faulty(number, error))
    assert (done.returncode, done.stdout) == (0, GOOD), done
    failed = patient.injected()
    patient.expect_recovery()
    assert not list(patient.cache.glob(".staging/*")), failed
    return failed


def fail_each_call(patient: Patient, error: int) -> list[str]:
    """Do `fail_one_call` for every call that the publish path makes. Return the failed calls."""
    all_failed: list[str] = []
    number = 1
    while failed := fail_one_call(patient, number, error):
        all_failed += failed
        number += 1
    return all_failed


ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES", "ESTALE")}
