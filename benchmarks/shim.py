"""What an intercepted blob costs, next to starting /bin/true: both in one run, in turns, the medians' ratio printed.

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


def seconds(argv: list[str], env: dict[str, str]) -> float:
    """Wall time of one start, by posix_spawn: as little of our own as possible."""
    begun = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(argv[0], argv, env), 0)
    spent = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{argv[0]} ended with status {status}")
    return spent


def measure(calls: int) -> float:
    """Print the two medians and return their ratio."""
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        (tmp / "blob").mkdir()
        source = tmp / "blob" / "k.cpp"
        source.write_text("int k() { return 1; }\n")
        made = set_up(tmp / "lazyck", "host", ["*/blob/*"], os.environ, python=sys.executable, verbose=False)
        shim = str(next(p for p in Path(made.bin_dirs[0]).iterdir() if p.is_file()))
        includes = [f"-I/some/project/include/{i}" for i in range(40)]
        depend = ["-MD", "-MF", str(tmp / "k.d")]
        blob = [shim, "-O3", "-DNDEBUG", *includes, *depend, "-c", str(source), "-o", str(tmp / "k.o")]
        times: dict[str, list[float]] = {"true": [], "blob": []}
        for _ in range(calls):
            times["true"].append(seconds(["/bin/true"], made.env))
            times["blob"].append(seconds(blob, made.env))
        true, shimmed = (statistics.median(times[k]) for k in ("true", "blob"))
    print(f"/bin/true         {true * 1e6:8.0f} us")
    print(f"intercepted blob  {shimmed * 1e6:8.0f} us")
    print(f"ratio             {shimmed / true:8.2f}   (target: at most {TARGET:g})")
    return shimmed / true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=1000)
    sys.exit(0 if measure(parser.parse_args().calls) <= TARGET else 1)


if __name__ == "__main__":
    main()
