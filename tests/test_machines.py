"""Tests that what lazyck knows of a machine stands in one row and in files of its name, so that a
machine that is not listed is refused, not taken for another one."""

import re
import subprocess
from pathlib import Path

import pytest
from support import HERE, REPOSITORY

from lazyck.formats.c_header import render_header
from lazyck.machines import MACHINES
from lazyck.runtime.builder import SOURCES

PLACE = SOURCES / "machine"
PACKAGE = REPOSITORY / "lazyck"
# What compilers call machines, as they define it or as ELF files number it.
_NAMED = re.compile(r"__x86_64|__amd64|__i386|__aarch64|__arm|__riscv|\b(EM|R)_(X86_64|AARCH64|RISCV)")
_SHARED = {"sha256.h", "assembler.h", "machine.h", "unread_calls.h"}


def code_of(file: Path) -> str:
    """Return a C or C++ file without its comments and texts."""
    return re.sub(r'//[^\n]*|/\*[^*]*(?:\*[^/][^*]*)*\*/|"(?:\\.|[^"\\\n])*"', "", file.read_text())


def test_each_machine_has_a_row_and_its_two_files() -> None:
    wanted = {name for m in MACHINES for name in (f"{m}.h", f"stub_{m}.S")}
    assert {f.name for f in PLACE.iterdir()} == wanted | _SHARED
    for name in MACHINES:
        assert f'k_name[] = "{name}"' in (PLACE / f"{name}.h").read_text()


def test_the_files_of_all_machines_define_the_same() -> None:
    def names_in(file: Path) -> set[str]:
        text = code_of(file)
        found = re.findall(r"(?:inline|constexpr|class)[^;{=(]*?(\w+)(?=\(| = |\[\]| \{)", text)
        shared = PLACE / "unread_calls.h"
        return set(found) | (names_in(shared) if f'"machine/{shared.name}"' in file.read_text() else set())

    named = {name: names_in(PLACE / f"{name}.h") for name in MACHINES}
    common = {
        "FloatingPoint", "argument", "bare", "call_at", "call_resolver", "jump_at", "k_name", "number_pushed_at",
        "return_address",
    }  # fmt: skip
    assert all(common <= names for names in named.values()), named
    for name in MACHINES:
        functions = re.findall(r"(?m)^function (\w+)", (PLACE / f"stub_{name}.S").read_text())
        assert functions == ["lazyck_trampoline", "lazyck_run_on"]


def test_only_one_file_asks_which_machine_it_is() -> None:
    files = [f for f in PACKAGE.rglob("*") if f.suffix in (".c", ".cpp", ".h", ".hpp") and f.parent != PLACE]
    assert len(files) > 100
    files += [PLACE / f"{name}.h" for name in MACHINES]
    found = {f.relative_to(PACKAGE).as_posix(): m[0] for f in files if (m := _NAMED.search(code_of(f)))}
    assert not found


def test_only_the_rows_name_machines_in_python() -> None:
    names = {s for m in MACHINES.values() for s in (m.name, m.other_name)}
    spelled = re.compile(rf"""["']({"|".join(names)})["']""")
    files = [f for f in PACKAGE.rglob("*.py") if f.name != "machines.py"]
    found = {f.relative_to(PACKAGE).as_posix(): m[0] for f in files if (m := spelled.search(f.read_text()))}
    assert not found


def test_a_machine_that_is_not_listed_does_not_compile() -> None:
    gone = [f"-U{macro}" for macro in ("__x86_64__", "__aarch64__", "__riscv")]
    argv = [HERE.cxx, "-std=c++17", "-fsyntax-only", *gone, "-iquote", str(SOURCES), str(PLACE / "machine.h")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode != 0
    assert "this machine is not listed: add its files to machine/ (see ARCHITECTURE.md)" in done.stderr


def test_the_shim_and_the_runtime_know_each_row() -> None:
    (line,) = [line for line in render_header().splitlines() if line.startswith("#define LAZYCK_MACHINES(X)")]
    rows = re.findall(r"X\((.*?)\)", line.removeprefix("#define LAZYCK_MACHINES(X)"))
    assert [row.split(", ")[1].strip('"') for row in rows] == list(MACHINES)


@pytest.mark.parametrize("name", MACHINES)
def test_the_page_for_changes_names_the_files_of_a_machine(name: str) -> None:
    (row,) = [r for r in (REPOSITORY / "ARCHITECTURE.md").read_text().splitlines() if r.startswith("| a machine (CPU)")]
    assert "`machines.py`" in row
    files = {file.replace("riscv64", name) for file in re.findall(r"`rt/machine/(\S+)`", row)}
    assert files == {f"{name}.h", f"stub_{name}.S", "machine.h"}
