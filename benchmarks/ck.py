"""Build CK's fused attention from flash-attn, forward and backward; measure lazyck's share and
sizes.

    python benchmarks/ck.py [--quick]

Needs hipcc and what `examples/ck_fmha` names, and takes a quarter of an hour.
`examples/ck_fmha/ck_fmha.py` does the work. The cost of an ahead-of-time build is extrapolated from
a random sample of its blobs, spread over kinds of kernels and head dims. CPU seconds are those of
all processes, so that other programs on the machine change them little.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import REPOSITORY, Benchmark, Row, main, number

from lazyck.runtime.tool import tool

EXAMPLE = REPOSITORY / "examples" / "ck_fmha"
SAMPLES = 16
WHY_SIZE = (
    "These kernels are small: some 40 KB of device code each, for one arch. The dispatchers are in the lazy and in the "
    "ahead-of-time libraries; with their exception tables and names of 300 to 500 characters they are {share} % of the "
    "ahead-of-time size. Most of the rest is a second copy of the names, in the manifest beside each library."
)


def missing() -> str:
    """Return a message that names the missing packages, or an empty string if there are none."""
    sys.path.insert(0, str(EXAMPLE))
    import rocm_home

    packages = rocm_home.missing_packages()
    return f"needs {packages}" if packages else ""


@dataclass(frozen=True)
class Cost:
    """Holds CPU and wall seconds."""

    cpu: float
    wall: float


def first_calls(library: Path, tmp: Path, quick: bool) -> tuple[dict[str, list[Cost]], Cost]:
    """Compile some blobs of the library as a first call does; return the costs by way, and that of
    making one preamble.

    The ways are "plain" (one step after the other), "first" (with a second job) and "later" (with a
    second job and a preamble at hand).
    """
    rt = tool(dict(os.environ))
    words = ["--from", str(library), "--arch", "gfx942"]
    ways = {
        "plain": {"LAZYCK_PREAMBLES": "0", "LAZYCK_JOBS": "1"},
        "first": {"LAZYCK_PREAMBLES": "0", "LAZYCK_JOBS": "2"},
        "later": {"LAZYCK_JOBS": "2"},
    }

    def run(verb: str, way: str, blob: str) -> Cost:
        own = {"LAZYCK_CACHE_DIR": str(tmp / way), "ROCM_PATH": str(tmp / "rocm"), "LAZYCK_LOG": "error"}
        return cost_of([str(rt), verb, *words, blob], {**os.environ, **own, **ways[way]})

    listed = subprocess.run([str(rt), "preambles", *words], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in listed.splitlines()]
    chosen = random.Random(9).sample([r["name"] for r in rows if r["preamble"]], 1 if quick else 4)
    spent: dict[str, list[Cost]] = {way: [] for way in ways}
    making = [run("preamble", "later", blob) for blob in chosen]
    for blob in chosen:
        for way in ways:
            spent[way].append(run("compile", way, blob))
    return spent, making[0]


def rows_of_first_calls(spent: dict[str, list[Cost]], making: Cost) -> list[Row]:
    """Return the rows of a blob's first call, against clang's own order without a preamble."""

    def row(name: str, claim: str, way: str, what: str, most: float, more: str = "") -> Row:
        mine, plain = ([getattr(cost, what) for cost in spent[w]] for w in (way, "plain"))
        each = ", ".join(f"{a:.1f} s / {b:.1f} s" for a, b in zip(mine, plain, strict=True))
        against = "compiling host and device code one after the other, without a preamble"
        return Row(name, claim, sum(mine) / sum(plain), "×", most, against, f"each blob: {each}{more}")

    with_one = "of compiling a CK blob with a precompiled preamble"
    cost = f"; making a preamble takes {making.cpu:.1f} s of CPU, {making.wall:.1f} s of wall time"
    return [
        row(
            "ck-first-wall",
            "wall time of compiling a CK blob in a first call, with a second core free",
            "first",
            "wall",
            0.85,
        ),
        row("ck-preamble-wall", f"wall time {with_one}", "later", "wall", 0.66, cost),
        row("ck-preamble", f"CPU {with_one}", "later", "cpu", 0.85),
    ]


def sibling_rows(build: Path, home: Path) -> list[Row]:
    """Return the rows of the first call of a backward kernel, which needs three blobs, without a
    profile.

    Two jobs are compared with one. The preamble that is made meanwhile is for later calls, so it is
    left out where CPU is counted.
    """
    sys.path.insert(0, str(EXAMPLE))
    from calls import stand_in_environment
    from ck_fmha import ARCH

    ways = {
        "one": {"LAZYCK_JOBS": "1", "LAZYCK_PREAMBLES": "0"},
        "two": {"LAZYCK_JOBS": "2"},
        "plain": {"LAZYCK_JOBS": "2", "LAZYCK_PREAMBLES": "0"},
    }
    spent: dict[str, list[Cost]] = {way: [] for way in ways}
    for _ in range(3):
        for way, own in ways.items():
            env = {**stand_in_environment(build, home, "siblings", ARCH), **own, "LAZYCK_LOG": "error"}
            shutil.rmtree(build / "siblings", ignore_errors=True)
            env["LAZYCK_CACHE_DIR"] = str(build / "siblings")
            spent[way].append(cost_of([str(build / "driver_bwd"), "128"], env))
    rows = []
    for what, title, way, most in (("wall", "wall time", "two", 0.69), ("cpu", "CPU", "plain", 1.1)):
        one, two = (statistics.median(getattr(cost, what) for cost in spent[w]) for w in ("one", way))
        claim = f"{title} of the first call of a CK backward kernel (three blobs) with two jobs and no profile"
        rows.append(Row(f"ck-siblings-{what}", claim, two / one, "×", most, "one job", f"{two:.1f} s / {one:.1f} s"))
    return rows


def cost_of(argv: list[str], env: dict[str, str]) -> Cost:
    """Return the cost of a process together with all processes that it starts."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def measure(quick: bool) -> list[Row]:
    """Measure both libraries, or with `quick` the few files of one direction."""
    with tempfile.TemporaryDirectory(prefix="lazyck-ck-") as name:
        found = Path(name) / "figures.json"
        words = ["--work", name, "--json", str(found), "--samples", str(2 if quick else SAMPLES)]
        if quick:
            words += ["--libraries", "fwd", "--only", "fwd_appendkv"]
        done = subprocess.run([sys.executable, str(EXAMPLE / "ck_fmha.py"), *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"ck_fmha.py ended with status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        at = json.loads(found.read_text())
        (library,) = Path(name).glob("*/install/libfmha_fwd.so")
        calls = rows_of_first_calls(*first_calls(library, Path(name), quick))
        if not quick:
            calls += sibling_rows(library.parent.parent, Path(name) / "rocm")
    against = f"an ahead-of-time build, extrapolated from {at['sampled']} blobs"
    what = f"CK's forward and backward attention ({at['files']:,} files)"
    return [
        Row(
            "ck-own",
            f"lazyck's own CPU in `build full` of {what}",
            at["own_cpu"],
            "s",
            30,
            "",
            f"the whole build: {number(at['cpu'])} s of CPU, {number(at['wall'])} s of wall time; "
            f"{at['symbols']:,} symbols; without the runtime's compile, which a user's first build adds",
        ),
        Row(
            "ck-cpu",
            "CPU of the whole lazy build of CK, dispatchers included",
            at["ahead_cpu"] / at["cpu"],
            "× less",
            250,
            against,
            f"{number(at['ahead_cpu'] / 3600)} core-hours ahead of time",
            is_floor=True,
        ),
        Row(
            "ck-size",
            "size of CK's lazy libraries and their bundle",
            at["lazy"] / at["ahead"] * 100,
            "%",
            10,
            f"{against}, for one arch, stripped",
            f"{number(at['lazy'] / 1e6)} MB / {number(at['ahead'] / 1e6)} MB; both include "
            f"{number(at['dispatchers'] / 1e6)} MB of dispatchers",
            why=WHY_SIZE.format(share=number(at["dispatchers"] / at["ahead"] * 100)),
        ),
        Row(
            "ck-shipped",
            "size of CK's lazy libraries and their bundle in a wheel (deflated)",
            at["lazy_shipped"] / at["ahead_shipped"] * 100,
            "%",
            10,
            f"{against}, for one arch, stripped and deflated",
            f"{number(at['lazy_shipped'] / 1e6)} MB / {number(at['ahead_shipped'] / 1e6)} MB; both include "
            f"{number(at['dispatchers_shipped'] / 1e6)} MB of dispatchers",
        ),
        *calls,
    ]


BENCHMARK = Benchmark("ck", measure, missing)

if __name__ == "__main__":
    main(BENCHMARK)
