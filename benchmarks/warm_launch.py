"""Count the instructions of launching a ready kernel in a library built by kernel, against the same
launch ahead of time.

    python benchmarks/warm_launch.py

Needs nvcc, valgrind and a C++ compiler, but no GPU. The CUDA runtime is NVIDIA's own, shared and
static, so all of the host's code is what runs on a machine with a GPU. Without a driver the runtime
ends each launch itself (status 35) before the driver's part, which is the larger one. So the figure
is what lazyck adds; its share of a launch on a GPU is measured by the stage `steady` of
scripts/gpu.
"""

import itertools
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from common import Benchmark, LazyProject, Row, main, missing_tools, number

from lazyck.toolchains import by_name

CALLS = (1_000, 11_000)
NO_DRIVER = 35  # cudaErrorInsufficientDriver
# A program launches in one of two ways. The stub of nvcc 13 (`<<<>>>`) asks for the kernel once and
# launches that. With nvcc 12 and HIP `<<<>>>` becomes a call of the runtime's own function.
LAUNCHES = {
    "stub": "scale<<<1, 32>>>(nullptr, 2);",
    "function": "cudaLaunchKernel((const void*)scale, 1, 32, arguments, 0, nullptr);",
}
TITLES = {"stub": "`<<<>>>`", "function": "`cudaLaunchKernel`"}
MOST = {"stub": 0, "function": 6}  # instructions of a wrapper
KERNEL = """
__global__ void scale(float* x, float factor) { x[threadIdx.x] *= factor; }
extern "C" int run(long launches) {
    int last = 0;
    float* x = nullptr;
    float factor = 2;
    [[maybe_unused]] void* arguments[] = {&x, &factor};
    for (long i = 0; i < launches; ++i) {
        LAUNCH
        last = cudaGetLastError();
    }
    return last;
}
"""
CALLER = """
#include <cstdio>
#include <cstdlib>
extern "C" int run(long);
int main(int, char** argv) {
    run(1);
    std::printf("%d\\n", run(std::atol(argv[1])));
}
"""
BUILD = """
set -e
nvcc -arch=sm_80 -O2 -Xcompiler -fPIC -c kernel.cu -o $OUT/kernel.o
nvcc -shared $OUT/kernel.o -o $OUT/libk.so -cudart $CUDART
"""


def env_of(project: LazyProject) -> dict[str, str]:
    """Return the environment of a caller: the toolkit's runtime, and the arch, since there is no
    device to ask."""
    return {**project.env, "LAZYCK_ARCHS": "80", "LD_LIBRARY_PATH": str(toolkit() / "lib64")}


def toolkit() -> Path:
    """Return the directory of this machine's CUDA toolkit."""
    found = by_name("cuda").find(dict(os.environ))
    assert found is not None
    return Path(found.home)


def prepare(project: LazyProject, cudart: str, launch: str) -> None:
    """Build the library both ways and a program for each; fill the cache."""
    project.write({"kernel.cu": KERNEL.replace("LAUNCH", launch), "caller.cpp": CALLER, "build.sh": BUILD})
    for way in ("lazy", "ahead"):
        out = project.work / way
        out.mkdir()
        env = {"OUT": str(out), "CUDART": cudart}
        if way == "lazy":
            words = ("--toolchain", "cuda", "--kernels", "*.cu", "--tmp-dir", project.work / "t")
            project.lazyck("build", "full", *words, "--", "sh", "build.sh", env=env)
        else:
            subprocess.run(["sh", "build.sh"], cwd=project.work, env={**project.env, **env}, check=True)
        link = ["c++", "caller.cpp", "-o", str(out / "caller"), f"-L{out}", "-lk", f"-Wl,-rpath,{out}"]
        link += [f"-Wl,-rpath-link,{toolkit() / 'lib64'}"]
        subprocess.run(link, cwd=project.work, check=True)
        subprocess.run([out / "caller", "1"], env=env_of(project), check=True, capture_output=True)
    assert project.entries(), "the kernel was not compiled by itself"
    time.sleep(3)  # until the entry has settled, each process reads all of it
    subprocess.run([project.work / "lazy" / "caller", "1"], env=env_of(project), check=True, capture_output=True)


def instructions(project: LazyProject, way: str) -> float:
    """Return how many instructions a launch takes."""
    taken = []
    for calls in CALLS:
        words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"{way}/caller", str(calls)]
        done = subprocess.run(words, cwd=project.work, env=env_of(project), capture_output=True, text=True, check=True)
        assert int(done.stdout) == NO_DRIVER, f"launches return {done.stdout}: this is for machines without a driver"
        found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
        assert found, done.stderr
        taken.append(int(found[1]))
    return (taken[1] - taken[0]) / (CALLS[1] - CALLS[0])


def measure(quick: bool) -> list[Row]:
    """Measure the instructions of a launch with each runtime."""
    rows = []
    for cudart, launch in itertools.product(("shared", "static"), LAUNCHES):
        with tempfile.TemporaryDirectory(prefix="lazyck-launch-") as name:
            project = LazyProject(Path(name))
            prepare(project, cudart, LAUNCHES[launch])
            lazy, ahead = (instructions(project, way) for way in ("lazy", "ahead"))
        rows.append(
            Row(
                f"warm-launch-{launch}-{cudart}",
                f"extra instructions of launching a ready kernel by {TITLES[launch]}, with the {cudart} CUDA runtime",
                round(lazy - ahead, 2),
                "",
                MOST[launch],
                "the same launch in an ahead-of-time build",
                f"{number(lazy)} / {number(ahead)} = {lazy / ahead:.3f}, counting only the host code and the CUDA "
                "runtime, without the driver",
            )
        )
    return rows


BENCHMARK = Benchmark("warm_launch", measure, missing_tools("nvcc", "valgrind", "c++"))

if __name__ == "__main__":
    main(BENCHMARK)
