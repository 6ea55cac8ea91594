"""Measure the probe of 15,063 blobs with 60,252 symbols, the link after it, and how both grow.

python benchmarks/probe.py [--quick]        (needs a C++ compiler; minutes without --quick)

The bytes that a symbol costs are measured too. The project's own compiles (one dispatcher) are not
in the figures, which come from the summary of the link in `lazyck build full`. The host-only
compile of each blob is extrapolated from a sample.
"""

import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from common import NINJA, ONE_CALL, Benchmark, LazyProject, Row, kernel_blobs, main, ninja_build, number

FUNCTIONS = 4
# These are blobs of four functions: 60,252 symbols. In the design's figures 93 more blobs have no
# symbols of their own.
AITER = 15_063
SIZES = (1_000, 5_000, AITER, 60_000)
SAMPLE = 12


def build(project: LazyProject, count: int) -> dict[str, Any]:
    """Build `count` blobs lazily; return lazyck's summary."""
    project.write({**kernel_blobs(count, FUNCTIONS), "dispatch.cpp": ONE_CALL})
    project.write({"build.ninja": ninja_build(count, "-O0 -fPIC")})
    project.build(*NINJA)
    return project.summary()


def compile_each(project: LazyProject, count: int) -> float:
    """Return the seconds that compiling each blob for the host would take, extrapolated from a
    sample."""
    chosen = random.Random(5).sample(range(count), SAMPLE)
    begun = time.perf_counter()
    for i in chosen:
        words = ["c++", "-O0", "-fPIC", "-I.", "-c", f"blob/k{i}.cpp", "-o", "sample.o"]
        subprocess.run(words, cwd=project.work, check=True)
    return (time.perf_counter() - begun) / SAMPLE * count


def sections(library: Path) -> int:
    """Return the bytes that each symbol adds to a library: stubs, slots, names and their tables."""
    text = subprocess.run(["size", "-A", str(library)], capture_output=True, text=True, check=True).stdout
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("."))


def measure(quick: bool) -> list[Row]:
    """Measure the figures at the size of aiter's backward library, and the growth."""
    sizes = SIZES[:2] if quick else SIZES
    found: dict[int, dict[str, Any]] = {}
    bytes_of: dict[int, int] = {}
    each = 0.0
    for count in sizes:
        with tempfile.TemporaryDirectory(prefix="lazyck-probe-") as name:
            project = LazyProject(Path(name))
            found[count] = build(project, count)
            bytes_of[count] = sections(project.work / "libk.so")
            if count == (sizes[-1] if quick else AITER):
                each = compile_each(project, count)
            shutil.rmtree(project.work / "t")
    main_size = AITER if AITER in found else sizes[-1]
    at = found[main_size]
    assert at["symbols"] == main_size * FUNCTIONS, at
    per_blob = [found[n]["cpu_seconds"] / n for n in sizes]
    probes = "; ".join(f"{n:,} blobs: {number(found[n]['probe_seconds'])} s" for n in sizes)
    links = "; ".join(f"{n * FUNCTIONS:,} symbols: {number(found[n]['link_seconds'])} s" for n in sizes)
    per_symbol = (bytes_of[sizes[1]] - bytes_of[sizes[0]]) / ((sizes[1] - sizes[0]) * FUNCTIONS)
    link_size = sizes[1]  # 5,000 blobs: 20,000 stubs
    link = found[link_size]["bundle_seconds"] + found[link_size]["link_seconds"]
    return [
        Row(
            "probe",
            f"probe of {main_size:,} blobs with {main_size * FUNCTIONS:,} symbols",
            at["probe_seconds"],
            "s",
            40,
            f"a host-only compile of each blob: {number(each)} s on one core",
            probes,
        ),
        Row(
            "probe-memory",
            f"lazyck's peak memory in a build of {main_size:,} blobs",
            at["peak_rss_kib"] / 2**20,
            "GB",
            1.5,
            "",
            f"{sizes[-1]:,} blobs: {number(found[sizes[-1]]['peak_rss_kib'] / 2**20)} GB",
        ),
        Row(
            "probe-growth",
            f"lazyck's CPU per blob in a build of {sizes[-1]:,} blobs",
            per_blob[-1] / per_blob[-2],
            "×",
            1.25,
            f"a build of {sizes[-2]:,} blobs",
            "CPU of probe, bundle and link: "
            + "; ".join(f"{n:,} blobs: {number(found[n]['cpu_seconds'])} s" for n in sizes),
        ),
        Row(
            "link-20k",
            f"time of bundle, stubs and link for {link_size * FUNCTIONS:,} symbols",
            link,
            "s",
            10,
            "",
            f"the link alone: {links}",
        ),
        Row(
            "bytes",
            "bytes per symbol: stub, slot and name",
            per_symbol,
            "bytes",
            400,
            "",
            f"growth of the library's sections from {sizes[0] * FUNCTIONS:,} to {sizes[1] * FUNCTIONS:,} symbols",
        ),
    ]


BENCHMARK = Benchmark("probe", measure)

if __name__ == "__main__":
    main(BENCHMARK)
