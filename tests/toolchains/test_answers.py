"""Tests which answers of compilers are kept for later commands."""

import os
import shutil
from pathlib import Path

import pytest
from support import HERE

from lazyck.toolchains import answers

# A compiler in C that counts how often it is started.
COUNTING = """
#include <stdio.h>
int main(int argc, char** argv) {
    puts(argc > 1 ? argv[1] : "");
    FILE* f = fopen("starts", "a");
    fputc('.', f);
    return 3;
}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)
    Path("c.c").write_text(COUNTING)
    assert os.system(f"{HERE.cxx} -w -x c c.c -o g++-99") == 0
    return tmp_path


def starts(place: Path) -> int:
    return len((place / "starts").read_text()) if (place / "starts").exists() else 0


def test_a_question_is_asked_once(place: Path) -> None:
    for _ in range(2):
        assert answers.ask([str(place / "g++-99")], ["-dumpmachine"]) == (3, "-dumpmachine\n")
    assert starts(place) == 1
    assert answers.ask([str(place / "g++-99")], ["-other"]) == (3, "-other\n")


def test_another_program_at_the_same_place_is_asked_again(place: Path) -> None:
    program = place / "g++-99"
    answers.ask([str(program)], ["-x"])
    info = program.stat()
    shutil.copyfile(program, place / "new")
    (place / "new").chmod(0o755)
    os.utime(place / "new", ns=(info.st_atime_ns, info.st_mtime_ns))
    (place / "new").replace(program)
    answers.ask([str(program)], ["-x"])
    assert starts(place) == 2


def test_another_environment_of_the_compiler_is_another_question(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers.ask([str(place / "g++-99")], ["-x"])
    monkeypatch.setenv("COMPILER_PATH", str(place))
    answers.ask([str(place / "g++-99")], ["-x"])
    assert starts(place) == 2


@pytest.mark.parametrize("name", ["wrapper", "g++"])
def test_a_program_that_may_start_any_other_is_always_asked(place: Path, name: str) -> None:
    if name == "g++":
        (place / name).write_text(f'#!/bin/sh\nexec {place}/g++-99 "$@"\n')
        (place / name).chmod(0o755)
    else:
        shutil.copy(place / "g++-99", place / name)
    for _ in range(2):
        answers.ask([str(place / name)], ["-x"])
    assert starts(place) == 2


def test_a_damaged_answer_is_asked_for_again(place: Path) -> None:
    answers.ask([str(place / "g++-99")], ["-x"])
    (kept,) = (place / "caches" / "lazyck-tools" / "answers").iterdir()
    kept.write_bytes(b"no number\n")
    assert answers.ask([str(place / "g++-99")], ["-x"]) == (3, "-x\n")
    assert starts(place) == 2
