"""Measure a first call whose entry is cached, against bare dlopen and dlsym of the entry's file.

    python benchmarks/cache_hit.py [--quick]

Needs a C++ compiler, and strace and valgrind for the exact figures.
The ratio is that of the medians of runs in turns. There are entries of three sizes, and each call
has a process of its own. "first" is the first lazy call of a process. "later" is the first call of
a blob after another blob's. Both find the note (`.seen`) that says that the entry was found whole
before, as every process but the first does. "unread" is the first call of the process that reads
the whole entry and writes that note.

Each is compared with dlopen and dlsym, first and later, in the same program. This program links the
lazy library, so what the entry needs is loaded already, and the loader's own work (mapping,
relocation, page faults) is in both. System calls and instructions are those of a run minus those of
a run without the measured call.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import REPOSITORY, Benchmark, Row, in_turns, main, number, ratio, spread

TARGET = 1.5
WHY_LATER = (
    "lazyck checks that the file is the one that it verified, and that nobody else owns it. This takes system calls "
    "that bare `dlopen` does not make: lazyck opens and inspects the directory, the file and its note. The loader is "
    "also given a longer path."
)
WHY_FIRST = (
    "Once per process, lazyck looks up which file is mapped, checks the directories above the entry, reads the "
    "environment, maps a stack of its own, and has the loader introduce its unwinder. Some twenty page faults come on "
    "top: the pages of the runtime, and of the C++ library that it uses, are touched for the first time."
)
OTHER = 1  # the number of the blob that is called before a "later" one
SIZES = {16: "16 KB", 1024: "1 MB", 10240: "10 MB"}  # the labels by KB of code and data
SETTLED = 3.0  # seconds; a note is only written for an entry that has not been touched for two
# Each measured way with its base. The words of a name tell the program what to do.
WAYS = {"first": "bare first", "later": "bare later", "unread": "bare first"}
RUNS = (*WAYS, *dict.fromkeys(WAYS.values()))
HEADER = "struct Args { float x; };\ntemplate <int KB> float kernel(const Args& args);\n"
# One half of a blob is code and the other data, in a pattern that no file system stores as a hole.
BLOB = """
#include "api.hpp"
asm(".pushsection .text\\n.fill {words}, 8, 0x9e3779b97f4a7c15\\n.popsection\\n"
    ".pushsection .rodata\\n.fill {words}, 8, 0x9e3779b97f4a7c15\\n.popsection");
template <> float kernel<{kb}>(const Args& args) {{ return args.x * {kb}; }}
"""
DISPATCH = """
#include "api.hpp"
extern "C" float run(int kb, float x) {{
    switch (kb) {{ {cases} }}
    return 0;
}}
"""
CALLER = """
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <string>
extern "C" float run(int, float);
static long now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static bool call(int kb) { return run(kb, 2) == 2 * kb + 1; }
static bool load(char** entry) { return dlsym(dlopen(entry[0], RTLD_NOW | RTLD_LOCAL), entry[1]) != nullptr; }
int main(int, char** argv) {  // WAY, WHETHER TO, KB, ENTRY, SYMBOL, OTHER KB, OTHER ENTRY, ITS SYMBOL
    const std::string way = argv[1];
    const bool is_bare = way.rfind("bare", 0) == 0, is_later = way.find("later") != way.npos;
    const bool is_called = argv[2][0] == '1';
    const int kb = std::atoi(argv[3]), other = std::atoi(argv[6]);
    bool is_right = !is_later || (is_bare ? load(argv + 7) : call(other));
    now();
    const long begun = now();
    if (is_called) is_right = (is_bare ? load(argv + 4) : call(kb)) && is_right;
    const long spent = now() - begun;
    std::printf("%ld\\n", spent);
    return is_right ? 0 : 1;
}
"""
BUILD = """
set -e
c++ -O2 -fPIC -I. -c dispatch.cpp -o dispatch.o
for kb in {sizes}; do c++ -O2 -fPIC -I. -c blob/k$kb.cpp -o k$kb.o; done
c++ -shared -o libk.so dispatch.o {objects}
"""


class Bench:
    """Holds a lazy library whose blobs are all in the cache, and a program that calls or loads one
    of them."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.program = work / "caller"
        blobs = (OTHER, *SIZES)
        (work / "blob").mkdir()
        for kb in blobs:
            (work / "blob" / f"k{kb}.cpp").write_text(BLOB.format(kb=kb, words=kb * 1024 // 16))
        cases = " ".join(f"case {kb}: return kernel<{kb}>(Args{{x}}) + 1;" for kb in blobs)
        build = BUILD.format(sizes=" ".join(map(str, blobs)), objects=" ".join(f"k{kb}.o" for kb in blobs))
        texts = {"api.hpp": HEADER, "dispatch.cpp": DISPATCH.format(cases=cases), "build.sh": build}
        for file, text in {**texts, "caller.cpp": CALLER}.items():
            (work / file).write_text(text)
        self.env = {**os.environ, "LAZYCK_CACHE_DIR": str(work / "cache"), "PYTHONPATH": str(REPOSITORY)}
        lazyck = [sys.executable, "-m", "lazyck", "build", "full", "--toolchain", "host", "--tmp-dir", str(work / "t")]
        self.silently([*lazyck, "--", "sh", "build.sh"])
        link = ["c++", "-O1", "caller.cpp", "-o", str(self.program), "-L.", "-lk", "-ldl", f"-Wl,-rpath,{work}"]
        self.silently(link)
        self.entries = dict.fromkeys(blobs, Path())
        for kb in blobs:
            self.silently(self.words("fill", kb, True))
            self.entries[kb] = next((work / "cache").glob(f"v1/*/*/k{kb}-*.so"))
        time.sleep(SETTLED)
        self.env["LAZYCK_JIT"] = "off"  # from here on a cache miss is an error
        for kb in blobs:
            self.silently(self.words("fill", kb, True))
            assert self.note(kb).exists()

    def silently(self, words: list[str]) -> None:
        subprocess.run(words, cwd=self.work, env=self.env, check=True, capture_output=True)

    def note(self, kb: int) -> Path:
        """Return the path of the note that says that the entry was found whole."""
        return self.entries[kb].with_name(self.entries[kb].name + ".seen")

    def words(self, way: str, kb: int, is_called: bool) -> list[str]:
        both = [[str(n), str(self.entries[n]), f"_Z6kernelILi{n}EEfRK4Args"] for n in (kb, OTHER)]
        return [str(self.program), way, str(int(is_called)), *both[0], *both[1]]

    def run(self, way: str, kb: int, is_called: bool = True, below: tuple[str, ...] = ()) -> tuple[str, str]:
        """Return the output and error output of one process, started by the command `below` if
        there is one."""
        if way == "unread":
            self.note(kb).unlink(missing_ok=True)
        words = [*below, *self.words(way, kb, is_called)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=True)
        if way == "unread" and not is_called:
            self.silently(self.words("first", kb, True))
        assert self.note(kb).exists()
        return done.stdout, done.stderr

    def instructions(self, way: str, kb: int, is_called: bool) -> int:
        """Return the instructions of the process in user space, as callgrind counts them."""
        valgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        found = re.search(r"Collected\s*:\s*(\d+)", self.run(way, kb, is_called, valgrind)[1])
        assert found
        return int(found[1])

    def system_calls(self, way: str, kb: int, is_called: bool) -> int:
        """Return the number of system calls of the process. Exit if it starts another process."""
        log = self.work / "strace"
        self.run(way, kb, is_called, ("strace", "-f", "-qq", "-o", str(log)))
        names = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
        started = [name for name in names[1:] if re.fullmatch(r"execve(at)?|v?fork|clone3?", name)]
        if started:
            sys.exit(f"a cached call started a process: {started}")
        return len(names)


def table(title: str, figures: dict[int, dict[str, list[float]]]) -> str:
    """Return a table of the figures by size and way, with the ratios."""
    lines = [f"\n{title}\n", f"| entry | {' | '.join(RUNS)} | {' | '.join(f'{way} : bare' for way in WAYS)} |"]
    lines.append("|---" * (1 + len(RUNS) + len(WAYS)) + "|")
    for kb, row in figures.items():
        middle = {way: statistics.median(values) for way, values in row.items()}
        cells = [spread(row[way]) for way in RUNS]
        cells += [f"{middle[way] / middle[base]:.2f}" for way, base in WAYS.items()]
        lines.append(f"| {SIZES[kb]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def measure(quick: bool) -> list[Row]:
    """Measure a blob's first call after another's, and a process's first lazy call, for an entry of
    1 MB. Print the figures of the other sizes."""
    calls = 20 if quick else 100
    with tempfile.TemporaryDirectory(prefix="lazyck-hit-") as name:
        bench = Bench(Path(name))

        def figures(count: Callable[[str, int, bool], int]) -> dict[int, dict[str, list[float]]]:
            return {kb: {way: [count(way, kb, True) - count(way, kb, False)] for way in RUNS} for kb in SIZES}

        ways = {(kb, way): lambda kb=kb, way=way: int(bench.run(way, kb)[0]) / 1000 for kb in SIZES for way in RUNS}
        taken = in_turns({f"{kb} {way}": run for (kb, way), run in ways.items()}, calls)
        spent = {kb: {way: taken[f"{kb} {way}"] for way in RUNS} for kb in SIZES}
        print(table(f"us, medians of {calls} processes (quartiles)", spent))
        counts = {}
        if shutil.which("strace"):
            counts["system calls"] = figures(bench.system_calls)
            print(table("system calls; no process was started", counts["system calls"]))
        if shutil.which("valgrind"):
            counts["instructions"] = figures(bench.instructions)
            print(table("instructions in user space", counts["instructions"]))
    megabyte = spent[1024]

    def details(way: str) -> str:
        base = WAYS[way]
        more = [f"{number(of[1024][way][0])} / {number(of[1024][base][0])} {what}" for what, of in counts.items()]
        times = f"{spread(megabyte[way], 1, ' µs')} / {spread(megabyte[base], 1, ' µs')}"
        return "; ".join([times, *more])

    return [
        Row(
            "hit-later",
            "first call of a blob whose entry (1 MB) is cached",
            ratio(megabyte, "later", "bare later"),
            "×",
            TARGET,
            "`dlopen` and `dlsym` of the entry",
            details("later"),
            why=WHY_LATER,
        ),
        Row(
            "hit-first",
            "first lazy call of a process, when the blob's entry (1 MB) is cached",
            ratio(megabyte, "first", "bare first"),
            "×",
            TARGET,
            "`dlopen` and `dlsym` of the entry",
            details("first"),
            why=WHY_FIRST,
        ),
    ]


BENCHMARK = Benchmark("cache_hit", measure)

if __name__ == "__main__":
    main(BENCHMARK)
