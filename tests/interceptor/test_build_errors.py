"""Tests that an error in a build is reported with the tool's own message and status, as in a build
without lazyck."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.failing_project import SOURCES

# Each case has the files that are changed, the variables that are passed, and a word of the tool's
# own message.
BREAKS = {
    "compile": ({"dispatch.cpp": "int broken( {\n"}, {}, "dispatch.cpp:1"),
    "link": ({"dispatch.cpp": "int missing();\nint twice_one() { return missing(); }\n"}, {}, "missing()"),
    "library": ({}, {"MORE": "-lno_such_library"}, "no_such_library"),
    "archive": ({}, {"MORE_MEMBERS": "no_such_member.o"}, "no_such_member.o"),
    "generator": ({"gen.sh": "echo half; echo cannot generate >&2; exit 3\n"}, {}, "cannot generate"),
    "warning": ({"dispatch.cpp": '#warning "mind this"\n' + SOURCES["dispatch.cpp"]}, {}, "mind this"),
}


def prepare(where: Path, files: dict[str, str]) -> None:
    shutil.rmtree(where, ignore_errors=True)
    for name, text in {**SOURCES, **files}.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_text(text)


def own_words(text: str) -> list[str]:
    """Return the lines without those of lazyck, and without names that differ from run to run."""
    kept = [line for line in text.splitlines() if not line.startswith("lazyck:")]
    return [re.sub(r"/tmp/cc\w+", "/tmp/cc", line) for line in kept]


@pytest.mark.parametrize("tool", ["make", "ninja"])
@pytest.mark.parametrize("broken", BREAKS)
def test_the_build_says_and_returns_what_it_does_without_the_shims(
    lazyck: Lazyck, tmp_path: Path, tool: str, broken: str
) -> None:
    if not shutil.which(tool) and tool == "make":
        pytest.skip("needs make")
    files, more, word = BREAKS[broken]
    env = {**os.environ, **more}
    project = tmp_path / "project"
    argv = [tool] if tool == "make" else [tool, "-j1"]
    prepare(project, files)
    plain = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True)
    prepare(project, files)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", *argv]
    lazy = lazyck(*words, cwd=project, env=env)
    assert lazy.returncode == plain.returncode
    assert own_words(lazy.stdout) == own_words(plain.stdout)
    assert own_words(lazy.stderr) == own_words(plain.stderr)
    assert word in plain.stdout + plain.stderr and (plain.returncode != 0) == (broken != "warning")
    assert "Traceback" not in lazy.stderr
