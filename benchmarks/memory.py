"""Compare the memory of a process that has resolved 100 blobs with that of an ahead-of-time build.

python benchmarks/memory.py [--quick]        (needs a C++ compiler; --quick takes 20 blobs)

The other process has called the same kernels. The kernel counts private and proportional pages
(PSS) of the whole process.
"""

import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import (
    CALL_MANY,
    NINJA,
    Benchmark,
    LazyProject,
    Row,
    in_turns,
    kernel_blobs,
    kernel_table,
    main,
    ninja_build,
    spread,
)

BLOBS = 100


def measure(quick: bool) -> list[Row]:
    """Measure KB per blob."""
    blobs = 20 if quick else BLOBS
    with tempfile.TemporaryDirectory(prefix="lazyck-memory-") as name:
        project = LazyProject(Path(name))
        project.write({**kernel_blobs(blobs, 1), "dispatch.cpp": kernel_table(blobs), "caller.cpp": CALL_MANY})
        project.write({"build.ninja": ninja_build(blobs)})
        subprocess.run(NINJA, cwd=project.work, check=True)
        (project.work / "ahead").mkdir()
        (project.work / "libk.so").rename(project.work / "ahead" / "libk.so")
        for old in (project.work / "o").iterdir():
            old.unlink()
        project.build(*NINJA)
        for where in ("ahead", "."):
            words = [
                "c++",
                "-O1",
                "caller.cpp",
                "-o",
                f"{where}/caller",
                f"-L{where}",
                "-lk",
                f"-Wl,-rpath,{(project.work / where).resolve()}",
            ]
            subprocess.run(words, cwd=project.work, check=True)

        def pss(where: str) -> float:
            argv = [f"{where}/caller", *map(str, range(blobs))]
            done = subprocess.run(argv, cwd=project.work, env=project.env, capture_output=True, text=True, check=True)
            found = re.search(r"^Pss:\s+(\d+) kB", done.stdout, re.MULTILINE)
            assert found, done.stdout
            return float(found[1])

        pss(".")  # fills the cache
        taken = in_turns({"lazy": lambda: pss("."), "ahead": lambda: pss("ahead")}, 3 if quick else 9)
    each = (statistics.median(taken["lazy"]) - statistics.median(taken["ahead"])) / blobs
    return [
        Row(
            "memory",
            f"memory per resolved blob, in a process with {blobs} resolved blobs",
            each,
            "KB",
            64,
            "the same kernels built ahead of time",
            f"{spread(taken['lazy'], 1e-3, ' MB')}; ahead of time {spread(taken['ahead'], 1e-3, ' MB')}",
        )
    ]


BENCHMARK = Benchmark("memory", measure)

if __name__ == "__main__":
    main(BENCHMARK)
