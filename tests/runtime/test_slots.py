"""Test what a first call stores: the addresses of all functions of a blob, of the very file that
was checked."""

from pathlib import Path

import pytest
from support.lazylib import CXX, LazyLibrary, build_lazy_library, run

HEADER = "#pragma once\nint one(); int two(); int three(); int other(); int use();\n"
BLOBS = {
    # `one` does not begin where the code of a file begins.
    "numbers": "int two() { return 2; }\nint three() { return 3; }\nint one() { return 1; }\n",
    "other": "int other() { return 4; }\n",
}
MAIN = '#include "demo.h"\nint use() { return one(); }\n'
SYMBOLS = {"numbers": ("_Z3onev", "_Z3twov", "_Z5threev"), "other": ("_Z5otherv",)}
# The program prints for each slot, whose distance from `lazyck_version` it is given, whether it
# leads out of the lazy library.
PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include "lazyck.h"
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
int main(int, char** argv) {
    try {
        if (use() != 1) return 1;
    } catch (const lazyck::CompileError& e) {
        std::puts(e.what());
        return 3;
    }
    Dl_info own, at;
    if (dladdr(reinterpret_cast<void*>(use), &own) == 0) return 2;
    char* const base = static_cast<char*>(own.dli_fbase);
    void** const slots = reinterpret_cast<void**>(base + std::strtol(argv[1], nullptr, 16));
    for (int i = 0; i < 4; ++i) std::puts(dladdr(slots[i], &at) && at.dli_fbase == base ? "lazy" : "loaded");
}
"""
# The loader gives the handle of another library in the place of the entry.
HOOK = r"""
#include <dlfcn.h>
#include <cstdlib>
#include <cstring>
extern "C" void* dlopen(const char* name, int flags) {
    const char* instead = std::getenv("LOAD_INSTEAD");
    if (!name || !instead || std::strncmp(name, "/proc/", 6)) instead = name;
    auto* real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
    return real(instead, flags);
}
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    where = tmp_path_factory.mktemp("slots")
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    made.program(PROGRAM)
    (where / "hook.cpp").write_text(HOOK)
    run([CXX, "-shared", "-fPIC", where / "hook.cpp", "-o", where / "hook.so", "-ldl"])
    return made


def slots_at(lib: LazyLibrary) -> str:
    (line,) = [n for n in run(["nm", lib.library]).stdout.splitlines() if n.endswith(" lazyck_slots")]
    return line.split()[0]


def test_a_first_call_stores_all_functions_of_the_blob_and_no_other(lib: LazyLibrary) -> None:
    done = lib.call(lib.directory / "main", slots_at(lib))
    assert done.stdout.split() == ["loaded", "loaded", "loaded", "lazy"]


@pytest.mark.parametrize(
    "text",
    [
        'extern "C" const int nothing[4096] = {};\n',
        r'asm(".text\n.globl big\n.type big, @function\nbig: .skip 8192\n.size big, 8192\n");' + "\n",
    ],
    ids=["no function", "another function"],
)
def test_a_file_without_the_function_where_the_checked_one_has_it_is_not_called(lib: LazyLibrary, text: str) -> None:
    """An older file of that name may still be loaded, which the loader then takes."""
    program = lib.directory / "main"
    assert lib.call(program, slots_at(lib)).returncode == 0
    (lib.directory / "old.cpp").write_text(text)
    old = lib.directory / "old.so"
    run([CXX, "-O1", "-shared", "-fPIC", lib.directory / "old.cpp", "-o", old])
    env = {"LD_PRELOAD": str(lib.directory / "hook.so"), "LOAD_INSTEAD": str(old)}
    done = lib.call(program, slots_at(lib), env=env)
    assert (done.returncode, "does not have '_Z3onev' where its file says" in done.stdout) == (3, True)
