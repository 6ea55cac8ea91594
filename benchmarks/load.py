"""Measure loading a lazy library of 20,000 slots against loading one without any.

    python benchmarks/load.py [--quick]        (needs a C++ compiler)

Each dlopen happens in a fresh process; both libraries take turns.
"""

import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import NINJA, ONE_CALL, Benchmark, LazyProject, Row, in_turns, kernel_blobs, main, ninja_build, spread

SLOTS = 20_000
LOADER = """
#include <cstdio>
#include <ctime>
#include <dlfcn.h>
static long now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
int main(int, char** argv) {
    now();
    const long begun = now();
    void* const handle = dlopen(argv[1], RTLD_NOW);
    const long spent = now() - begun;
    std::printf("%ld\\n", spent);
    return handle == nullptr;
}
"""


def measure(quick: bool) -> list[Row]:
    """Measure the difference of the medians."""
    with tempfile.TemporaryDirectory(prefix="lazyck-load-") as name:
        project = LazyProject(Path(name))
        texts = kernel_blobs(SLOTS // 20, 20)
        project.write({**texts, "dispatch.cpp": ONE_CALL, "build.ninja": ninja_build(SLOTS // 20)})
        project.write({"loader.cpp": LOADER, "empty.cpp": "int nothing() { return 0; }\n"})
        project.build(*NINJA)
        for words in (
            ["c++", "-O1", "loader.cpp", "-o", "loader", "-ldl"],
            ["c++", "-O1", "-shared", "-fPIC", "empty.cpp", "-o", "libempty.so"],
        ):
            subprocess.run(words, cwd=project.work, check=True)

        def load(library: str) -> float:
            argv = [str(project.work / "loader"), str(project.work / library)]
            done = subprocess.run(argv, env=dict(os.environ), capture_output=True, text=True, check=True)
            return int(done.stdout) * 1e-9

        taken = in_turns({"lazy": lambda: load("libk.so"), "empty": lambda: load("libempty.so")}, 20 if quick else 200)
    more = statistics.median(taken["lazy"]) - statistics.median(taken["empty"])
    return [
        Row(
            "load-20k",
            f"extra time to load a lazy library with {SLOTS:,} slots",
            more * 1e3,
            "ms",
            2,
            "`dlopen` of an empty library",
            f"{spread(taken['lazy'], 1e3, ' ms')}; empty library {spread(taken['empty'], 1e3, ' ms')}",
        )
    ]


BENCHMARK = Benchmark("load", measure)

if __name__ == "__main__":
    main(BENCHMARK)
