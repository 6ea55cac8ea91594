"""Compare `lazyck prebuild build` with bare ninja and `xargs -P`; measure it when all is cached.

python benchmarks/prebuild.py [--quick]        (needs a C++ compiler)

The bare runs get exactly the commands in the entries' logs.
"""

import os
import shutil
import statistics
import tempfile
from pathlib import Path

from common import (
    NINJA,
    Benchmark,
    LazyProject,
    Row,
    bare_compile,
    in_turns,
    kernel_blobs,
    kernel_table,
    main,
    ninja_build,
    seconds,
    spread,
)

# This compiles for about a second, a tenth of what a blob of CK takes. The work around the compiler
# must not decide the result.
BODY = 'return std::regex_match(std::to_string(args.x), std::regex("[0-9]+")) * args.x * {n};'


def measure(quick: bool) -> list[Row]:
    """Measure the throughput, and the cost of a blob that is cached."""
    count = 8 if quick else 24
    with tempfile.TemporaryDirectory(prefix="lazyck-prebuild-") as name:
        project = LazyProject(Path(name))
        texts = kernel_blobs(count, 1, BODY)
        texts["api.hpp"] = "#include <regex>\n#include <string>\n" + texts["api.hpp"]
        project.write({**texts, "dispatch.cpp": kernel_table(count), "build.ninja": ninja_build(count, "-O2 -fPIC")})
        project.build(*NINJA)
        words = ("prebuild", "build", "--manifest", "libk.so", "--all")
        project.lazyck(*words)
        bare = project.work / "bare"
        lines = [bare_compile(e, project.work, [bare / str(i)]) for i, e in enumerate(project.entries())]
        assert len(lines) == count
        jobs = os.cpu_count() or 1
        texts = {f"bare/{i}.sh": f"cd {i} && {line}\n" for i, line in enumerate(lines)}
        rules = ["rule sh", "  command = sh $in", *(f"build {i}/done: sh {i}.sh" for i in range(count))]
        texts["bare/build.ninja"] = "\n".join(rules) + "\n"
        texts["bare/list"] = "".join(f"{i}.sh\n" for i in range(count))
        project.write(texts)

        def prebuild() -> float:
            shutil.rmtree(project.cache, ignore_errors=True)
            return project.lazyck(*words)

        def ninja() -> float:
            return seconds([*NINJA, f"-j{jobs}", "-C", str(bare)])

        def xargs() -> float:
            return seconds(["sh", "-c", f"xargs -P {jobs} -n 1 sh < list"], cwd=bare)

        taken = in_turns({"lazyck": prebuild, "ninja": ninja, "xargs": xargs}, 2 if quick else 3)
        best = min(statistics.median(taken["ninja"]), statistics.median(taken["xargs"]))
        share = best / statistics.median(taken["lazyck"])
        some = 200 if quick else 500
        each = cached_cost(some)
    return [
        Row(
            "prebuild-throughput",
            f"throughput of `prebuild build` with {count} blobs that compile for one second each",
            share,
            "×",
            0.95,
            "the faster of ninja and `xargs -P` with the same commands",
            f"lazyck {spread(taken['lazyck'], 1, ' s')}; ninja {spread(taken['ninja'], 1, ' s')}; "
            f"xargs {spread(taken['xargs'], 1, ' s')}",
            is_floor=True,
        ),
        Row(
            "prebuild-cached", "time of `prebuild build` per blob that is already cached", each[0], "ms", 1, "", each[1]
        ),
    ]


def cached_cost(count: int) -> tuple[float, str]:
    """Return the milliseconds per blob of a prebuild with nothing to do: the difference between
    `count` blobs and one."""
    with tempfile.TemporaryDirectory(prefix="lazyck-cached-") as name:
        project = LazyProject(Path(name))
        project.write({**kernel_blobs(count, 1), "dispatch.cpp": kernel_table(count)})
        project.write({"build.ninja": ninja_build(count, "-O0 -fPIC")})
        project.build(*NINJA)
        words = ("prebuild", "build", "--manifest", "libk.so")
        project.lazyck(*words, "--all")
        taken = in_turns(
            {"all": lambda: project.lazyck(*words, "--all"), "one": lambda: project.lazyck(*words, "k0")}, 5
        )
    more = statistics.median(taken["all"]) - statistics.median(taken["one"])
    return more / (
        count - 1
    ) * 1e3, f"{count} blobs {spread(taken['all'], 1, ' s')}; one blob {spread(taken['one'], 1, ' s')}"


BENCHMARK = Benchmark("prebuild", measure)

if __name__ == "__main__":
    main(BENCHMARK)
