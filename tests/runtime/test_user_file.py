"""Test that a lazy library takes from the user's file what the environment does not set, and
reports what it does not know."""

from pathlib import Path

import pytest
from support.lazylib import LazyLibrary, build_lazy_library
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

FORBIDDEN = {"LAZYCK_JIT": "off"}


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    return build_lazy_library(tmp_path, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)


def write(directory: Path, text: str) -> Path:
    file = directory / "lazyck" / "lazyck.env"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_the_environment_comes_before_the_file(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    write(tmp_path / "config", "# no compiler here\nLAZYCK_JIT = off\r\n")
    assert "LAZYCK_JIT" in lib.call(program).stdout
    assert lib.call(program, env={"LAZYCK_JIT": ""}).stdout == "8\n"


def test_without_xdg_config_home_the_file_is_in_the_home_directory(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    write(tmp_path / "home" / ".config", "LAZYCK_JIT=off\n")
    found = lib.call(program, env={"XDG_CONFIG_HOME": "", "HOME": str(tmp_path / "home")})
    assert "LAZYCK_JIT" in found.stdout


def test_the_file_may_be_a_link(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    file = write(tmp_path / "config", "")
    file.unlink()
    (tmp_path / "dotfiles").write_text("LAZYCK_JIT=off\n")
    file.symlink_to(tmp_path / "dotfiles")
    assert "LAZYCK_JIT" in lib.call(program).stdout


def test_what_others_could_have_written_is_not_read(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    file = write(tmp_path / "config", "LAZYCK_JIT=off\n")
    file.chmod(0o666)
    found = lib.call(program)
    assert found.stdout == "8\n"
    assert f"[lazyck] warn: {file} is not read: '{file}': others can write to it" in found.stderr


def test_each_unknown_variable_is_said_once(lib: LazyLibrary, tmp_path: Path) -> None:
    program = lib.program(CALL_CAUGHT)
    file = write(tmp_path / "config", "LAZYCK_LOGG=warn\nfree text\n")
    found = lib.call(program, env={"LAZYCK_CACHEDIR": "/x", "LAZYCK_ZZZ": "1", "LAZYCK_TEST_JOBS": "2"})
    warnings = [line.partition("warn: ")[2] for line in found.stderr.splitlines() if "warn: " in line]
    assert sorted(warnings) == sorted(
        [
            "LAZYCK_CACHEDIR is not a variable of lazyck; did you mean LAZYCK_CACHE_DIR?",
            "LAZYCK_ZZZ is not a variable of lazyck",
            f"{file}: LAZYCK_LOGG is not a variable of lazyck; did you mean LAZYCK_LOG?",
            f"{file}:2: not LAZYCK_NAME=VALUE",
        ]
    )
