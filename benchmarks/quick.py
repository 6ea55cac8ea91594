"""Compare `lazyck build quick` with `build full`; measure both when nothing has changed.

python benchmarks/quick.py [--quick]        (needs a C++ compiler)

There are as many blobs as aiter's backward library has. For `quick` one source of the runtime
changes. Each change is new, since objects are kept by content.
"""

import resource
import secrets
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import (
    NINJA,
    ONE_CALL,
    REPOSITORY,
    Benchmark,
    LazyProject,
    Row,
    in_turns,
    kernel_blobs,
    main,
    ninja_build,
    seconds,
    spread,
)

SOURCES = REPOSITORY / "lazyck" / "runtime" / "src"


def measure(quick: bool) -> list[Row]:
    """Measure wall seconds."""
    with tempfile.TemporaryDirectory(prefix="lazyck-quick-") as name:
        project = LazyProject(Path(name))
        blobs = 1_000 if quick else 15_063
        project.write({**kernel_blobs(blobs, 4), "dispatch.cpp": ONE_CALL, "build.ninja": ninja_build(blobs)})

        def full() -> float:
            for made in ("o", "t"):
                shutil.rmtree(project.work / made, ignore_errors=True)
            return project.build(*NINJA)

        def changed() -> float:
            runtime = project.work / "runtime"
            shutil.rmtree(runtime, ignore_errors=True)
            shutil.copytree(SOURCES, runtime)
            with (runtime / "base/text.cpp").open("a") as f:
                f.write(f"// {secrets.token_hex(8)}\n")
            return project.lazyck("build", "quick", "--tmp-dir", "t", env={"LAZYCK_RUNTIME_SRC": str(runtime)})

        def unchanged() -> float:
            return project.lazyck("build", "quick", "--tmp-dir", "t", env={"LAZYCK_RUNTIME_SRC": str(runtime)})

        def cpu(work: Callable[[], object]) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            work()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        def full_again() -> float:
            return cpu(lambda: project.build(*NINJA))

        def ninja_again() -> float:
            return cpu(lambda: seconds(NINJA, project.env, project.work))

        runtime = project.work / "runtime"
        full()
        changed()
        rounds = 3
        taken = in_turns({"changed": changed}, rounds) | in_turns({"unchanged": unchanged}, rounds)
        taken |= in_turns({"full": full}, rounds)
        taken |= in_turns({"full again": full_again, "ninja again": ninja_again}, rounds)
    return [
        Row(
            "quick",
            "`build quick` after a change to the runtime",
            statistics.median(taken["full"]) / statistics.median(taken["changed"]),
            "× faster",
            20,
            f"`build full` of {blobs:,} blobs",
            f"{spread(taken['changed'], 1, ' s')}; full {spread(taken['full'], 1, ' s')}",
            is_floor=True,
        ),
        Row(
            "quick-unchanged",
            "time of `build quick` with nothing changed since the last build",
            statistics.median(taken["unchanged"]),
            "s",
            1,
            "",
            spread(taken["unchanged"], 1, " s"),
        ),
        Row(
            "full-unchanged",
            f"lazyck's own CPU in `build full` of {blobs:,} blobs with nothing changed since the last build",
            statistics.median(taken["full again"]) - statistics.median(taken["ninja again"]),
            "s",
            1,
            "ninja without lazyck",
            f"{spread(taken['full again'], 1, ' s')}; without lazyck {spread(taken['ninja again'], 1, ' s')}",
        ),
    ]


BENCHMARK = Benchmark("quick", measure)

if __name__ == "__main__":
    main(BENCHMARK)
