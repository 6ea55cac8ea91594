"""Let many processes with many threads call the blobs of one library in any order. Each blob must
be compiled once.

    python tests/support/stress.py [--processes N] [--threads N] [--rounds N]
        [--chaos SECONDS [--seed N]]

A round begins with an empty cache. With --chaos, threads sleep at random around the calls by which
they synchronize (chaos.c), and rounds go on for that time. If something is wrong, the script prints
what and exits with status 1.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.lazylib import LazyLibrary, build_lazy_library, run

BLOBS = 12
DECLARATIONS = "".join(f"int f{i}(int);\n" for i in range(BLOBS))
SWITCH = "".join(f"case {i}: return f{i}(x);\n" for i in range(BLOBS))
PROGRAM = r"""
#include "demo.h"
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>
int main(int, char** argv) {
    const int threads = std::atoi(argv[1]), blobs = std::atoi(argv[2]);
    std::atomic<int> wrong{0};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t)
        all.emplace_back([&, seed = std::random_device()()] {
            std::mt19937 any(seed);
            for (int n = 0; n < 200; ++n) {
                const int which = static_cast<int>(any() % static_cast<unsigned>(blobs));
                wrong += call(which, 5) != which + 5;
            }
        });
    for (std::thread& thread : all) thread.join();
    return wrong == 0 ? 0 : 1;
}
"""


def build(where: Path) -> LazyLibrary:
    """Build the library and the program that calls it."""
    lib = build_lazy_library(
        where, where / "objects",
        {f"f{i}": f'#include "demo.h"\nint f{i}(int x) {{ return x + {i}; }}\n' for i in range(BLOBS)},
        '#include "demo.h"\nint call(int which, int x) { switch (which) {\n' + SWITCH + "} return -1; }\n",
        header="#pragma once\nint call(int, int);\n" + DECLARATIONS,
        symbols={f"f{i}": (f"_Z{len(f'f{i}')}f{i}i",) for i in range(BLOBS)},
    )  # fmt: skip
    lib.program(PROGRAM, flags=["-O1"])
    return lib


def build_chaos(where: Path) -> Path:
    """Build the library that makes threads sleep (see chaos.c)."""
    out = where / "chaos.so"
    source = Path(__file__).with_name("chaos.c")
    run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", source, "-o", out, "-ldl", "-pthread"])
    return out


def chaos_env(chaos: Path, seed: int) -> dict[str, str]:
    """Return the environment variables for processes whose threads sleep at random."""
    return {"LD_PRELOAD": str(chaos), "CHAOS_SEED": str(seed)}


def one_round(lib: LazyLibrary, processes: int, threads: int, more: Mapping[str, str] | None = None) -> str:
    """Run a round. Return what went wrong, or an empty string."""
    shutil.rmtree(lib.cache, ignore_errors=True)
    lib.calls.unlink(missing_ok=True)
    argv = [str(lib.directory / "main"), str(threads), str(BLOBS)]
    env = {**os.environ, **lib.env, **(more or {})}
    running = [
        subprocess.Popen(argv, env={**env, "CHAOS_PROCESS": str(number)}, stderr=subprocess.DEVNULL)
        for number in range(processes)
    ]
    statuses = [p.wait(1800) for p in running]
    compiles = [lib.compiles(f"/f{i}") for i in range(BLOBS)]
    if any(statuses) or compiles != [1] * BLOBS:
        return f"statuses {sorted(set(statuses))}, compiles per blob {compiles}"
    return ""


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chaos", type=float, metavar="SECONDS", help="rounds with random sleeps, for so long")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the sleeps of the first round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "lib").mkdir()
        lib = build(Path(name) / "lib")
        chaos = build_chaos(Path(name)) if options.chaos else None
        start, number = time.monotonic(), 0
        while time.monotonic() - start < options.chaos if options.chaos else number < options.rounds:
            begun, number = time.monotonic(), number + 1
            env = chaos_env(chaos, options.seed + number - 1) if chaos else {}
            if chaos:
                print(f"seed {options.seed + number - 1}, ", end="")
            wrong = one_round(lib, options.processes, options.threads, env)
            print(f"round {number}: {wrong or 'each blob compiled once, all results right'}", end=", ")
            print(f"{time.monotonic() - begun:.1f} s", flush=True)
            if wrong:
                sys.exit(1)


if __name__ == "__main__":
    main()
