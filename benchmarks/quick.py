"""`lazyck build quick` next to `build full`, of the attention example's 360 variants; and when nothing has changed.

python benchmarks/quick.py [--quick]        (needs a C++ compiler)

What changes for `quick` is one source of the runtime.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import REPOSITORY, Benchmark, LazyProject, Row, in_turns, main, spread

EXAMPLE = REPOSITORY / "examples" / "attention"
SOURCES = REPOSITORY / "lazyck" / "runtime" / "src"


def measure(quick: bool) -> list[Row]:
    """Wall seconds."""
    with tempfile.TemporaryDirectory(prefix="lazyck-quick-") as name:
        project = LazyProject(Path(name))
        project.work.joinpath("home").mkdir()
        env = {"ROCM_PATH": str(REPOSITORY / "scripts" / "fake_rocm_home")}
        configure = [sys.executable, str(EXAMPLE / "configure.py"), "--gpu-archs", "gfx942", "--build-dir"]
        count = 0

        def full() -> float:
            shutil.rmtree(project.work / "build", ignore_errors=True)
            shutil.rmtree(project.work / "t", ignore_errors=True)
            subprocess.run([*configure, str(project.work / "build")], check=True, capture_output=True)
            ninja = ("--", sys.executable, "-m", "ninja", "-C", str(project.work / "build"), "--quiet")
            return project.lazyck("build", "full", "--gpu-archs", "gfx942", "--tmp-dir", "t", *ninja, env=env)

        def changed() -> float:
            nonlocal count
            count += 1
            runtime = project.work / "runtime"
            shutil.rmtree(runtime, ignore_errors=True)
            shutil.copytree(SOURCES, runtime)
            with (runtime / "text.cpp").open("a") as f:
                f.write(f"// change {count}\n")
            return project.lazyck("build", "quick", "--tmp-dir", "t", env={"LAZYCK_RUNTIME_SRC": str(runtime)})

        def unchanged() -> float:
            return project.lazyck("build", "quick", "--tmp-dir", "t", env={"LAZYCK_RUNTIME_SRC": str(runtime)})

        runtime = project.work / "runtime"
        full()
        changed()
        rounds = 3 if quick else 7
        taken = in_turns({"changed": changed}, rounds) | in_turns({"unchanged": unchanged}, rounds)
        taken |= in_turns({"full": full}, rounds)
    return [
        Row(
            "quick",
            "`build quick` after a change of the runtime",
            statistics.median(taken["full"]) / statistics.median(taken["changed"]),
            "× faster",
            20,
            "`build full` of 360 variants",
            f"{spread(taken['changed'], 1, ' s')}; full {spread(taken['full'], 1, ' s')}",
            is_floor=True,
        ),
        Row(
            "quick-unchanged",
            "`build quick` when nothing has changed",
            statistics.median(taken["unchanged"]),
            "s",
            1,
            "",
            spread(taken["unchanged"], 1, " s"),
        ),
    ]


BENCHMARK = Benchmark("quick", measure)

if __name__ == "__main__":
    main(BENCHMARK)
