"""Make the wheels of a release: the pure one, and for each machine one with the compiled runtime.

    python scripts/wheels.py OUT [--compiler CXX]... [--store DIR]

A machine's wheel serves those who have that machine, a C library no older than this system's, and a
compiler whose C++ library is no older than that of the wheel's --compiler (g++ and the cross
compilers that are installed, such as aarch64-linux-gnu-g++). So make it on the oldest system that
it is to serve. Where the wheel's objects do not fit, lazyck compiles the runtime as with the pure
wheel, which all others get.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lazyck.machines import MACHINES
from lazyck.runtime import shipped
from lazyck.runtime.builder import OBJECTS
from lazyck.toolchains.base import machine_for
from lazyck.units.program import objects_for_wheels

REPOSITORY = Path(__file__).resolve().parent.parent
COMPILERS = ("g++", *(f"{name}-linux-gnu-g++" for name in MACHINES if name != platform.machine()))


def run(*words: str | Path) -> None:
    """Run a command that must succeed. Raises `SystemExit`."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nends with status {done.returncode}\n{done.stdout}{done.stderr}")


def pure_wheel(out: Path) -> Path:
    """Make the wheel for all machines from a copy of the sources, since setuptools picks up stray
    files in the original directory."""
    with tempfile.TemporaryDirectory(prefix="lazyck-wheel-") as work:
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(REPOSITORY / name, work)
        shutil.copytree(REPOSITORY / "lazyck", Path(work, "lazyck"), ignore=shutil.ignore_patterns("__pycache__"))
        made = Path(work, "made")
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, work)
        (wheel,) = made.iterdir()
        return Path(shutil.copy(wheel, out))


def wheel_of_machine(pure: Path, out: Path, compiler: Sequence[str], store: Path) -> Path:
    """Make the wheel of the machine that `compiler` makes code for."""
    objects = objects_for_wheels(store / OBJECTS, compiler)
    with tempfile.TemporaryDirectory(prefix="lazyck-wheel-") as work:
        run(sys.executable, "-m", "wheel", "unpack", "-d", work, pure)
        tree = next(Path(work).iterdir())
        abi = shipped.write(tree / shipped.DIRECTORY.relative_to(REPOSITORY), compiler, objects)
        major, minor = abi.least[1:]
        about = next(tree.glob("*.dist-info")) / "WHEEL"
        tag = f"py3-none-manylinux_{major}_{minor}_{machine_for(compiler)}"
        text = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", about.read_text())
        about.write_text(re.sub(r"(?m)^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", text))
        run(sys.executable, "-m", "wheel", "pack", "-d", out, tree)
    return out / pure.name.replace("py3-none-any", tag)


def main() -> None:
    """Make the wheels, and print their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory for the wheels")
    parser.add_argument("--compiler", action="append", help=f"a C++ compiler [{', '.join(COMPILERS)}]; repeatable")
    parser.add_argument("--store", type=Path, help="where objects are kept; ~/.cache/lazyck-tools has a user's")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pure = pure_wheel(options.out)
    print(pure)
    with tempfile.TemporaryDirectory(prefix="lazyck-objects-") as work:
        for compiler in options.compiler or filter(shutil.which, COMPILERS):
            store = os.path.abspath(options.store or work)
            print(wheel_of_machine(pure, options.out, [compiler], Path(store)))


if __name__ == "__main__":
    main()
