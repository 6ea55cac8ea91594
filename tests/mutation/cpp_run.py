"""Measure how many mutants of the C++ runtime its unit tests notice.

    tests/mutation/cpp_run.py [FILE...] [--sample N] [--also TEST_FILE]...

FILE is a source below `lazyck/runtime/src`; without any, those that decide keys, ownership and
damage are mutated. `--sample` takes N mutants, the same ones each time. `--also` gives the mutants
that survive to a file of pytest, too, with a runtime that is built of the mutated sources.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from support.unit_binary import UnitBinary, build, cases  # noqa: E402

from lazyck.formats.c_header import render_header  # noqa: E402
from lazyck.runtime.builder import SOURCES  # noqa: E402
from mutation.cpp_mutants import SWITCHES, Mutant, Mutated, compile_errors, mutate, switches  # noqa: E402

DECIDING = (
    "base/failure.cpp",
    "base/hash.cpp",
    "base/text.cpp",
    "bundle/arch.cpp",
    "bundle/manifest_view.cpp",
    "cache/cache.cpp",
    "cache/costs.cpp",
    "cache/entry.cpp",
    "platform/config.cpp",
    "store/jit_policy.cpp",
    "store/permits.cpp",
    "store/private_names.cpp",
)
CLANG = "clang++-19"
_SEED = 22
# A mutant that takes so many seconds, and so many times as long as the sources, was noticed.
_LONGEST, _TIMES = 4.0, 10.0


@dataclass(frozen=True)
class Result:
    """What became of one mutant. `killer` is the name of a test, or empty if it survived."""

    mutant: Mutant
    killer: str
    is_reached: bool


def prepare(directory: Path, files: Sequence[str]) -> tuple[UnitBinary, list[Mutated]]:
    """Compile the unit tests with all mutants of `files` below `directory`."""
    src = directory / "src"
    shutil.copytree(SOURCES, src)
    (directory / "lazyck_abi.h").write_text(render_header())
    options = ["-std=c++17", "-pthread", "-Wno-c++11-narrowing", "-iquote", str(src), "-iquote", str(directory)]
    mutated: list[Mutated] = []
    number = 1
    for path in files:
        mutated.append(mutate(SOURCES, path, ["-iquote", str(SOURCES), *options], number, CLANG))
        number += len(mutated[-1].mutants)
    (src / SWITCHES).write_text(switches(number))
    for each in mutated:
        (src / each.path).write_bytes(each.text().encode("latin-1"))
        while lines := compile_errors(src, each.path, options, CLANG):
            before = len(each.wraps)
            each.drop_constants(lines)
            if len(each.wraps) == before:
                each.drop_lines(lines)
            if len(each.wraps) == before:
                raise SystemExit(f"{each.path} does not compile, and no mutant is in the way: lines {sorted(lines)}")
            (src / each.path).write_bytes(each.text().encode("latin-1"))
    return build(directory, ("-w", "-Wno-error", "-Wno-c++11-narrowing"), src, CLANG), mutated


def reached_by(binary: UnitBinary, directory: Path) -> dict[str, tuple[float, frozenset[int]]]:
    """Return how long each test case takes, and which mutants it reaches."""
    found: dict[str, tuple[float, frozenset[int]]] = {}
    for _, name in cases():
        reached = directory / "reached"
        reached.unlink(missing_ok=True)
        start = time.monotonic()
        done = binary.run_case(name, env={"REACHED": str(reached)})
        if done.returncode != 0:
            raise SystemExit(f"without a mutant this fails: {name}\n{done.stdout}{done.stderr}")
        found[name] = (time.monotonic() - start, frozenset(map(int, reached.read_text().split())))
    return found


def judge(binary: UnitBinary, mutant: Mutant, known: Mapping[str, tuple[float, frozenset[int]]]) -> Result:
    """Run the cases that reach a mutant, the fastest first, until one notices it."""
    names = sorted(
        (name for name, (_, reached) in known.items() if mutant.number in reached), key=lambda n: known[n][0]
    )
    for name in names:
        longest = _LONGEST + _TIMES * known[name][0]
        try:
            done = binary.run_case(name, env={"MUTANT": str(mutant.number)}, seconds=longest)
        except subprocess.TimeoutExpired:
            return Result(mutant, name, True)
        if done.returncode != 0:
            return Result(mutant, name, True)
    return Result(mutant, "", bool(names))


def also_by(tree: Path, mutant: Mutant, test_files: Sequence[str]) -> str:
    """Return the first of these files of pytest that notices the mutant, or an empty string."""
    env = {**os.environ, "MUTANT": str(mutant.number), "PYTHONPATH": str(tree)}
    for name in test_files:
        argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", name]
        if subprocess.run(argv, cwd=tree, env=env, capture_output=True).returncode == 1:
            return name
    return ""


def copy_tree(directory: Path) -> Path:
    """Return a copy of this repository with the mutated sources of the runtime."""
    tree = directory / "tree"
    for name in ("lazyck", "tests", "scripts", "docs", "pyproject.toml", "README.md"):
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        tree.mkdir(exist_ok=True)
        copy(REPOSITORY / name, tree / name)
    shutil.rmtree(tree / "lazyck/runtime/src")
    shutil.copytree(directory / "src", tree / "lazyck/runtime/src")
    return tree


def measure(directory: Path, files: Sequence[str], sample: int = 0, also: Sequence[str] = ()) -> list[Result]:
    """Return what became of the mutants of `files`, or of `sample` of them."""
    binary, mutated = prepare(directory, files)
    known = reached_by(binary, directory)
    mutants = [m for each in mutated for m in each.mutants]
    if sample:
        mutants = sorted(random.Random(_SEED).sample(mutants, min(sample, len(mutants))), key=lambda m: m.number)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda m: judge(binary, m, known), mutants))
    if not also:
        return results
    tree = copy_tree(directory)
    return [r if r.killer else Result(r.mutant, also_by(tree, r.mutant, also), r.is_reached) for r in results]


def render(results: Sequence[Result]) -> str:
    """Return the score of each file, and the mutants that survived."""
    lines = []
    for path in [*dict.fromkeys(r.mutant.path for r in results), ""]:
        own = [r for r in results if path in ("", r.mutant.path)]
        killed = sum(1 for r in own if r.killer)
        lines.append(f"{killed:5} of {len(own):5}  {100 * killed / max(1, len(own)):5.1f} %  {path or 'all'}")
    lines += [f"survived{'' if r.is_reached else ' (not reached)'}: {r.mutant}" for r in results if not r.killer]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", default=list(DECIDING))
    parser.add_argument("--sample", type=int, default=0, metavar="N")
    parser.add_argument("--also", action="append", default=[], metavar="TEST_FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lazyck-mutants-") as directory:
        print(render(measure(Path(directory), args.files, args.sample, args.also)))


if __name__ == "__main__":
    main()
