"""Test `LAZYCK_LAUNCHER`, which puts a compiler cache, or a program that sends compiles to other
hosts, in front of the run-time compiler."""

import shutil
from pathlib import Path

import pytest
from support.lazylib import LazyLibrary, build_lazy_library
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    return build_lazy_library(tmp_path, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)


@pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")
def test_a_blob_that_ccache_has_is_not_compiled_again_for_another_cache(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    ccache = {"LAZYCK_LAUNCHER": "ccache", "CCACHE_DIR": str(tmp_path / "ccache"), "CCACHE_COMPILERTYPE": "gcc"}
    for cache in ("one", "other"):
        done = lib.call(program, env={**ccache, "LAZYCK_CACHE_DIR": str(tmp_path / cache)})
        assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    assert lib.compiles() == 1
    # The launcher does not change the result, so an entry is found without it, too.
    assert lib.call(program, env={"LAZYCK_CACHE_DIR": str(tmp_path / "one"), "LAZYCK_JIT": "off"}).stdout == "8\n"


def test_a_launchers_words_stand_before_the_compile_step_and_not_before_the_link(
    lib: LazyLibrary, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$*" >> {seen}\nshift\nexec "$@"\n')
    launcher.chmod(0o755)
    done = lib.call(lib.program(CALL_CAUGHT), env={"LAZYCK_LAUNCHER": f" {launcher}  --far "})
    assert done.stdout == "8\n", done.stderr
    lines = seen.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"--far {lib.compiler} ")
    assert " -c " in lines[0]
    assert f"$ {launcher} --far {lib.compiler} " in lib.entries()[0].with_suffix(".log").read_text()


def test_a_launcher_that_is_not_there_is_an_error_that_names_the_variable(lib: LazyLibrary) -> None:
    done = lib.call(lib.program(CALL_CAUGHT), env={"LAZYCK_LAUNCHER": "no-such-launcher"})
    said = "'no-such-launcher': not found in PATH; it is the launcher that LAZYCK_LAUNCHER or --launcher names"
    assert said in done.stdout + done.stderr
    assert lib.compiles() == 0
