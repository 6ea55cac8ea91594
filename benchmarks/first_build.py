"""Measure what the first lazy library that a user builds costs, and a build after it.

    python benchmarks/first_build.py [--quick]        (needs a C++ compiler)

A first build compiles lazyck's runtime, or, with the machine's wheel, checks that the objects in
the wheel fit. The size of the runtime in a library is measured too. CPU seconds are those of all
processes. The runtime is compiled into an empty directory each time, as in a fresh home directory.
"""

import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import ONE_CALL, Benchmark, LazyProject, Row, in_turns, kernel_blobs, main, missing_tools, spread

from lazyck.runtime import shipped
from lazyck.runtime.builder import SOURCES, compile_objects
from lazyck.units.program import objects_for_wheels

COMPILERS = {"g++": ("g++",), "clang++": ("clang++", "clang++-19", "clang++-18", "clang++-17", "clang++-14")}
COMPILE = "c++ -O1 -fPIC -I. -c"
BUILD = f"{COMPILE} dispatch.cpp -o d.o && {COMPILE} blob/k0.cpp -o k0.o && c++ -shared -o libk.so d.o k0.o"


def cpu_of(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the processes that `work` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def runtime_row(label: str, compiler: str, work: Path, rounds: int) -> Row:
    """Measure the compile of the runtime, all sources together and each by itself."""
    apart = work / "src"
    shutil.copytree(SOURCES, apart, dirs_exist_ok=True)
    walls = []

    def compiled(src: Path) -> float:
        store = work / "store"
        shutil.rmtree(store, ignore_errors=True)
        begun = time.perf_counter()
        cpu = cpu_of(lambda: compile_objects(store, [compiler], src))
        if src == SOURCES:
            walls.append(time.perf_counter() - begun)
        return cpu

    taken = in_turns({"together": lambda: compiled(SOURCES), "apart": lambda: compiled(apart)}, rounds)
    return Row(
        f"first-build-{label}",
        f"CPU of compiling the runtime with {label}, once per user",
        statistics.median(taken["together"]),
        "s",
        6,
        "",
        f"{spread(taken['together'], 1, ' s')}; wall time {spread(walls, 1, ' s')}; each source by itself "
        f"{spread(taken['apart'], 1, ' s')}",
        why="Nearly all of this goes into some 9,500 lines of code; the headers take 0.4 s.",
    )


def wheel_row(label: str, compiler: str, work: Path, rounds: int) -> Row:
    """Measure a first build with the objects of the machine's wheel, which g++ has made."""
    ready = work / "ready"
    shipped.write(work / "shipped", ["g++"], objects_for_wheels(ready, ["g++"]))
    shipped.DIRECTORY = work / "shipped"

    def taken_over() -> float:
        store = work / "store"
        shutil.rmtree(store, ignore_errors=True)
        shipped._fitting.cache_clear()
        cpu = cpu_of(lambda: compile_objects(store, [compiler]))
        if list(store.rglob("*.cpp")):
            raise SystemExit("the wheel's objects do not fit")
        return cpu

    taken = [taken_over() for _ in range(rounds)]
    shipped.DIRECTORY = work / "nothing"
    return Row(
        f"first-build-wheel-{label}",
        f"CPU of a first build with {label} and the machine's wheel, which contains the runtime compiled by g++",
        statistics.median(taken),
        "s",
        6,
        "",
        f"{spread(taken, 1, ' s')}: the check whether the wheel's objects fit",
    )


def later_rows(project: LazyProject, rounds: int) -> list[Row]:
    """Measure a build after the first against the project's own commands, and the runtime's size in
    a library."""
    project.write({**kernel_blobs(1, 1), "dispatch.cpp": ONE_CALL})

    def lazily() -> float:
        shutil.rmtree(project.work / "t", ignore_errors=True)
        return cpu_of(lambda: project.build("sh", "-c", BUILD))

    def plainly() -> float:
        return cpu_of(lambda: subprocess.run(["sh", "-c", BUILD], cwd=project.work, check=True))

    def stripped() -> float:
        subprocess.run(["strip", "libk.so"], cwd=project.work, check=True)
        return (project.work / "libk.so").stat().st_size

    plainly()
    ahead = stripped()
    lazily()
    whole = (project.work / "libk.so").stat().st_size
    lazy = stripped()
    taken = in_turns({"lazy": lazily, "plain": plainly}, rounds)
    own = statistics.median(taken["lazy"]) - statistics.median(taken["plain"])
    return [
        Row(
            "later-build",
            "lazyck's own CPU in a build of two files, once the runtime is compiled",
            own,
            "s",
            0.7,
            "the project's commands without lazyck",
            f"{spread(taken['lazy'], 1, ' s')}; without lazyck {spread(taken['plain'], 1, ' s')}",
        ),
        Row(
            "runtime-size",
            "size of the runtime in a stripped lazy library",
            (lazy - ahead) / 1000,
            "KB",
            600,
            "the same library built ahead of time",
            f"the whole library with symbols: {whole / 1000:.0f} KB",
        ),
    ]


def measure(quick: bool) -> list[Row]:
    """Measure CPU seconds and bytes."""
    rounds = 1 if quick else 5
    rows = []
    with tempfile.TemporaryDirectory(prefix="lazyck-first-") as name:
        for label, programs in COMPILERS.items():
            if compiler := next(filter(shutil.which, programs), None):
                work = Path(name) / label
                work.mkdir()
                rows.append(runtime_row(label, compiler, work, min(rounds, 3)))
                rows.append(wheel_row(label, compiler, work, min(rounds, 3)))
        project = LazyProject(Path(name) / "project")
        project.work.mkdir()
        return [*rows, *later_rows(project, rounds)]


BENCHMARK = Benchmark("first_build", measure, missing_tools("g++", "strip"))

if __name__ == "__main__":
    main(BENCHMARK)
