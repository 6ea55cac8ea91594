"""Test what the runtime needs from the C++ library: nothing that a linker could find in the
project's libraries instead."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.lazylib import runtime_objects

from lazyck.postbuild.objects import elf

# Libraries in wheels (torch's libc10.so and libtorch_cpu.so) export these symbols of the C++
# library, which was linked into them.
COPIES = """
#include <cstdlib>
namespace std {
void __throw_bad_array_new_length() { abort(); }
namespace __exception_ptr {
struct exception_ptr { void _M_addref() noexcept; void _M_release() noexcept; };
void exception_ptr::_M_addref() noexcept {}
void exception_ptr::_M_release() noexcept {}
}
}
"""


# What stubs define.
NAMES = ("manifest", "manifest_end", "slots", "slot_count", "registering", "wrapped")
EMPTY = f"""__attribute__((visibility("hidden"))) char {", ".join(f"lazyck_{name}[8]" for name in NAMES)};\n"""


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_libraries_with_copies_of_the_cxx_library_are_not_needed(
    tmp_path: Path, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    monkeypatch.chdir(tmp_path)
    Path("copies.cpp").write_text(COPIES)
    subprocess.run(["g++", "-shared", "-fPIC", "copies.cpp", "-o", "libcopies.so"], check=True)
    objects = runtime_objects(tmp_path / "store", compiler, ())
    Path("empty.c").write_text(EMPTY)
    words = ["-shared", "-fPIC", "empty.c", *map(str, objects), "-Wl,--as-needed", "-L.", "-lcopies", "-o", "x.so"]
    subprocess.run([compiler, *words], check=True)
    needed = elf.read_shared("x.so").needed
    assert "libcopies.so" not in needed and any(name.startswith("libstdc++") for name in needed), needed


@pytest.fixture(scope="module", params=["g++", "clang++-19"])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return the runtime's objects by each compiler."""
    if not shutil.which(request.param):
        pytest.skip(f"no {request.param}")
    return runtime_objects(tmp_path_factory.mktemp("store"), request.param, ())


def test_what_every_link_brings_is_all_that_the_runtime_needs(
    objects: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.c").write_text(EMPTY)
    # A driver for C, and what postbuild/link/arguments.py adds, which is no library of mathematics.
    words = ["-shared", "-fPIC", "empty.c", *map(str, objects), "-lstdc++", "-ldl", "-lpthread", "-Wl,-z,defs"]
    subprocess.run(["gcc", *words, "-o", "x.so"], check=True)


def test_no_inline_function_of_the_runtime_meets_one_of_the_library(objects: tuple[Path, ...]) -> None:
    # A linker takes the strictest visibility of all copies, and would hide the library's own.
    shown = subprocess.run(["nm", "--defined-only", *objects], check=True, capture_output=True, text=True).stdout
    weak = {line.split()[2] for line in shown.splitlines() if len(line.split()) == 3 and line.split()[1] in "WV"}
    assert any(name.endswith(".lazyck") for name in weak)
    assert not {name for name in weak if not name.endswith(".lazyck") and "CompileError" not in name}
    # A linker keeps the first of several groups with one name.
    groups = subprocess.run(["readelf", "-gW", *objects], check=True, capture_output=True, text=True).stdout
    signatures = set(re.findall(r"COMDAT group section .* \[(.*)\] contains", groups))
    assert signatures and not {
        name for name in signatures if not name.endswith(".lazyck") and "CompileError" not in name
    }


def test_a_linker_reads_few_sections_of_the_runtime(objects: tuple[Path, ...]) -> None:
    said = subprocess.run(["readelf", "-hW", *objects], check=True, capture_output=True, text=True).stdout
    assert max(map(int, re.findall("Number of section headers: +([0-9]+)", said))) < 100
