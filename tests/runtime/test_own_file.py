"""Test which file a library takes for its own, and which bundle: never one that a name or a working
directory leads to."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.lazylib import CXX, SOURCES, LazyLibrary, build_lazy_library, contents_of, run, runtime_objects

from lazyck.postbuild.bundle import deploy

HEADER = "#pragma once\nint add(int, int); int use(int);\n"
BLOBS = {"add": '#include "demo.h"\nint add(int a, int b) { return a + b; }\n'}
EVIL = '#include "demo.h"\nint add(int, int) { return 666; }\n'
MAIN = '#include "demo.h"\nint use(int x) { return add(x, 1); }\n'
SYMBOLS = {"add": ("_Z3addii",)}
# This program loads the library by the name in its first argument, changes to the directory in its
# second, and calls.
LOADER = r"""
#include <cstdio>
#include <dlfcn.h>
#include <stdexcept>
#include <unistd.h>
int main(int, char** argv) {
    void* const library = dlopen(argv[1], RTLD_NOW);
    if (library == nullptr) return std::puts(dlerror()), 2;
    if (chdir(argv[2]) != 0) return 2;
    const auto use = reinterpret_cast<int (*)(int)>(dlsym(library, "_Z3usei"));
    try { std::printf("%d\n", use(4)); } catch (const std::exception& e) { std::puts(e.what()); return 3; }
}
"""
PROGRAM = r"""
#include "demo.h"
#include <cstdio>
#include <stdexcept>
int main() {
    try { std::printf("%d\n", use(4)); } catch (const std::exception& e) { std::puts(e.what()); return 3; }
}
"""


@pytest.fixture(params=[False, True], ids=["laid out by hand", "sealed"])
def lib(request: pytest.FixtureRequest, tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    (tmp_path / "lib").mkdir()
    return build_lazy_library(
        tmp_path / "lib", objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS,
        sealed=request.param,
    )  # fmt: skip


@pytest.fixture
def sealed(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    (tmp_path / "lib").mkdir()
    made = build_lazy_library(tmp_path / "lib", objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, sealed=True)
    made.program(PROGRAM)
    return made


@pytest.fixture
def trap(lib: LazyLibrary, tmp_path: Path) -> Path:
    """Make a stranger's directory: files with the names of the library and of a program, and a
    bundle with the stranger's code."""
    trap = tmp_path / "trap"
    shutil.copytree(lib.directory / "lazyck", trap / "lazyck")
    for source in trap.rglob("add.cpp"):
        source.write_text(EVIL)
    for manifest in trap.rglob("manifest"):
        manifest.unlink()
    for listing in trap.rglob("contents"):
        listing.unlink()
    for name in ("libdemo.so", "main"):
        (trap / name).write_text("")
    return trap


def linked_program(lib: LazyLibrary, objects_dir: Path) -> Path:
    """Build a lazy program, which contains the library's own objects."""
    program = lib.directory / "main"
    (lib.directory / "main.cpp").write_text(PROGRAM)
    parts = [lib.directory / "demo.o", lib.directory / "stubs.o", *runtime_objects(objects_dir, CXX, ())]
    run([CXX, "-std=c++17", "-rdynamic", "-I", lib.directory, "-I", SOURCES, lib.directory / "main.cpp", *parts,
         "-o", program, "-pthread", "-ldl"])  # fmt: skip
    return program


def test_library_that_was_loaded_by_a_relative_path_is_found_after_chdir(lib: LazyLibrary, trap: Path) -> None:
    loader = lib.program(LOADER, flags=["-Wl,--as-needed"])
    done = subprocess.run(
        [loader, "./libdemo.so", trap], cwd=lib.directory, env={**os.environ, **lib.env}, capture_output=True, text=True
    )
    assert done.stdout == "5\n", done


@pytest.mark.parametrize("name", ["main", "./main", "other/main"])
def test_name_by_which_a_program_was_called_says_nothing(
    lib: LazyLibrary, trap: Path, objects_dir: Path, name: str
) -> None:
    program = linked_program(lib, objects_dir)
    (trap / "other").mkdir()
    for part in ("main", "lazyck"):
        (trap / "other" / part).symlink_to(trap / part)
    done = subprocess.run(
        [name], executable=program, cwd=trap, env={**os.environ, **lib.env}, capture_output=True, text=True
    )
    assert done.stdout == "5\n", done


def test_program_that_is_run_by_the_loader_is_found(lib: LazyLibrary, trap: Path, objects_dir: Path) -> None:
    program = linked_program(lib, objects_dir)
    (loader,) = [w for w in run(["ldd", program]).stdout.split() if w.startswith("/") and "ld-linux" in w]
    done = subprocess.run([loader, program], cwd=trap, env={**os.environ, **lib.env}, capture_output=True, text=True)
    assert done.stdout == "5\n", done


@pytest.mark.parametrize("name", ["a b\nc (deleted)", "\\012 (deleted)"])
def test_library_is_found_in_a_directory_whose_name_is_odd(
    lib: LazyLibrary, trap: Path, tmp_path: Path, name: str
) -> None:
    loader = lib.program(LOADER, flags=["-Wl,--as-needed"])
    odd = tmp_path / name
    lib.directory.rename(odd)
    done = subprocess.run(
        [odd / loader.name, odd / "libdemo.so", trap],
        env={**os.environ, **lib.env}, capture_output=True, text=True,
    )  # fmt: skip
    # The library is found, but the compiler of its recipe is not at its old path.
    assert done.returncode == 3 and f"{tmp_path}/lib/cxx" in done.stdout, done


def changed(lib: LazyLibrary, path: str, text: str) -> None:
    file = lib.directory / "lazyck" / "demo" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


CHANGES: dict[str, tuple[Callable[[LazyLibrary], None], str]] = {
    "source": (lambda lib: changed(lib, "tree/add.cpp", EVIL), "add.cpp' was changed"),
    "header": (lambda lib: changed(lib, "tree/demo.h", HEADER + "// more\n"), "demo.h' was changed"),
    "one more file": (lambda lib: changed(lib, "tree/vector", "int evil;\n"), "tree/vector' was not there"),
    "one in a hidden directory": (lambda lib: changed(lib, "tree/.a/x.h", ""), "tree/.a/x.h' was not there"),
    "one with a hidden name": (lambda lib: changed(lib, "tree/.x.h", ""), "tree/.x.h' was not there"),
    "one in a remnant's directory": (lambda lib: changed(lib, "tree/.nfs1/x.h", ""), "tree/.nfs1/x.h' was not there"),
    "no list": (lambda lib: (lib.directory / "lazyck/demo/contents").unlink(), "contents' is gone"),
    "another library's bundle": (lambda lib: swap(lib), "is of another build"),
}


def swap(lib: LazyLibrary) -> None:
    """Replace the bundle by another build's, which is complete and has a matching list."""
    root = lib.directory / "lazyck"
    changed(lib, "tree/add.cpp", EVIL)
    (root / "demo/contents").write_bytes(contents_of(root, sorted((root / "demo/tree").iterdir())))


@pytest.mark.parametrize("what", CHANGES)
def test_only_the_bundle_that_the_library_was_built_with_is_compiled(sealed: LazyLibrary, what: str) -> None:
    change, reason = CHANGES[what]
    change(sealed)
    done = sealed.call(sealed.directory / "main")
    assert done.returncode == 3 and reason in done.stdout, done
    assert sealed.compiles() == 0 and not sealed.entries()


def test_bundle_as_it_was_built_is_compiled(sealed: LazyLibrary) -> None:
    (sealed.directory / "lazyck/demo/tree/.nfs0001").write_text("")  # a file that NFS leaves
    assert sealed.call(sealed.directory / "main").stdout == "5\n"


@pytest.mark.parametrize("is_changed", [False, True])
def test_bundle_that_was_deployed_as_one_file_is_looked_at_too(sealed: LazyLibrary, is_changed: bool) -> None:
    own = sealed.directory / "lazyck" / "demo"
    if is_changed:
        changed(sealed, "tree/vector", "int evil;\n")
    deploy(own, own)
    done = sealed.call(sealed.directory / "main")
    if is_changed:
        assert done.returncode == 3 and "tree/vector' was not there" in done.stdout, done
        assert sealed.compiles() == 0
    else:
        assert done.stdout == "5\n", done


def test_file_that_was_changed_and_changed_back_during_the_compile_is_noticed(sealed: LazyLibrary) -> None:
    header = sealed.directory / "lazyck/demo/tree/demo.h"
    script = sealed.compiler.read_text()
    edit = f"\ncp '{header}' '{header}.good'; echo '// evil' >> '{header}'; mv '{header}.good' '{header}'\nexec "
    sealed.compiler.write_text(script.replace("\nexec ", edit))
    done = sealed.call(sealed.directory / "main")
    assert done.returncode == 3 and "demo.h' was changed" in done.stdout, done
    assert not sealed.entries()


def test_library_that_is_replaced_under_a_running_program_still_finds_its_bundle(sealed: LazyLibrary) -> None:
    loader = sealed.program(LOADER, name="loader", flags=["-Wl,--as-needed"])
    source = loader.with_suffix(".cpp")
    library = sealed.library
    # A copy of the library takes its place between its loading and the call.
    source.write_text(source.read_text().replace("chdir(argv[2]) != 0", "rename(argv[2], argv[1]) != 0"))
    run([CXX, source, "-o", loader, "-ldl"])
    shutil.copy2(library, sealed.directory / "copy.so")
    done = sealed.call(loader, library, sealed.directory / "copy.so")
    assert done.stdout == "5\n", done
