"""Build awkward-cpp, the kernels of Awkward Array, lazily with its own `pip wheel`, and run its
tests.

    python examples/awkward/awkward_cpp.py --work DIR [--row FILE]

`pip wheel` runs scikit-build-core, CMake and ninja. The 146 kernel files, each one function with a
few instantiations, become blobs. No dispatcher calls them: Python does, by ctypes. The same wheel
is built ahead of time too; both must pass the same tests.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from sources import Source, check, cpu_of_children, fetch, lazyck, make_venv, summaries  # noqa: E402

SOURCE = Source(
    "awkward-cpp==50", "awkward_cpp-50.tar.gz", "264b6fb4e82acc1057b5b2ff0d33fabc361032528e233815cd2224c6dbc96d8e"
)
REQUIREMENTS = ["scikit-build-core>=0.11", "pybind11>=3", "cmake", "ninja", "numpy", "pytest", "pytest-xdist"]
LIBRARY = "libawkward-cpu-kernels"
BLOBS = "*/src/cpu-kernels/*.cpp"
CALL = """
import ctypes, time
from awkward_cpp.cpu_kernels import lib
out, data, parents = (ctypes.c_int64 * 2)(), (ctypes.c_int64 * 6)(*range(6)), (ctypes.c_int64 * 6)(0, 0, 0, 1, 1, 1)
begun = time.perf_counter()
lib.awkward_reduce_sum_int64_int64_64(out, data, parents, 6, 2)
print(f"{time.perf_counter() - begun:.4f}", list(out))
"""


@dataclass(frozen=True)
class Built:
    """Holds a wheel, unpacked into `site`, and the cost of making it."""

    site: Path
    wall: float
    cpu: float


def wheel_command(venv: Path, into: Path) -> list[str]:
    """Return the command by which the project builds itself."""
    return [str(venv / "bin" / "pip"), "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(into), "."]


def build(work: Path, venv: Path, unpacked: Path, *, lazily: bool) -> Built:
    """Build the wheel in a copy of the sources and unpack it."""
    place = work / ("lazy" if lazily else "ahead")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(unpacked, place / "source")
    env = {**os.environ, "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    begun, cpu = time.monotonic(), cpu_of_children()
    command = wheel_command(venv, place / "wheel")
    if lazily:
        options = ["--toolchain", "host", "--blobs", BLOBS, "--tmp-dir", str(place / "tmp")]
        lazyck("build", "full", *options, "--", *command, cwd=place / "source", env=env)
    else:
        subprocess.run(command, cwd=place / "source", env=env, check=True)
    built = Built(place / "site", time.monotonic() - begun, cpu_of_children() - cpu)
    if lazily:
        check(place / "tmp", 200, cwd=work, env=env)
    (wheel,) = (place / "wheel").glob("awkward_cpp-*.whl")
    install = [str(venv / "bin" / "pip"), "install", "-q", "--no-deps", "-t", str(built.site), str(wheel)]
    subprocess.run(install, check=True)
    return built


def environment(built: Built, cache: Path) -> dict[str, str]:
    """Return the environment in which the wheel's package is found."""
    return {**os.environ, "PYTHONPATH": str(built.site), "LAZYCK_CACHE_DIR": str(cache)}


def call(venv: Path, built: Built, cache: Path) -> tuple[float, str]:
    """Return the seconds of one call of one kernel in a process of its own, and its result."""
    argv = [str(venv / "bin" / "python"), "-c", CALL]
    done = subprocess.run(argv, env=environment(built, cache), capture_output=True, text=True, check=True)
    seconds, _, result = done.stdout.strip().partition(" ")
    return float(seconds), result


def run_tests(venv: Path, built: Built, cache: Path, source: Path) -> str:
    """Run the project's kernel tests; return their closing line. End the program if one fails."""
    argv = [
        str(venv / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "tests-cpu-kernels",
        "tests-cpu-kernels-explicit",
    ]
    done = subprocess.run(argv, cwd=source, env=environment(built, cache), capture_output=True, text=True)
    closing = done.stdout.strip().splitlines()[-1]
    if done.returncode != 0:
        sys.exit(f"the project's tests fail: {closing}\n{done.stdout[-3000:]}")
    return re.sub(r" in .*", "", closing)


def main() -> None:
    """Fetch, build both ways, test both, tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (some 100 MB)")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    options = parser.parse_args()
    work = options.work.resolve()
    unpacked = fetch(SOURCE, work)
    venv = make_venv(work / "venv", REQUIREMENTS)
    cache = work / "cache"
    shutil.rmtree(cache, ignore_errors=True)

    lazy = build(work, venv, unpacked, lazily=True)
    summary = summaries(work / "lazy" / "tmp")[LIBRARY]
    first, result = call(venv, lazy, cache)
    hit, again = call(venv, lazy, cache)
    if not result == again == "[3, 12]":
        sys.exit(f"awkward_reduce_sum gives {result}, then {again}, expected [3, 12]")
    print(f"first call {first:.2f} s, second process {hit * 1000:.1f} ms")
    lazy_tests = run_tests(venv, lazy, cache, work / "lazy" / "source")
    compiled = len(list((cache / "v1" / LIBRARY).glob("*/*.so")))
    print(f"lazy: {lazy_tests}; {compiled} of {summary['lazy']} blobs compiled")

    ahead = build(work, venv, unpacked, lazily=False)
    ahead_tests = run_tests(venv, ahead, cache, work / "ahead" / "source")
    print(f"ahead of time: {ahead_tests}")
    for kind, built in (("lazily", lazy), ("ahead of time", ahead)):
        print(f"wheel {kind}: {built.wall:.0f} s ({built.cpu:.0f} s CPU)")
    if lazy_tests != ahead_tests:
        sys.exit("the two builds do not pass the same tests")
    if options.row:
        row = {
            "project": "awkward-cpp 50",
            "build": "pip wheel: scikit-build-core, CMake, ninja",
            "toolchain": "host (g++)",
            "files": summary["deferred"],
            "symbols": summary["symbols"],
            "lazy": summary["lazy"],
            "eager": len(summary["eager"]),  # type: ignore[arg-type]
            "lazy_seconds": f"{lazy.wall:.0f} ({lazy.cpu:.0f} CPU)",
            "ahead": f"{ahead.wall:.0f} s ({ahead.cpu:.0f} s CPU), measured",
            "first_call": f"{first:.2f} s",
            "hit": f"{hit * 1000:.1f} ms",
            "command": "`python examples/awkward/awkward_cpp.py --work DIR`",
        }
        options.row.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
