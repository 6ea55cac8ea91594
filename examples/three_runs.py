"""Warm up, record and replay real libraries: run a program cold, recorded and replayed, and time
it.

    python examples/three_runs.py [--work DIR] [--ck] [--table FILE]

This builds the attention example, and with --ck Composable Kernel's fused attention from flash-attn
(some four minutes more), each by its own script unless DIR has it already. Then each program runs
three times:

    cold      an empty cache; LAZYCK_RECORD writes a profile
    recorded  an empty cache, as on a new machine; LAZYCK_PREFETCH makes the profile's blobs ready
              from the first call on
    replayed  the cache of "recorded"; LAZYCK_PREFETCH and LAZYCK_JIT=off: a compile would be
              an error

It fails when a run fails, or when the third run compiles anything.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sources import events, unused

HERE = Path(__file__).resolve().parent
RUNS = ("cold", "recorded", "replayed")


@dataclass(frozen=True)
class Program:
    """Describes a program to run: its argv, and the environment without lazyck's own variables."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Run:
    """Holds the figures of one run: wall seconds, and from the cache's history the compiles, their
    seconds, the loads, and how many compiled blobs were not loaded. A first call compiles what it
    expects to be needed next, and may be wrong."""

    program: str
    run: str
    seconds: float
    compiles: int
    compile_seconds: float
    loads: int
    unused: int


def run_three(program: Program, work: Path) -> list[Run]:
    """Run the program cold, recorded and replayed, below `work`."""
    profile = work / "profile"
    profile.unlink(missing_ok=True)
    done = []
    for run in RUNS:
        cache = work / ("cache-cold" if run == "cold" else "cache")
        if run != "replayed":
            shutil.rmtree(cache, ignore_errors=True)
        env = {**os.environ, **program.env, "LAZYCK_CACHE_DIR": str(cache)}
        env["LAZYCK_RECORD" if run == "cold" else "LAZYCK_PREFETCH"] = str(profile)
        if run == "replayed":
            env["LAZYCK_JIT"] = "off"
        before = len(events(cache))
        begun = time.monotonic()
        process = subprocess.run(program.argv, env=env, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        if process.returncode:
            sys.exit(f"{program.name}, {run}: status {process.returncode}\n{process.stdout}{process.stderr}")
        new = events(cache)[before:]
        compiles = [e for e in new if e["kind"] == "compile"]
        spent = sum(float(str(e["s"])) for e in compiles)
        loads = sum(e["kind"] == "load" for e in new)
        done.append(Run(program.name, run, seconds, len(compiles), spent, loads, len(unused(new))))
    if done[-1].compiles:
        sys.exit(f"{program.name}: the replayed run compiled {done[-1].compiles} blobs")
    return done


def render(runs: Sequence[Run]) -> str:
    """Return the runs as a table in Markdown."""
    lines = [
        "| program | run | wall, s | blobs compiled | in, s | blobs loaded | compiled, not loaded |",
        "|---" * 7 + "|",
    ]
    for r in runs:
        lines.append(
            f"| {r.program} | {r.run} | {r.seconds:.2f} | {r.compiles} | {r.compile_seconds:.1f} | {r.loads} "
            f"| {r.unused} |"
        )
    return "\n".join(lines) + "\n"


def attention(work: Path) -> list[Program]:
    """Return the attention example, built by its demo."""
    library = work / "install" / "libattention.so"
    if not library.exists():
        subprocess.run([sys.executable, HERE / "attention" / "demo.py", "--work", work], check=True)
    env = {"ROCM_PATH": str(HERE.parent / "scripts" / "fake_rocm_home"), "FAKE_ROCM_ARCH": "gfx942"}
    return [
        Program(
            "attention, 4 variants", (sys.executable, str(HERE / "attention" / "demo.py"), "--call", str(library)), env
        )
    ]


def composable_kernel(work: Path) -> list[Program]:
    """Return CK's drivers, built by its script."""
    sys.path.insert(0, str(HERE / "ck_fmha"))
    import calls
    import ck_fmha
    import rocm_home

    build = work / "optdim"
    if not (build / "driver_bwd").exists():
        script = [sys.executable, str(HERE / "ck_fmha" / "ck_fmha.py"), "--work", str(work), "--samples", "1"]
        subprocess.run(script, check=True)
    home = rocm_home.make(work / "rocm", ck_fmha.ARCH)
    programs = []
    for direction in ("fwd", "bwd"):
        env = calls.stand_in_environment(build, home, f"three-{direction}", ck_fmha.ARCH)
        argv = (str(build / f"driver_{direction}"), "128")
        programs.append(Program(f"CK {direction} d128", argv, env))
    return programs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("three-runs-work"))
    parser.add_argument("--ck", action="store_true", help="Composable Kernel too")
    parser.add_argument("--table", type=Path, help="write the table here too")
    args = parser.parse_args()
    work: Path = args.work.resolve()
    programs = attention(work / "attention") + (composable_kernel(work / "ck") if args.ck else [])
    runs = []
    for i, program in enumerate(programs):
        (work / f"runs-{i}").mkdir(parents=True, exist_ok=True)
        runs += run_three(program, work / f"runs-{i}")
    print(render(runs))
    if args.table:
        args.table.write_text(render(runs))


if __name__ == "__main__":
    main()
