"""Test that a lazy library whose objects support shadow stacks and branch targets is marked as an
ordinary one is."""

import re
import shutil
from pathlib import Path

import pytest
from support import AARCH64, HERE, Machine, machine_params
from support.lazylib import LazyLibrary, build_lazy_library, run
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

LINKERS = ("bfd", "lld", "gold", "mold")
X86_64 = {"IBT", "SHSTK"}
# An unmarked C library, such as Debian's, adds unmarked code to each library: its crti.o and
# libc_nonshared.a. The tests link without them.
NO_START_FILES = "-nostartfiles"
OWN_START_FILES = r"""
extern "C" {
#define OWN __attribute__((visibility("hidden")))
OWN void* __dso_handle = &__dso_handle;
int __cxa_atexit(void (*)(void*), void*, void*);
int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
OWN int atexit(void (*f)()) { return __cxa_atexit((void (*)(void*))f, nullptr, &__dso_handle); }
OWN int pthread_atfork(void (*a)(), void (*b)(), void (*c)()) { return __register_atfork(a, b, c, &__dso_handle); }
}
"""


def marks(file: Path) -> set[str]:
    """Return the protections that all of a file's code supports, according to its mark."""
    line = re.search(r"(?:x86|AArch64) feature: (.*)", run(["readelf", "-nW", file]).stdout)
    return set(line[1].replace(",", " ").split()) if line else set()


def build(where: Path, objects_dir: Path, machine: Machine, *flags: str) -> LazyLibrary:
    return build_lazy_library(
        where, objects_dir, BLOBS, MAIN + OWN_START_FILES, header=HEADER, symbols=SYMBOLS, machine=machine,
        flags=flags, link_flags=[NO_START_FILES],
    )  # fmt: skip


def ordinary(lib: LazyLibrary) -> Path:
    """Link a library from its main object and a blob that is compiled ahead of time."""
    out = lib.directory / "ordinary.so"
    source = lib.directory / "lazyck/src/add.cpp"
    run([lib.machine.cxx, "-fPIC", *lib.flags, "-c", source, "-o", lib.directory / "add.o"])
    objects = (lib.directory / "demo.o", lib.directory / "add.o")
    run([lib.machine.cxx, *lib.flags, "-shared", *objects, "-o", out, NO_START_FILES])
    return out


def first_instruction(lib: LazyLibrary, objdump: str) -> str:
    listing = run([objdump, "-d", "--no-show-raw-insn", lib.library]).stdout
    line = listing.split("<_Z3addii>:\n")[1].splitlines()[0]
    return " ".join(line.split("\t", 1)[1].split())


@pytest.mark.skipif(HERE.name != "x86_64", reason="CET is x86's")
@pytest.mark.parametrize("linker", LINKERS)
def test_lazy_library_is_marked_for_ibt_and_shadow_stacks(tmp_path: Path, objects_dir: Path, linker: str) -> None:
    if not shutil.which(f"ld.{linker}"):
        pytest.skip(f"no ld.{linker}")
    lib = build(tmp_path, objects_dir, HERE, "-fcf-protection=full", f"-fuse-ld={linker}")
    if not marks(ordinary(lib)) >= X86_64:
        pytest.skip(f"this ld.{linker} marks nothing")
    assert marks(lib.library) >= X86_64
    assert first_instruction(lib, "objdump") == "endbr64"
    assert lib.call(lib.program(CALL_CAUGHT)).stdout == "8\n"


@pytest.mark.skipif(HERE.name != "x86_64", reason="CET is x86's")
def test_an_object_that_is_not_fit_takes_the_mark_away(tmp_path: Path, objects_dir: Path) -> None:
    """This shows that a mark means something."""
    assert not marks(build(tmp_path, objects_dir, HERE, "-fcf-protection=none").library) & X86_64


@pytest.mark.parametrize("machine", machine_params(AARCH64), indirect=True)
def test_lazy_library_is_marked_for_branch_targets_and_signed_addresses(
    machine: Machine, tmp_path: Path, objects_dir: Path
) -> None:
    lib = build(tmp_path, objects_dir, machine, "-mbranch-protection=standard")
    assert marks(ordinary(lib)) == {"BTI", "PAC"}
    assert marks(lib.library) == {"BTI", "PAC"}
    assert first_instruction(lib, machine.cxx.replace("g++", "objdump")) == "bti c"
    assert lib.call(lib.program(CALL_CAUGHT)).stdout == "8\n"
