"""Build the library of tests/gpu/programs for all stages, lazily and ahead of time, with either
CUDA runtime. Run its proofs, each in a process of its own."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from gpu.place import Place, StageError, complaint
from gpu.report import Report

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
BLOBS = 7
# The name of an unnamed namespace differs from build to build.
_UNNAMED = re.compile(r"\d+_GLOBAL__N__(lazyck_[0-9a-f]{16}|[0-9a-f]{8}_\w+?_cu_[0-9a-f]{8})")
_PROVE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
sys.exit(library.prove(sys.argv[2].encode()))
"""


def library(place: Place, how: str, cudart: str) -> Path:
    """Return the library that was built `how`, `lazy` or `ahead`. All stages share it."""
    return place.beside("launches").work / f"{how}-{cudart}" / "liblaunches.so"


def build(place: Place, cudart: str) -> None:
    """Build the project both ways, unless another stage has. Raises `StageError`."""
    gencode = f"arch=compute_{place.machine.arch},code=sm_{place.machine.arch}"
    for how in ("lazy", "ahead"):
        made = library(place, how, cudart)
        made.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(made.parent.with_suffix(".lock")):
            if not made.is_file():
                build_in(place, made.parent, how, cudart, gencode)


def build_in(place: Place, where: Path, how: str, cudart: str, gencode: str) -> None:
    """Build the project in the directory `where`. Raises `StageError`."""
    where.mkdir(parents=True, exist_ok=True)
    words = ["sh", str(PROGRAMS / "build.sh"), gencode, cudart]
    if how == "ahead":
        place.run(words, cwd=where)
        return
    options: list[str | Path] = ["--toolchain", "cuda", "--blobs", "*/blob/*.cu", "--tmp-dir", where / "tmp"]
    place.lazyck("build", "full", *options, "--", *words, cwd=where)
    if (found := place.blobs(where / "liblaunches.so")) != (BLOBS, 0):
        raise StageError(f"not all of {BLOBS} blobs are lazy: {found[0]} are, {found[1]} are not")


def prove(place: Place, how: str, cudart: str, name: str, cache: str = "cache", **more: str) -> tuple[str, str]:
    """Run the proof `name`. Return what it prints, with its exit status if that is not 0, and what
    lazyck prints."""
    return prove_of(place, library(place, how, cudart), name, cache, **more)


def prove_of(place: Place, made: Path, name: str, cache: str = "cache", **more: str) -> tuple[str, str]:
    """Run the proof `name` of the library `made`, and return what `prove` returns."""
    argv: list[str | Path] = [sys.executable, "-c", _PROVE, made, name]
    done = place.run(argv, env=place.environment(cache, **more), fails=True)
    end = f"ended with {done.returncode}: {complaint(done.stderr)}\n" if done.returncode else ""
    return done.stdout + end, done.stderr


def compare(place: Place, report: Report, cudart: str, names: Sequence[str]) -> None:
    """Compare the proofs `names` of the library that this module builds."""
    lazy, ahead = library(place, "lazy", cudart), library(place, "ahead", cudart)
    compare_of(place, report, lazy, ahead, f"{cudart} runtime", names)


def compare_of(
    place: Place, report: Report, lazy_library: Path, ahead_library: Path, which: str, names: Sequence[str]
) -> None:
    """Compare what the proofs `names` print with a lazy library and with one that was built ahead
    of time. Without a GPU they fail because there is no driver, and the comparison shows only that
    both fail at one and the same call."""
    why = place.machine.blind()
    for name in names:
        ahead, _ = prove_of(place, ahead_library, name)
        lazy, said = prove_of(place, lazy_library, name)
        lazy, ahead = (_UNNAMED.sub("(unnamed)", lines) for lines in (lazy, ahead))
        text = f"{name}, {which}: the same results, errors and handles as ahead of time"
        if lazy != ahead:
            report.missed(text, first_difference(lazy, ahead))
        elif not any((place.work / "cache").rglob("*.so")):
            report.missed(text, f"nothing was loaded out of the cache: {said}")
        elif why:
            report.blind(text, f"{why}: {len(ahead.splitlines())} calls of CUDA end in the same errors in both")
        else:
            report.saw(text, " ".join(ahead.split())[:250])


def first_difference(lazy: str, ahead: str) -> str:
    """Return a description of the first line in which they differ, or an empty string."""
    pairs = zip([*lazy.splitlines(), "(end)"], [*ahead.splitlines(), "(end)"], strict=False)
    return next((f"lazily {a!r}, ahead of time {b!r}" for a, b in pairs if a != b), "")


def run_many(place: Place, argv: Sequence[str | Path], cache: str = "cache") -> subprocess.CompletedProcess[str]:
    """Run a program of this directory, which may fail."""
    return place.run([sys.executable, *argv], env=place.environment(cache), fails=True)
