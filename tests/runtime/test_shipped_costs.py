"""Test that the costs of compiles at build time ship with a library, so that a first call anywhere
says how long it will take."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY
from support.lazylib import LazyLibrary, build_lazy_library

CALL = '#include <cstdio>\nint add(int, int);\nint main() { std::printf("%d", add(2, 3)); }\n'
BLOBS = {name: f'#include "demo.h"\nint {name}(int a, int b) {{ return a + b; }}\n' for name in ("add", "more")}


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    header = "int add(int, int);\nint more(int, int);\n"
    main = '#include "demo.h"\nint both(int a) { return add(a, more(a, 1)); }\n'
    symbols = {"add": ("_Z3addii",), "more": ("_Z4moreii",)}
    return build_lazy_library(tmp_path, objects_dir, BLOBS, main, header=header, symbols=symbols)


def prebuild(lib: LazyLibrary, *words: str) -> str:
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(lib.library), *words]
    env = {**os.environ, **lib.env, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stderr


def costs(lib: LazyLibrary) -> Path:
    return lib.directory / "lazyck/demo/costs"


def first_call(lib: LazyLibrary) -> str:
    shutil.rmtree(lib.cache)
    done = lib.call(lib.program(CALL))
    assert done.stdout == "5", done.stderr
    return done.stderr


def test_a_first_call_says_how_long_a_compile_took_where_the_library_was_built(lib: LazyLibrary) -> None:
    prebuild(lib, "--all")
    assert "(about" not in first_call(lib)
    said = prebuild(lib, "--all", "--write-costs")
    assert f"{costs(lib)} records what 2 compiles took" in said
    costs(lib).write_text(re.sub(r"^[\d.]+ (\d+) add ", r"4321.000 \1 add ", costs(lib).read_text(), flags=re.M))
    assert "compiling add for x86_64 (about 4321.0 s) ..." in first_call(lib).replace("aarch64", "x86_64")


def test_what_this_cache_knows_counts_first(lib: LazyLibrary) -> None:
    prebuild(lib, "--all", "--write-costs")
    costs(lib).write_text(re.sub(r"^[\d.]+ ", "4321.000 ", costs(lib).read_text(), flags=re.M))
    (entry,) = (e for e in lib.entries() if e.name.startswith("add-"))
    entry.unlink()
    done = lib.call(lib.program(CALL))
    assert "(about" in done.stderr and "4321" not in done.stderr


def test_costs_of_others_stay_and_what_is_no_line_goes(lib: LazyLibrary) -> None:
    prebuild(lib, "add", "--write-costs")
    with costs(lib).open("a") as f:
        f.write("no line\n")
    assert "records what 2 compiles took" in prebuild(lib, "more", "--write-costs")
    assert [line.split()[2] for line in costs(lib).read_text().splitlines()] == ["add", "more"]


def test_without_a_bundle_there_is_no_place_for_them(lib: LazyLibrary, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(lib.library, alone)
    env = {**os.environ, **lib.env, "PYTHONPATH": str(REPOSITORY), "LAZYCK_ROOT": str(lib.directory / "lazyck")}
    words = ["prebuild", "build", "--manifest", str(alone / lib.library.name), "--all", "--write-costs"]
    done = subprocess.run([sys.executable, "-m", "lazyck", *words], env=env, capture_output=True, text=True)
    assert done.returncode == 2 and "no bundle beside it for --write-costs to write to" in done.stderr, done.stderr
