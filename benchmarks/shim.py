"""What an intercepted blob costs, next to starting /bin/true: both in one run, in turns, the medians' ratio printed;
without headers, and with a depfile that names several hundred.

python benchmarks/shim.py [--calls N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lazyck.interceptor.setup import set_up

TARGET = 3.0
HEADERS = 400


def seconds(argv: list[str], env: dict[str, str]) -> float:
    """Wall time of one start, by posix_spawn: as little of our own as possible."""
    begun = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(argv[0], argv, env), 0)
    spent = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{argv[0]} ended with status {status}")
    return spent


def write_headers(where: Path, count: int) -> list[str]:
    """`count` headers in forty directories, of which a blob's first leads to all; the options that name them."""
    names = [f"d{i % 40}/include/h{i}.h" for i in range(count)]
    body = "// kernels\n" * 100
    for i, name in enumerate(names):
        nexts = "".join(f'#include "h{k}.h"\n' for k in (2 * i + 1, 2 * i + 2) if k < count)
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(f"#pragma once\n#include <vector>\n{nexts}{body}")
    return [f"-I{where}/d{i}/include" for i in range(40)]


def measure(calls: int) -> float:
    """Print the medians and return the larger ratio to /bin/true."""
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        (tmp / "blob").mkdir()
        plain, deep = tmp / "blob" / "plain.cpp", tmp / "blob" / "deep.cpp"
        plain.write_text("int k() { return 1; }\n")
        deep.write_text(f'#include "h0.h"\n#include <vector>\n{plain.read_text()}')
        includes = write_headers(tmp, HEADERS)
        made = set_up(tmp / "lazyck", "host", ["*/blob/*"], os.environ, python=sys.executable, verbose=False)
        shim = str(next(p for p in Path(made.bin_dirs[0]).iterdir() if p.name in ("c++", "g++", "clang++")))
        words = [shim, "-O3", "-DNDEBUG", *includes, "-MD", "-MF", str(tmp / "k.d"), "-o", str(tmp / "k.o"), "-c"]
        commands = {
            "/bin/true": ["/bin/true"],
            "intercepted blob": [*words, str(plain)],
            f"with {HEADERS} headers": [*words, str(deep)],
        }
        first = seconds(commands[f"with {HEADERS} headers"], made.env)  # reads the headers, the others do not
        times: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(calls):
            for what, argv in commands.items():
                times[what].append(seconds(argv, made.env))
        listed = (tmp / "k.d").read_text().count(".h")
    medians = {what: statistics.median(spent) for what, spent in times.items()}
    base = medians["/bin/true"]
    for what, spent in medians.items():
        print(f"{what:20}{spent * 1e6:8.0f} us{spent / base:8.2f}   (target: at most {TARGET:g})")
    print(f"{'first of a set-up':20}{first * 1e6:8.0f} us")
    if listed != HEADERS:
        raise SystemExit(f"the depfile names {listed} headers, not {HEADERS}")
    return max(medians.values()) / base


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=1000)
    sys.exit(0 if measure(parser.parse_args().calls) <= TARGET else 1)


if __name__ == "__main__":
    main()
