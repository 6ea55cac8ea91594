"""Compare processes that all call one uncached blob at once with one process alone.

    python benchmarks/many_processes.py [--quick]        (needs a C++ compiler)

Both take turns; the ratio is that of the medians. The blob instantiates as many templates as take
the compiler about four seconds. Each round begins with an empty cache. It ends the program with
status 1 unless every result is right and the compiler was started exactly twice: for the compile
and for the link.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import REPOSITORY, Benchmark, Row, bare_compile, in_turns, main, ratio, spread

TARGET = 1.2
HEADER = "template <int D> int kernel(int x);\n"
DISPATCH = '#include "api.hpp"\nextern "C" int run(int x) { return kernel<64>(x) + 1; }\n'
# Each type instantiates the containers again.
BLOB = """
#include "api.hpp"
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
template <int N> struct Tile {{ int at[N % 7 + 1]; bool operator<(const Tile& o) const {{ return at[0] < o.at[0]; }} }};
template <int N> int work(int x) {{
    std::map<Tile<N>, std::vector<Tile<N>>> all;
    std::map<std::string, std::function<int(Tile<N>)>> calls;
    for (int i = 0; i < x; ++i) all[Tile<N>{{{{i}}}}].push_back(Tile<N>{{{{x}}}});
    calls["size"] = [&](Tile<N> t) {{ return static_cast<int>(all[t].size()); }};
    for (auto& row : all) std::sort(row.second.begin(), row.second.end());
    return calls["size"](Tile<N>{{{{0}}}}) + work<N - 1>(x);
}}
template <> int work<0>(int x) {{ return x; }}
template <> int kernel<64>(int x) {{ return work<{depth}>(x); }}
"""
CALLER = """
#include <cstdio>
#include <ctime>
extern "C" int run(int);
int main() {
    const int result = run(1);
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    std::printf("%d %ld.%09ld\\n", result, static_cast<long>(t.tv_sec), t.tv_nsec);
}
"""
BUILD = """
set -e
c++ -O2 -fPIC -I. -c dispatch.cpp -o dispatch.o
c++ -O2 -fPIC -I. -c blob/k64.cpp -o k64.o
c++ -shared -o libk.so dispatch.o k64.o
"""


class Bench:
    """Holds a lazy library of one blob, a program that calls it, and a compiler that records its
    starts."""

    def __init__(self, work: Path, seconds: float) -> None:
        self.work = work
        self.starts = work / "starts"
        self.cache = work / "cache"
        (work / "blob").mkdir()
        texts = {"api.hpp": HEADER, "dispatch.cpp": DISPATCH, "caller.cpp": CALLER, "build.sh": BUILD}
        for file, text in texts.items():
            (work / file).write_text(text)
        self.depth = self.write_blob(seconds)
        (work / "bin").mkdir()
        compiler = work / "bin/c++"
        real = shutil.which("c++") or sys.exit("a C++ compiler is missing; as root: apt-get install g++")
        compiler.write_text(f'#!/bin/sh\necho "$$" >> {shlex.quote(str(self.starts))}\nexec {shlex.quote(real)} "$@"\n')
        compiler.chmod(0o755)
        path = f"{work / 'bin'}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "LAZYCK_CACHE_DIR": str(self.cache), "PYTHONPATH": str(REPOSITORY)}
        lazyck = [sys.executable, "-m", "lazyck", "build", "full", "--toolchain", "host", "--tmp-dir", str(work / "t")]
        subprocess.run([*lazyck, "--", "sh", "build.sh"], cwd=work, env=self.env, check=True, capture_output=True)
        self.program = work / "caller"
        link = [real, "-O1", "caller.cpp", "-o", str(self.program), "-L.", "-lk", f"-Wl,-rpath,{work}"]
        subprocess.run(link, cwd=work, check=True)

    def write_blob(self, seconds: float) -> int:
        """Write the blob with a depth that takes the compiler about `seconds`; return the depth."""
        blob = self.work / "blob/k64.cpp"
        depths, spent = (4, 24), []
        for depth in depths:
            blob.write_text(BLOB.format(depth=depth))
            begun = time.perf_counter()
            argv = ["c++", "-O2", "-fPIC", "-I.", "-c", str(blob), "-o", "probe.o"]
            subprocess.run(argv, cwd=self.work, check=True)
            spent.append(time.perf_counter() - begun)
        each = (spent[1] - spent[0]) / (depths[1] - depths[0])
        depth = max(depths[0], round(depths[0] + (seconds - spent[0]) / each))
        blob.write_text(BLOB.format(depth=depth))
        return depth

    def round(self, processes: int) -> tuple[float, float]:
        """Return the wall time until the last of `processes` ended, and the time from the entry's
        last change to the last result."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.starts.unlink(missing_ok=True)
        begun = time.perf_counter()
        running = [
            subprocess.Popen([str(self.program)], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for _ in range(processes)
        ]
        answers = [p.communicate()[0].split() for p in running]
        spent = time.perf_counter() - begun
        starts = len(self.starts.read_text().splitlines())
        entries = list(self.cache.glob("v1/*/*/*.so"))
        expected = str(2 + self.depth).encode()
        if [a[:1] for a in answers] != [[expected]] * processes or starts != 2 or len(entries) != 1:
            sys.exit(f"{processes} processes: results {answers}, {starts} compiler starts, {len(entries)} entries")
        return spent, max(float(a[1]) for a in answers) - entries[0].stat().st_ctime_ns / 1e9

    def each(self, processes: int) -> float:
        """Return the wall time of as many compiles of the blob side by side: without a lock, all
        processes would compile."""
        entry = next(self.cache.glob("v1/*/*/*.so"))
        here = Path(tempfile.mkdtemp(dir=self.work))
        directories = [here / str(i) for i in range(processes)]
        line = bare_compile(entry, self.work, directories)
        begun = time.perf_counter()
        running = [subprocess.Popen(["sh", "-c", line], cwd=d, env=self.env) for d in directories]
        if any(p.wait() for p in running):
            sys.exit(f"a bare compile failed: {line}")
        return time.perf_counter() - begun


def measure(quick: bool) -> list[Row]:
    """Measure the wall time of eight processes."""
    count = 8
    with tempfile.TemporaryDirectory(prefix="lazyck-many-") as name:
        bench = Bench(Path(name), 1.5 if quick else 4)
        bench.round(1)  # brings the compiler's own files into memory
        late = []

        def wall(processes: int) -> float:
            spent, after = bench.round(processes)
            if processes > 1:
                late.append(after)
            return spent

        taken = in_turns({"many": lambda: wall(count), "one": lambda: wall(1)}, 3 if quick else 7)
        alone = bench.each(count)
    return [
        Row(
            "many",
            f"wall time of {count} processes that call one uncached blob at the same time",
            ratio(taken, "many", "one"),
            "×",
            TARGET,
            "one process",
            f"{spread(taken['many'], 1, ' s')}; one process {spread(taken['one'], 1, ' s')}. The blob is compiled once "
            f"each time; {count} compiles side by side take {alone:.1f} s. The last process has its result "
            f"{spread(late, 1e3, ' ms')} after the entry was published",
        )
    ]


BENCHMARK = Benchmark("many_processes", measure)

if __name__ == "__main__":
    main(BENCHMARK)
