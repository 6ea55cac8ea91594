"""Builds the unit tests of the runtime, and the files that they read.

The tests and the runtime's sources are compiled as one, as the runtime's own object is, so that
tests reach what is in unnamed namespaces.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck.formats.c_header import render_header
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes, encode
from lazyck.runtime.builder import SOURCES, together
from support import HERE, REPOSITORY

TESTS = REPOSITORY / "tests" / "cpp"
# These need a lazy library around them. The generated assembler of one refers to them.
_LEFT_OUT = ("entrance", "library")
_FLAGS = ("-std=c++17", "-O0", "-pthread", "-Wall", "-Wextra", "-Werror")
_CASE = re.compile(r'^TEST_CASE\("([^"]*)"\)', re.MULTILINE)

_LIBRARY = r"""
#define HIDDEN __attribute__((visibility("hidden")))
extern "C" {
int first() { return 1; }
int second(int x) { return x + 2; }
HIDDEN int hidden() { return 3; }
int variable = 4;
static int chosen_one() { return 5; }
typedef int Function();
Function* choose() { return chosen_one; }
int chosen() __attribute__((ifunc("choose")));
extern int missing();
int uses() { return hidden() + missing(); }
}
"""
_STATE = "inline int state = 1;\nint* keep() { return &state; }\n"
_OBJECT = r"""
extern "C" int other();
extern "C" int mine() { return other(); }
static int local() { return 1; }
int (*keep)() = local;
"""


@dataclass(frozen=True)
class UnitBinary:
    """An executable with unit tests, and the directory of the files that they read."""

    program: Path
    data: Path

    def run(
        self, *words: str, env: dict[str, str] | None = None, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run it with these words. Raises `TimeoutExpired` after `seconds`."""
        # The tests set the variables that they are about.
        own = {name: value for name, value in os.environ.items() if not name.startswith(("LAZYCK_", "XDG_"))}
        full = {**own, "UNIT_DATA": str(self.data), **(env or {})}
        argv = [str(self.program), *words]
        return subprocess.run(argv, env=full, capture_output=True, text=True, errors="replace", timeout=seconds)

    def run_case(
        self, name: str, env: dict[str, str] | None = None, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run the one case of this name, as `run` does."""
        pattern = name.replace("\\", "\\\\").replace(",", "\\,")  # commas separate patterns
        return self.run(f"--test-case={pattern}", env=env, seconds=seconds)


def test_files() -> list[Path]:
    """Return the sources of unit tests."""
    return sorted(TESTS.glob("*_test.cpp"))


def cases() -> list[tuple[Path, str]]:
    """Return the file and the name of each test case, by its source text."""
    return [(path, name) for path in test_files() for name in _CASE.findall(path.read_text())]


def runtime_sources(src: Path) -> list[Path]:
    """Return the sources of the runtime that unit tests can be linked with."""
    return [p for p in sorted(src.rglob("*.cpp")) if p.parent.name not in _LEFT_OUT]


def make_data(directory: Path, compiler: str = HERE.cxx) -> None:
    """Make the files that the tests read."""
    directory.mkdir(exist_ok=True)
    made = {"library": _LIBRARY, "state": _STATE, "object": _OBJECT}
    for name, text in made.items():
        (directory / f"{name}.cpp").write_text(text)
    libraries = (
        ("library.cpp", "library.so", "gnu"),
        ("library.cpp", "sysv.so", "sysv"),
        ("state.cpp", "state.so", "gnu"),
        ("state.cpp", "state-sysv.so", "sysv"),
    )
    for source, name, style in libraries:
        flags = ("-O1", "-fPIC", "-shared", f"-Wl,--hash-style={style}", "-Wno-attributes")
        _compile(compiler, *flags, directory / source, "-o", directory / name)
    _compile(compiler, "-O1", "-c", directory / "object.cpp", "-o", directory / "object.o")
    (directory / "manifest").write_bytes(encode(manifest()))
    (directory / "empty-manifest").write_bytes(encode(Manifest("empty", "", "", "", (), (), ())))


def manifest() -> Manifest:
    """Return a manifest with a plain blob, one in parts, and device code of its own."""
    host = Recipe(
        "host",
        "g++-12",
        "/home/of",
        ("HOME_OF",),
        ("c++", "-c"),
        ("c++", "-shared"),
        (),
        (("CPATH", "/x"),),
    )
    device = Recipe(
        "cuda", "nvcc-12", "", (), ("nvcc",), ("nvcc", "-shared"), ("-arch=sm_90",), programs=("nvcc", "as"),
        headers="f" * 64,
    )  # fmt: skip
    # No CPU has features that another kind of machine wrote, or all that there may be.
    lesser = [
        replace(host, compile=("c++", f"-march={arch}"), cpu=cpu)
        for arch, cpu in (("other", "0f"), ("all", "f" * 112), ("x86-64", ""))
    ]
    blobs = (
        BlobRecord("plain", "src/plain.cpp", 0, "a" * 64, ("first", "second")),
        BlobRecord("parted", "src/parted.cu", 1, "b" * 64, ("third.lazyck",),
                   units=UnitRecipes("units", 0, 1)),
        BlobRecord("kernel", "src/kernel.cu", 1, "c" * 64, ("fourth",), kernel="parted\tfourth\tx"),
    )  # fmt: skip
    return Manifest(
        "demo", "libdemo.so", "shelf", "/baked", ("80", "90"), (host, device, *lesser), blobs, creator="test",
        digest="d" * 64, machine="x86_64", private_names=("lazyck.1a2b3c4d",), private_tag="tag", contents="e" * 64,
    )  # fmt: skip


def build(directory: Path, flags: Sequence[str] = (), src: Path = SOURCES, compiler: str = HERE.cxx) -> UnitBinary:
    """Compile the unit tests of the runtime in `src` below `directory`. A warning is an error."""
    (directory / "lazyck_abi.h").write_text(render_header())
    tests = "".join(f'#include "{path}"\n' for path in test_files())
    source = directory / "unit.cpp"
    source.write_text(f'#include "unit_support.h"\n{together(src, runtime_sources(src)).decode()}{tests}')
    places = [word for place in (src, directory, TESTS) for word in ("-iquote", str(place))]
    program = directory / "unit"
    _compile(compiler, *_FLAGS, *flags, *places, source, "-o", program, "-ldl", "-rdynamic")
    make_data(directory / "data")
    return UnitBinary(program, directory / "data")


def _compile(*argv: str | Path) -> None:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, argv))}\n{done.stderr}")
