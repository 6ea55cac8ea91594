"""Measure a warm call through a stub: its instructions and time, against two other ways to call.

    python benchmarks/warm_call.py [--quick]        (needs valgrind and a C++ compiler)

One is a direct call into the same code built ahead of time; the other a dispatcher that keeps its
kernels in a map behind `std::call_once`. The libraries have the same sources, and a program calls
each a given number of times. Callgrind counts the instructions of two runs. Their difference,
divided by the difference in calls, is the cost of one call, so start-up cancels out. Times are
those of runs in turns.
"""

import re
import subprocess
import tempfile
import time
from pathlib import Path

from common import KERNELS, Benchmark, LazyProject, Row, in_turns, main, missing_tools, number, ratio, spread

CALLS = (1_000, 101_000)
BLOB = '#include "api.hpp"\ntemplate <> float kernel<64>(const Args& args) { return args.x * 2; }\n'
DISPATCH = '#include "api.hpp"\nextern "C" float run(float x) { return kernel<64>(Args{x}) + 1; }\n'
# A kernel library that compiles its variants itself does this: it has a table by name, which grows
# as variants are called.
MAP_DISPATCH = """
#include "api.hpp"
#include <mutex>
#include <string>
#include <unordered_map>
struct Variant {
    std::once_flag once;
    float (*function)(const Args&) = nullptr;
};
static std::mutex g_mutex;
static std::unordered_map<std::string, Variant> g_variants;
static Variant& find(const std::string& name) {
    Variant* found = nullptr;
    {
        const std::lock_guard<std::mutex> guard(g_mutex);
        found = &g_variants[name];
    }
    std::call_once(found->once, [found] { found->function = &kernel<64>; });
    return *found;
}
extern "C" float run(float x) { return find("kernel_fwd_d64").function(Args{x}) + 1; }
"""
CALLER = """
#include <cstdio>
#include <cstdlib>
#include <ctime>
extern "C" float run(float);
int main(int, char** argv) {
    float sum = run(1);
    const long calls = std::atol(argv[1]);
    timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = calls; i > 0; --i) sum += run(1);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    const double spent = (ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec);
    std::printf("%g %g\\n", spent / calls, sum);
}
"""
BUILD = """
set -e
c++ -O2 -fPIC -I. -c $DISPATCH -o $OUT/dispatch.o
c++ -O2 -fPIC -I. -c blob/k64.cpp -o $OUT/k64.o
c++ -shared -o $OUT/libk.so $OUT/dispatch.o $OUT/k64.o
"""
KINDS = {"ahead": "dispatch.cpp", "lazy": "dispatch.cpp", "map": "map.cpp"}
LABELS = {"ahead": "direct", "lazy": "through a stub", "map": "with a map"}


def prepare(project: LazyProject) -> None:
    """Build the libraries and a program for each; fill the cache."""
    project.write({"api.hpp": KERNELS, "dispatch.cpp": DISPATCH, "map.cpp": MAP_DISPATCH, "blob/k64.cpp": BLOB})
    project.write({"caller.cpp": CALLER, "build.sh": BUILD})
    for kind, source in KINDS.items():
        out = project.work / kind
        out.mkdir()
        env = {"DISPATCH": source, "OUT": str(out)}
        if kind == "lazy":
            project.build("sh", "build.sh", env=env)
        else:
            subprocess.run(["sh", "build.sh"], cwd=project.work, env={**project.env, **env}, check=True)
        link = ["c++", "-O1", "caller.cpp", "-o", str(out / "caller"), f"-L{out}", "-lk", f"-Wl,-rpath,{out}"]
        subprocess.run(link, cwd=project.work, check=True)
        subprocess.run([str(out / "caller"), "1"], env=project.env, check=True, capture_output=True)
    time.sleep(3)  # until the entry has settled, each process reads all of it
    subprocess.run([str(project.work / "lazy" / "caller"), "1"], env=project.env, check=True, capture_output=True)


def measure(quick: bool) -> list[Row]:
    """Measure instructions and time."""
    with tempfile.TemporaryDirectory(prefix="lazyck-warm-") as name:
        project = LazyProject(Path(name))
        prepare(project)

        def instructions(kind: str, calls: int) -> int:
            words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"{kind}/caller", str(calls)]
            done = subprocess.run(words, cwd=project.work, env=project.env, capture_output=True, text=True, check=True)
            found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
            assert found, done.stderr
            return int(found[1])

        cost = {}
        for kind in KINDS:
            few, many = (instructions(kind, n) for n in CALLS)
            cost[kind] = (many - few) / (CALLS[1] - CALLS[0])

        def nanoseconds(kind: str) -> float:
            argv = [f"{kind}/caller", "2000000" if quick else "20000000"]
            done = subprocess.run(argv, cwd=project.work, env=project.env, capture_output=True, text=True, check=True)
            return float(done.stdout.split()[0])

        taken = in_turns({k: lambda kind=k: nanoseconds(kind) for k in KINDS}, 5 if quick else 21)  # type: ignore[misc]
    counts = "; ".join(f"{LABELS[kind]} {count:.2f}" for kind, count in cost.items())
    times = "; ".join(f"{LABELS[kind]} {spread(taken[kind], 1, ' ns')}" for kind in KINDS)
    return [
        Row(
            "warm-instructions",
            "extra instructions of a warm call through a stub",
            round(cost["lazy"] - cost["ahead"], 2),
            "",
            2,
            "a direct call",
            f"per call of the dispatcher: {counts}",
        ),
        Row(
            "warm-time",
            "time of a warm call through a stub",
            ratio(taken, "lazy", "ahead"),
            "×",
            1.05,
            "a direct call",
            times,
        ),
        Row(
            "warm-map",
            "time of a call through a dispatcher with a map and `call_once`",
            ratio(taken, "map", "lazy"),
            "×",
            6,
            "a warm call through a stub",
            f"{number(cost['map'])} instructions per call",
            is_floor=True,
        ),
    ]


BENCHMARK = Benchmark("warm_call", measure, missing_tools("valgrind", "c++"))

if __name__ == "__main__":
    main(BENCHMARK)
