"""Measure a cache of 50,000 entries: a first call, `cache stats`, and a trim while calls go on.

    python benchmarks/large_cache.py [--quick]        (needs a C++ compiler)

The entries are copies of a real one, with real names, in as many directories as 50 libraries have.
The called library has its own entry among them. The trim removes 10,000 entries.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from common import (
    NINJA,
    Benchmark,
    LazyProject,
    Row,
    in_turns,
    kernel_blobs,
    kernel_table,
    main,
    ninja_build,
    ratio,
    spread,
)
from compile import CALLER, link_caller

LIBRARIES = 50
CALLER_OF_FIRST = CALLER.replace("run(float)", "run(int, float)").replace("run(2)", "run(0, 2)").replace("!= 4", "!= 0")


def fill(project: LazyProject, count: int) -> None:
    """Copy the one entry as other libraries' entries: the higher their number, the older they
    are."""
    (entry,) = project.entries()
    leaf = entry.parent
    per_library = count // LIBRARIES
    now = time.time()
    for number in range(LIBRARIES):
        directory = leaf.parent.parent / f"libother{number}" / leaf.name
        directory.mkdir(parents=True, mode=0o700)
        for i in range(per_library):
            copy = directory / f"k{i}-{number:08x}{i:08x}.so"
            shutil.copyfile(entry, copy)
            copy.chmod(0o755)
            age = 86400 * (1 + number * per_library + i)
            os.utime(copy, (now - age, now - age))


def measure(quick: bool) -> list[Row]:
    """Measure a look-up, `cache stats` and `cache trim`."""
    count = 5_000 if quick else 50_000
    with tempfile.TemporaryDirectory(prefix="lazyck-large-") as name:
        project = LazyProject(Path(name))
        project.write({**kernel_blobs(1, 1), "dispatch.cpp": kernel_table(1), "build.ninja": ninja_build(1)})
        project.write({"caller.cpp": CALLER_OF_FIRST})
        project.build(*NINJA)
        link_caller(project)

        def call(more: Mapping[str, str] = MappingProxyType({})) -> float:
            argv = [str(project.work / "caller")]
            done = subprocess.run(argv, env={**project.env, **more}, capture_output=True, text=True, check=True)
            return float(done.stdout)

        small = {"LAZYCK_CACHE_DIR": str(project.work / "small")}
        for _ in range(2):
            call()
            call(small)
            time.sleep(3)  # the note that an entry is whole is only written once the entry has settled
        call()
        call(small)
        fill(project, count)
        taken = in_turns({"large": call, "small": lambda: call(small)}, 20 if quick else 200)
        project.lazyck("cache", "stats")
        stats = in_turns({"stats": lambda: project.lazyck("cache", "stats")}, 3 if quick else 7)["stats"]
        entry_bytes = project.entries()[0].stat().st_blocks * 512
        keep = entry_bytes * (count + 1 - count // 5)
        argv = [sys.executable, "-m", "lazyck", "cache", "trim", "--max-size", str(keep)]
        begun = time.perf_counter()
        trimming = subprocess.Popen(argv, env=project.env, stdout=subprocess.DEVNULL)
        beside = []
        while trimming.poll() is None:
            beside.append(call())
        trimmed = time.perf_counter() - begun
        left = len(project.entries())
    small_times, large_times = (spread(taken[which], 1e6, " µs") for which in ("small", "large"))
    sizes = f"{small_times} with one entry, {large_times} with {count + 1:,}"
    return [
        Row(
            "large-lookup",
            f"first call that is a cache hit, in a cache of {count:,} entries",
            ratio(taken, "large", "small"),
            "×",
            1.1,
            "a cache of one entry",
            sizes,
        ),
        Row(
            "large-stats",
            f"`cache stats` of {count:,} entries",
            statistics.median(stats),
            "s",
            1,
            "",
            spread(stats, 1, " s"),
        ),
        Row(
            "large-trim",
            f"`cache trim` of {count + 1 - left:,} of {count + 1:,} entries",
            trimmed,
            "s",
            5,
            "",
            f"{len(beside)} calls ran during the trim; none failed; each took {spread(beside, 1e6, ' µs')}",
        ),
    ]


BENCHMARK = Benchmark("large_cache", measure)

if __name__ == "__main__":
    main(BENCHMARK)
