"""Instructions of a warm call through a stub, against a direct call into the same code built ahead of time.

    python benchmarks/warm_call.py        (needs valgrind and a C++ compiler)

Two libraries of the same sources, one lazy, one not; a program calls each a given number of times under callgrind.
The difference between two numbers of calls, divided by that difference, is what one call costs: start-up cancels out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CALLS = (1_000, 101_000)
BLOB = '#include "api.hpp"\ntemplate <> float kernel<64>(const Args& args) { return args.x * 2; }\n'
HEADER = "struct Args { float x; };\ntemplate <int D> float kernel(const Args& args);\n"
DISPATCH = '#include "api.hpp"\nextern "C" float run(float x) { return kernel<64>(Args{x}) + 1; }\n'
CALLER = """
#include <cstdio>
#include <cstdlib>
extern "C" float run(float);
int main(int, char** argv) {
    float sum = 0;
    for (long i = std::atol(argv[1]); i > 0; --i) sum += run(1);
    std::printf("%g\\n", sum);
}
"""
BUILD = """
set -e
c++ -O2 -fPIC -I. -c dispatch.cpp -o $OUT/dispatch.o
c++ -O2 -fPIC -I. -c blob/k64.cpp -o $OUT/k64.o
c++ -shared -o $OUT/libk.so $OUT/dispatch.o $OUT/k64.o
"""


def instructions(program: Path, calls: int, work: Path, env: dict[str, str]) -> int:
    """Instructions that callgrind counts for one run."""
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={work / 'out'}", str(program), str(calls)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def main() -> None:
    if not shutil.which("valgrind"):
        sys.exit("valgrind is missing; as root: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="lazyck-warm-") as name:
        work = Path(name)
        (work / "blob").mkdir()
        for file, text in (("api.hpp", HEADER), ("dispatch.cpp", DISPATCH), ("blob/k64.cpp", BLOB)):
            (work / file).write_text(text)
        (work / "caller.cpp").write_text(CALLER)
        (work / "build.sh").write_text(BUILD)
        env = {**os.environ, "LAZYCK_CACHE_DIR": str(work / "cache"), "PYTHONPATH": str(REPOSITORY)}
        cost = {}
        for kind in ("ahead", "lazy"):
            out = work / kind
            out.mkdir()
            lazyck = [
                sys.executable,
                "-m",
                "lazyck",
                "build",
                "full",
                "--toolchain",
                "host",
                "--tmp-dir",
                str(work / "t"),
            ]
            argv = [*([*lazyck, "--"] if kind == "lazy" else []), "sh", "build.sh"]
            subprocess.run(argv, cwd=work, env={**env, "OUT": str(out)}, check=True, capture_output=True)
            link = ["c++", "-O1", "caller.cpp", "-o", str(out / "caller"), f"-L{out}", "-lk", f"-Wl,-rpath,{out}"]
            subprocess.run(link, cwd=work, check=True)
            subprocess.run([str(out / "caller"), "1"], env=env, check=True, capture_output=True)  # fills the cache
            few, many = (instructions(out / "caller", n, work, env) for n in CALLS)
            cost[kind] = (many - few) / (CALLS[1] - CALLS[0])
        print("| | instructions per call of the dispatcher |\n|---|---|")
        print(f"| ahead of time | {cost['ahead']:.2f} |\n| lazy, warm | {cost['lazy']:.2f} |")
        print(f"| difference | {cost['lazy'] - cost['ahead']:+.2f} |")


if __name__ == "__main__":
    main()
