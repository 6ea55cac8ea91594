"""Compare a first call that compiles with the same commands from a shell, and a first call of a
build for three archs with nvcc for one.

    python benchmarks/compile.py [--quick]        (needs a C++ compiler; nvcc for the second)

The commands are those in the entry's log, run again in a directory of their own.
"""

import shlex
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from common import (
    NINJA,
    Benchmark,
    LazyProject,
    Row,
    bare_compile,
    in_turns,
    main,
    missing_tools,
    ninja_build,
    seconds,
    spread,
)

HEADER = "struct Args { float x; };\ntemplate <int N> float kernel(const Args& args);\n"
DISPATCH = '#include "api.hpp"\nextern "C" float run(float x) { return kernel<1>(Args{x}); }\n'
# A compiler takes about as long for this as for an ordinary file.
BLOB = """
#include "api.hpp"
#include <functional>
#include <map>
#include <string>
template <> float kernel<1>(const Args& args) {
    std::map<std::string, std::function<float(float)>> all;
    all["twice"] = [](float x) { return 2 * x; };
    return all.at("twice")(args.x);
}
"""
CUDA_BLOB = """
#include "api.hpp"
__global__ void work(float* out, float x) { out[threadIdx.x] = x * threadIdx.x; }
template <> float kernel<1>(const Args& args) {
    work<<<1, 32>>>(nullptr, args.x);
    return 2 * args.x;
}
"""
CALLER = """
#include <cstdio>
#include <ctime>
extern "C" float run(float);
int main() {
    timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    const float result = run(2);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    std::printf("%.9f\\n", (ended.tv_sec - begun.tv_sec) + 1e-9 * (ended.tv_nsec - begun.tv_nsec));
    return result != 4;
}
"""
CUDA_BUILD = """
set -e
nvcc {archs} -O3 -Xcompiler -fPIC -I. -c blob/k0.cu -o k0.o
c++ -fPIC -I. -c dispatch.cpp -o dispatch.o
nvcc -shared -o libk.so dispatch.o k0.o
"""
ARCHS = ("80", "90", "100")


def link_caller(project: LazyProject) -> None:
    words = ["c++", "-O1", "caller.cpp", "-o", "caller", "-L.", "-lk", f"-Wl,-rpath,{project.work}"]
    subprocess.run(words, cwd=project.work, check=True)


def first_call(project: LazyProject, **env: str) -> float:
    """Return the seconds of a process's first call, with an empty cache."""
    shutil.rmtree(project.cache, ignore_errors=True)
    argv = [str(project.work / "caller")]
    done = subprocess.run(argv, env={**project.env, **env}, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure(quick: bool) -> list[Row]:
    """Measure with the host's compiler, and with nvcc if it is installed."""
    rounds = 5 if quick else 21
    rows = []
    with tempfile.TemporaryDirectory(prefix="lazyck-compile-") as name:
        project = LazyProject(Path(name))
        project.write({"api.hpp": HEADER, "dispatch.cpp": DISPATCH, "blob/k0.cpp": BLOB, "caller.cpp": CALLER})
        project.write({"build.ninja": ninja_build(1, "-O2 -fPIC")})
        project.build(*NINJA)
        link_caller(project)
        first_call(project)
        (entry,), elsewhere = project.entries(), project.work / "bare"
        bare = bare_compile(entry, project.work, [elsewhere])
        taken = in_turns(
            {"lazy": lambda: first_call(project), "bare": lambda: seconds(["sh", "-c", bare], cwd=elsewhere)}, rounds
        )
        more = statistics.median(taken["lazy"]) - statistics.median(taken["bare"])
        rows.append(
            Row(
                "first-call-compile",
                "extra time of a first call that compiles, over its commands alone",
                more * 1e3,
                "ms",
                30,
                "the same commands from a shell",
                f"{spread(taken['lazy'], 1e3, ' ms')}; from a shell {spread(taken['bare'], 1e3, ' ms')}",
            )
        )
    if not missing_tools("nvcc")():
        rows.append(archs(3 if quick else 7))
    return rows


def archs(rounds: int) -> Row:
    """Measure a first call of a library built for three archs, against nvcc for one arch and for
    all."""
    with tempfile.TemporaryDirectory(prefix="lazyck-archs-") as name:
        project = LazyProject(Path(name))
        options = " ".join(f"-gencode arch=compute_{a},code=sm_{a}" for a in ARCHS)
        project.write({"api.hpp": HEADER, "dispatch.cpp": DISPATCH, "blob/k0.cu": CUDA_BLOB, "caller.cpp": CALLER})
        project.write({"build.sh": CUDA_BUILD.format(archs=options)})
        project.build("sh", "build.sh", toolchain="cuda")
        link_caller(project)
        one = shlex.split(options)[:2]
        compile_words = ["nvcc", "-O3", "-Xcompiler", "-fPIC", "-I.", "-c", "blob/k0.cu", "-o", "bare.o"]
        link_words = ["nvcc", "-shared", "-o", "bare.so", "bare.o"]

        def nvcc(words: list[str]) -> float:
            return seconds([*compile_words, *words], cwd=project.work) + seconds(link_words, cwd=project.work)

        taken = in_turns(
            {
                "lazy": lambda: first_call(project, LAZYCK_ARCHS=ARCHS[0]),
                "one": lambda: nvcc(one),
                "all": lambda: nvcc(shlex.split(options)),
            },
            rounds,
        )
    return Row(
        "first-call-archs",
        f"first call of a library that was built for {len(ARCHS)} archs",
        statistics.median(taken["lazy"]) / statistics.median(taken["one"]),
        "×",
        1.05,
        "compiling and linking with nvcc for one arch",
        f"{spread(taken['lazy'], 1, ' s')}; nvcc for one arch {spread(taken['one'], 1, ' s')}, for all archs "
        f"{spread(taken['all'], 1, ' s')}",
    )


BENCHMARK = Benchmark("compile", measure)

if __name__ == "__main__":
    main(BENCHMARK)
