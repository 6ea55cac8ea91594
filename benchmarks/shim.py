"""Compare an intercepted blob with starting /bin/true, without headers and with a large depfile.

python benchmarks/shim.py [--quick]

Both run in turns in one run, and the medians' ratio is printed. The depfile names several hundred
headers.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Benchmark, Row, in_turns, main, ratio, spread

from lazyck.interceptor.setup import set_up

TARGET = 3.0
HEADERS = 400
LABELS = {
    "true": "`/bin/true`",
    "plain": "a blob without headers",
    "deep": f"a blob with {HEADERS} headers",
    "python": "a shim in Python",
    "ccache": "a ccache hit",
    "sccache": "an sccache hit",
    "bear": "added by Bear to `/bin/true`",
}


def seconds(argv: list[str], env: dict[str, str]) -> float:
    """Return the wall time of one start by posix_spawn, which adds as little of our own as
    possible."""
    begun = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(argv[0], argv, env), 0)
    spent = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{argv[0]} ended with status {status}")
    return spent


def bear_seconds(bear: str, tmp: Path, env: dict[str, str], calls: int) -> float:
    """Return the wall time that Bear adds to each start of a program: a build of `calls` starts and
    one of none are timed with Bear and without it."""
    shell = str(shutil.which("sh"))
    spent = {}
    for count in (0, calls):
        build = [shell, "-c", f"i=0; while [ $i -lt {count} ]; do /bin/true -c x.c; i=$((i+1)); done"]
        wrapped = [bear, "--output", str(tmp / "bear.json"), "--", *build]
        spent[count] = statistics.median(seconds(wrapped, env) - seconds(build, env) for _ in range(5))
    return (spent[calls] - spent[0]) / calls


def write_headers(where: Path, count: int) -> list[str]:
    """Write `count` headers in forty directories; return the options that name these. The first
    header of a blob leads to all the others."""
    names = [f"d{i % 40}/include/h{i}.h" for i in range(count)]
    body = "// kernels\n" * 100
    for i, name in enumerate(names):
        nexts = "".join(f'#include "h{k}.h"\n' for k in (2 * i + 1, 2 * i + 2) if k < count)
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(f"#pragma once\n#include <vector>\n{nexts}{body}")
    return [f"-I{where}/d{i}/include" for i in range(40)]


# A shim written in Python has to do this much before it can look at its argv.
PYTHON_SHIM = """#!{python}
import argparse, json, pathlib, shlex, sys
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text(json.dumps(sys.argv))
"""


def measure(quick: bool) -> list[Row]:
    """Measure an intercepted blob without headers and with many, a shim in Python, hits of ccache
    and sccache, and Bear."""
    calls = 100 if quick else 1000
    with tempfile.TemporaryDirectory(prefix="lazyck-shim-") as name:
        tmp = Path(name)
        (tmp / "blob").mkdir()
        plain, deep = tmp / "blob" / "plain.cpp", tmp / "blob" / "deep.cpp"
        plain.write_text("int k() { return 1; }\n")
        deep.write_text(f'#include "h0.h"\n#include <vector>\n{plain.read_text()}')
        includes = write_headers(tmp, HEADERS)
        made = set_up(tmp / "lazyck", "host", ["*/blob/*"], os.environ, python=sys.executable, verbose=False)
        shim = str(next(p for p in Path(made.bin_dirs[0]).iterdir() if p.name in ("c++", "g++", "clang++")))
        python_shim = tmp / "shim.py"
        python_shim.write_text(PYTHON_SHIM.format(python=sys.executable))
        python_shim.chmod(0o755)
        words = ["-O3", "-DNDEBUG", *includes, "-MD", "-MF", str(tmp / "k.d"), "-o", str(tmp / "k.o"), "-c"]
        commands = {
            "true": ["/bin/true"],
            "plain": [shim, *words, str(plain)],
            "deep": [shim, *words, str(deep)],
            "python": [str(python_shim), *words, str(plain)],
        }
        env = {**made.env, "CCACHE_DIR": str(tmp / "ccache")}
        if ccache := shutil.which("ccache"):
            commands["ccache"] = [ccache, str(shutil.which("c++")), *words, str(plain)]
        if sccache := shutil.which("sccache"):
            commands["sccache"] = [sccache, str(shutil.which("c++")), *words, str(plain)]
            env |= {"SCCACHE_DIR": str(tmp / "sccache"), "SCCACHE_SERVER_PORT": "4297"}
            env.pop("SCCACHE_RECACHE", None)  # with it nothing is a hit
        for argv in commands.values():
            seconds(argv, env)  # the first call reads the headers, and fills ccache
        seconds(commands["deep"], env)
        listed = (tmp / "k.d").read_text().count(".h")
        ways = {what: lambda argv=argv: seconds(argv, env) for what, argv in commands.items()}
        ours = ("true", "plain", "deep")
        taken = in_turns({what: ways[what] for what in ours}, calls)
        # These run apart from the others, since they would fill the machine's caches with their own
        # data.
        taken |= in_turns({what: way for what, way in ways.items() if what not in ours}, calls // 10)
        if sccache:
            subprocess.run([sccache, "--stop-server"], env=env, check=True, capture_output=True)
        if bear := shutil.which("bear"):
            taken["bear"] = [bear_seconds(bear, tmp, env, calls // 10)]
    if listed != HEADERS:
        raise SystemExit(f"the depfile names {listed} headers, not {HEADERS}")
    times = "; ".join(f"{LABELS[what]} {spread(spent, 1e3, ' ms')}" for what, spent in taken.items())
    return [
        Row("intercept", "time of one intercepted blob", statistics.median(taken["plain"]) * 1e3, "ms", 2, "", times),
        Row(
            "intercept-true",
            "one intercepted blob, compared with `/bin/true`",
            ratio(taken, "plain", "true"),
            "×",
            TARGET,
            "starting `/bin/true`",
            "",
        ),
        Row(
            "intercept-deep",
            f"one intercepted blob with a depfile of {HEADERS} headers",
            ratio(taken, "deep", "true"),
            "×",
            TARGET,
            "starting `/bin/true`",
            "",
        ),
    ]


BENCHMARK = Benchmark("shim", measure)

if __name__ == "__main__":
    main(BENCHMARK)
