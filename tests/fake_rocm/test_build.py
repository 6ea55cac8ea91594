"""Tests that libamdhip64.so is built on first use: once, by whoever comes first, wherever it can
be."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.launches import HOME, Run


@pytest.fixture
def fresh_home(tmp_path: Path) -> Path:
    """Return a copy of the home in which nothing is built."""
    return Path(shutil.copytree(HOME, tmp_path / "home", ignore=shutil.ignore_patterns("lib", "__pycache__")))


@pytest.fixture
def counting_compiler(tmp_path: Path) -> tuple[Path, Path]:
    """Make a slow host compiler that writes an empty output and logs each run. Return the compiler
    and its log."""
    compiler, notes = tmp_path / "counting-c++", tmp_path / "notes"
    compiler.write_text(
        f"""#!/bin/sh
        sleep 0.02
        echo run >> "{notes}"
        while [ $# -gt 0 ]; do
            [ "$1" = -o ] && : > "$2"
            shift
        done
        """
    )
    compiler.chmod(0o755)
    return compiler, notes


def test_concurrent_first_uses_build_once(fresh_home: Path, counting_compiler: tuple[Path, Path]) -> None:
    compiler, notes = counting_compiler
    env = {**os.environ, "FAKE_ROCM_CXX": str(compiler)}
    build = [str(fresh_home / "bin" / "fake-rocm-build")]
    started = [subprocess.Popen(build, env=env, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert {process.communicate(timeout=120)[0].strip() for process in started} == {str(fresh_home / "lib")}
    assert all(process.returncode == 0 for process in started)
    once = len(notes.read_text().splitlines())
    assert once == 7  # the runtime, and a variant and a link for each of three sonames
    names = sorted(path.name for path in (fresh_home / "lib").iterdir() if path.name.startswith("lib"))
    assert names == ["libamdhip64.so", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7"]

    # Content decides, not time: touched sources build nothing, and changed sources build
    # everything.
    os.utime(fresh_home / "src" / "state.cpp")
    subprocess.run(build, env=env, check=True, stdout=subprocess.DEVNULL)
    assert len(notes.read_text().splitlines()) == once
    with (fresh_home / "src" / "state.cpp").open("a") as source:
        source.write("// changed\n")
    subprocess.run(build, env=env, check=True, stdout=subprocess.DEVNULL)
    assert len(notes.read_text().splitlines()) == 2 * once


def test_home_that_cannot_be_written_builds_into_the_cache(
    fresh_home: Path, counting_compiler: tuple[Path, Path], run: Run, tmp_path: Path
) -> None:
    (fresh_home / "lib").write_text("a file where the directory would be")
    cache = tmp_path / "cache"
    env = {"XDG_CACHE_HOME": str(cache), "FAKE_ROCM_CXX": str(counting_compiler[0])}
    built = Path(run([fresh_home / "bin" / "fake-rocm-build"], env=env).stdout.strip())
    assert built.parent == cache / "fake_rocm_home"
    assert (built / "libamdhip64.so").exists()


def test_failed_build_shows_what_the_compiler_said(fresh_home: Path, run: Run) -> None:
    (fresh_home / "src" / "state.cpp").write_text("int broken = here;\n")
    done = run([fresh_home / "bin" / "fake-rocm-build"], fails=True)
    assert "state.cpp:1" in done.stderr and "here" in done.stderr
    assert not (fresh_home / "lib" / "libamdhip64.so").exists()


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
def test_sources_compile_without_warnings(compiler: str, run: Run) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-DFAKE_ROCM_SONAME_MAJOR=6"]
    unit = "".join(f'#include "{source}"\n' for source in sorted((HOME / "src").glob("*.cpp")))
    run([compiler, *flags, f"-I{HOME}/include", f"-I{HOME}/src", "-x", "c++", "-"], stdin=unit)
