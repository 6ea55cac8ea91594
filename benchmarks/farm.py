"""Run a build farm on this machine: plans, builds by 2, 4 and 8 workers, one with a worker killed.

python benchmarks/farm.py                            compiles that sleep: what the farm itself costs
python benchmarks/farm.py --manifest LIB --take 16   blobs of your own library, with its compiler

Needs lazyck[farm]. The workers are processes, each with a cache of its own; the shared cache is a
directory. Efficiency is the time of the compiles on one worker divided by the time of all workers.
With real compiles it drops when there are more workers than cores.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import NINJA, REPOSITORY, LazyProject, kernel_blobs, kernel_table, ninja_build

COMPILER = """#!/bin/sh
if [ -n "$FARM_SLEEPS" ]; then
    case " $* " in *" -c "*) k=$(printf '%s\\n' "$@" | sed -n 's|.*/k\\([0-9]*\\)\\.cpp$|\\1|p'); sleep "$(
        sed -n "$((k+1))p" "$FARM_SLEEPS")";; esac
fi
exec {cxx} "$@"
"""


@dataclass(frozen=True)
class Run:
    """Holds the figures of one run: `planned` and `seconds` for the whole, `work` for all compiles
    together."""

    name: str
    workers: int
    planned: float
    seconds: float
    work: float
    retried: int
    failed: int


def sleeping_library(work: Path, count: int) -> tuple[Path, dict[str, str]]:
    """Build a library of `count` blobs whose compiles sleep half a second to four seconds each."""
    tools = work / "bin"
    tools.mkdir()
    (tools / "c++").write_text(COMPILER.replace("{cxx}", str(shutil.which("g++"))))
    (tools / "c++").chmod(0o755)
    project = LazyProject(work / "project")
    project.work.mkdir()
    project.write({**kernel_blobs(count, 1), "dispatch.cpp": kernel_table(count), "build.ninja": ninja_build(count)})
    project.build(*NINJA, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    dice = random.Random(7)
    (work / "sleeps").write_text("".join(f"{dice.lognormvariate(0.3, 0.6):.2f}\n" for _ in range(count)))
    return project.work / "libk.so", {"FARM_SLEEPS": str(work / "sleeps")}


class Farm:
    """Runs a scheduler and its workers."""

    def __init__(self, work: Path, workers: int, env: dict[str, str]) -> None:
        self.work = work
        self.processes: list[subprocess.Popen[bytes]] = []
        self._env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
        self._spawn("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.port = self._wait("scheduler", r"Scheduler at:\s+tcp://127\.0\.0\.1:(\d+)")
        for i in range(workers):
            words = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0", "--name", f"worker{i}"]
            words += ["--local-directory", str(work / f"dask{i}")]
            self._spawn(f"worker{i}", "worker", f"127.0.0.1:{self.port}", *words, cache=str(work / f"cache{i}"))
        for i in range(workers):
            self._wait(f"worker{i}", r"Registered to:\s+(\S+)")

    def _spawn(self, name: str, *words: str, cache: str = "") -> None:
        with (self.work / f"{name}.log").open("wb") as log:
            argv = [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]]
            env = {**self._env, "LAZYCK_CACHE_DIR": cache or str(self.work / "nothing")}
            self.processes.append(subprocess.Popen(argv, env=env, stdout=log, stderr=log))

    def _wait(self, name: str, pattern: str) -> str:
        for _ in range(1200):
            if found := re.search(pattern, (self.work / f"{name}.log").read_text(errors="replace")):
                return found[1]
            time.sleep(0.1)
        sys.exit((self.work / f"{name}.log").read_text())

    def stop(self) -> None:
        """Kill the scheduler and all workers."""
        for process in self.processes:
            process.kill()
            process.wait()


def lazyck(*words: str | Path, env: dict[str, str]) -> dict[str, Any]:
    """Run a command that prints JSON; return that, with its error output as `stderr`."""
    own = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    argv = [sys.executable, "-m", "lazyck", *map(str, words)]
    done = subprocess.run(argv, env=own, capture_output=True, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    return {**json.loads(done.stdout), "stderr": done.stderr}


def measure(
    work: Path, library: Path, blobs: list[str], workers: int, env: dict[str, str], costs: Path, kill_after: float = 0
) -> Run:
    """Run one build with an empty cache."""
    here = work / f"run{workers}{'-killed' if kill_after else ''}"
    (here / "remote").mkdir(parents=True, mode=0o700)
    (here / "cache").mkdir(mode=0o700)
    shutil.copytree(costs, here / "cache" / ".costs")
    own = {**env, "LAZYCK_CACHE_DIR": str(here / "cache"), "LAZYCK_REMOTE": f"{here}/remote|trusted"}
    named: list[str | Path] = ["--manifest", library, "--json", *blobs]
    plan = lazyck("prebuild", "plan", "--workers", str(workers), "--jobs", "1", *named, env=own)
    farm = Farm(here, workers, env)
    try:
        if kill_after:
            threading.Timer(kill_after, farm.processes[-1].kill).start()
        done = lazyck("prebuild", "build", "--executor", f"dask://127.0.0.1:{farm.port}", *named, env=own)
    finally:
        farm.stop()
    print(done["stderr"].splitlines()[-1], flush=True)
    name = f"{workers}, one killed after {kill_after:.0f} s" if kill_after else str(workers)
    return Run(
        name, workers, plan["plans"][0]["seconds"]["likely"], done["seconds"], plan["core_seconds"]["likely"],
        done["stderr"].count("retry: "), len(done["failed"]),
    )  # fmt: skip


def table(runs: list[Run]) -> str:
    """Return the runs as a table in Markdown."""
    lines = [
        "| workers | compiles, one after the other | planned | measured | efficiency | tried again | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in runs:
        share = r.work / (r.seconds * r.workers)
        lines.append(
            f"| {r.name} | {r.work:.0f} s | {r.planned:.1f} s | {r.seconds:.1f} s | {share:.0%} | {r.retried} |"
            f" {r.failed} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--manifest", type=Path, help="a lazy library")
    parser.add_argument("--take", type=int, default=64, help="so many of its blobs")
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--table", type=Path, help="write the table here too")
    args = parser.parse_args()
    counts = [int(n) for n in args.workers.split(",")]
    with tempfile.TemporaryDirectory(prefix="lazyck-farm-") as name:
        work = Path(name)
        library, env = (args.manifest, {}) if args.manifest else sleeping_library(work, args.take)
        base = {**env, "LAZYCK_CACHE_DIR": str(work / "first")}
        listed = [r["name"] for r in json.loads(run_list(library, base))]
        blobs = listed[:: max(1, len(listed) // args.take)][: args.take]
        # This records what the compiles take when nothing else runs.
        lazyck("prebuild", "build", "--jobs", "1", "--manifest", library, "--json", *blobs, env=base)
        costs = work / "first" / ".costs"
        runs = [measure(work, library, blobs, n, env, costs) for n in counts]
        middle = counts[len(counts) // 2]
        runs.append(measure(work, library, blobs, middle, env, costs, runs[len(counts) // 2].seconds / 2))
    print(f"\n{table(runs)}")
    if args.table:
        args.table.write_text(table(runs) + "\n")


def run_list(library: Path, env: dict[str, str]) -> str:
    """Return the output of `lazyck prebuild list` as JSON."""
    argv = [sys.executable, "-m", "lazyck", "prebuild", "list", "--manifest", str(library), "--format", "json"]
    own = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    return subprocess.run(argv, env=own, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
