"""Provide what the benchmarks share: claims with figures, measuring in turns, small lazy
projects."""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lazyck import abi

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """Holds a claim and its measurement. `value`, in `unit`, must be at most `target` (with
    `is_floor`: at least).

    `against` names what it is compared with in the same run. `detail` gives the medians and spreads
    behind it. `why` gives the reason if a target is missed on principle.
    """

    name: str
    claim: str
    value: float
    unit: str
    target: float
    against: str
    detail: str
    is_floor: bool = False
    why: str = ""

    @property
    def is_met(self) -> bool:
        """Return whether the figure is on the right side of its target."""
        return self.value >= self.target if self.is_floor else self.value <= self.target


@dataclass(frozen=True)
class Benchmark:
    """Describes a benchmark: `measure(quick)` returns its rows. `missing()` says what this machine
    lacks to run it, or returns an empty string."""

    name: str
    measure: Callable[[bool], list[Row]]
    missing: Callable[[], str] = field(default=lambda: "")


def main(benchmark: Benchmark) -> None:
    """Run a benchmark as a program of its own."""
    quick = "--quick" in sys.argv[1:]
    if reason := benchmark.missing():
        sys.exit(f"{benchmark.name}: {reason}")
    rows = benchmark.measure(quick)
    print(render(rows))
    sys.exit(0 if all(r.is_met for r in rows) else 1)


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| claim | measured | target | against | details |", "|---|---|---|---|---|"]
    for r in rows:
        sign = "≥" if r.is_floor else "≤"
        missed = "" if r.is_met else " **missed**"
        lines.append(
            f"| {r.claim} | {number(r.value)} {r.unit}{missed} | {sign} {number(r.target)} | {r.against} | {r.detail} |"
        )
    return "\n".join(lines)


def number(value: float) -> str:
    """Return the number with three significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def in_turns(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return the figures of each way, measured `rounds` times in turns and in a changing order, so
    that other load on the machine affects all of them alike."""
    order = random.Random(7)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        names = list(ways)
        order.shuffle(names)
        for name in names:
            taken[name].append(ways[name]())
    return taken


def spread(values: Sequence[float], scale: float = 1.0, unit: str = "") -> str:
    """Return the median, with the quartiles in brackets."""
    middle = statistics.median(values) * scale
    if len(values) < 3:
        return f"{number(middle)}{unit}"
    low, _, high = statistics.quantiles(values)
    return f"{number(middle)}{unit} ({number(low * scale)} to {number(high * scale)})"


def ratio(taken: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """Return the ratio of the medians."""
    return statistics.median(taken[one]) / statistics.median(taken[other])


def seconds(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> float:
    """Return the wall seconds of a command that must succeed; discard its output."""
    begun = time.perf_counter()
    done = subprocess.run([str(a) for a in argv], env=env, cwd=cwd, capture_output=True, text=True)
    spent = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}\nended with status {done.returncode}\n{done.stdout}{done.stderr}")
    return spent


def missing_tools(*tools: str) -> Callable[[], str]:
    """Return a function for `Benchmark.missing` that names the tools that PATH lacks."""

    def missing() -> str:
        absent = [t for t in tools if not shutil.which(t)]
        return f"needs {', '.join(absent)}" if absent else ""

    return missing


@dataclass(frozen=True)
class LazyProject:
    """Holds a project in a directory of its own, with a cache of its own."""

    work: Path

    @property
    def cache(self) -> Path:
        """Return the directory of its cache."""
        return self.work / "cache"

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of its commands and programs."""
        path = f"{REPOSITORY}:{os.environ['PYTHONPATH']}" if os.environ.get("PYTHONPATH") else str(REPOSITORY)
        env = {**os.environ, "LAZYCK_CACHE_DIR": str(self.cache), "PYTHONPATH": path, "LAZYCK_LOG": "error"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed lazyck has its bytecode
        return env

    def write(self, texts: Mapping[str, str]) -> None:
        """Write files below `work`."""
        for name, text in texts.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def lazyck(self, *words: str | Path, env: Mapping[str, str] | None = None) -> float:
        """Run a lazyck command; return its wall seconds."""
        return seconds([sys.executable, "-m", "lazyck", *words], {**self.env, **(env or {})}, self.work)

    def build(self, *command: str, toolchain: str = "host", env: Mapping[str, str] | None = None) -> float:
        """Run `lazyck build full`; return its wall seconds."""
        return self.lazyck(
            "build", "full", "--toolchain", toolchain, "--tmp-dir", self.work / "t", "--", *command, env=env
        )

    def summary(self) -> dict[str, Any]:
        """Return lazyck's summary of the project's one link."""
        (path,) = (self.work / "t").glob("libs/*/summary.json")
        return dict(json.loads(path.read_text()))

    def entries(self) -> list[Path]:
        """Return the entries of the cache."""
        return sorted(self.cache.glob("v1/*/*/*.so"))


def bare_compile(entry: Path, work: Path, directories: Iterable[Path]) -> str:
    """Return the commands that an entry's log records, as a line for a shell. Make `directories` in
    which they can run: the commands name sources by a link to the bundle, which lies in the build's
    directory `t` of `work`."""
    (bundle,) = (work / "t").glob("libs/*/bundle")
    for directory in directories:
        directory.mkdir(parents=True)
        (directory / abi.BUNDLE_LINK).symlink_to(bundle)
    lines = entry.with_suffix(".log").read_text().splitlines()
    return " && ".join(line[2:] for line in lines if line.startswith("$ "))


KERNELS = "struct Args { float x; };\ntemplate <int N> float kernel(const Args& args);\n"


def kernel_blobs(count: int, functions: int, body: str = "return args.x * {n};") -> dict[str, str]:
    """Return the files of `count` blobs with `functions` explicit specializations each."""
    texts = {"api.hpp": KERNELS}
    for i in range(count):
        numbers = range(i * functions, (i + 1) * functions)
        lines = [
            f"template <> float kernel<{n}>(const Args& args) {{ {body.replace('{n}', str(n))} }}" for n in numbers
        ]
        texts[f"blob/k{i}.cpp"] = '#include "api.hpp"\n' + "\n".join(lines) + "\n"
    return texts


def kernel_table(total: int) -> str:
    """Return a dispatcher that calls any of `total` kernels by number."""
    names = ",\n".join(f"kernel<{n}>" for n in range(total))
    return (
        '#include "api.hpp"\nusing Kernel = float (*)(const Args&);\nstatic const Kernel k_table[] = {\n'
        + names
        + '\n};\nextern "C" float run(int n, float x) { return k_table[n](Args{x}); }\n'
    )


# This dispatcher calls only the first kernel; the stubs of the others are there all the same.
ONE_CALL = '#include "api.hpp"\nextern "C" float run(float x) { return kernel<0>(Args{x}); }\n'


def ninja_build(count: int, flags: str = "-O1 -fPIC") -> str:
    """Return a ninja file that makes libk.so from the dispatcher and `count` blobs."""
    objects = " ".join(f"o/k{i}.o" for i in range(count))
    rules = [
        "rule cxx\n  command = c++ " + flags + " -I. -c $in -o $out",
        "rule link\n  command = c++ -shared -o $out @$out.rsp\n  rspfile = $out.rsp\n  rspfile_content = $in",
        "build o/dispatch.o: cxx dispatch.cpp",
        *(f"build o/k{i}.o: cxx blob/k{i}.cpp" for i in range(count)),
        f"build libk.so: link o/dispatch.o {objects}",
    ]
    return "\n".join(rules) + "\n"


NINJA = (sys.executable, "-m", "ninja", "--quiet")

CALL_MANY = """
#include <cstdio>
#include <cstdlib>
extern "C" float run(int, float);
int main(int argc, char** argv) {  // the numbers of the kernels to call
    for (int i = 1; i < argc; ++i) {
        const int n = std::atoi(argv[i]);
        if (run(n, 2) != 2 * n) return 1;
    }
    std::FILE* const f = std::fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    while (f != nullptr && std::fgets(line, sizeof line, f) != nullptr) std::fputs(line, stdout);
}
"""
