"""Tests that no wait is silent, and that an interrupted wait ends in one line."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import HERE, REPOSITORY, Lazyck, read_to_end, wait_until
from support.twice_project import COMPILE, run_library, write_project

from lazyck import waiting


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST", "INTERVAL", "_REDRAW"):
        monkeypatch.setattr(waiting, name, 0.05)


def test_a_log_has_a_line_now_and_then_and_one_at_the_end(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    with waiting.saying("cooking"):
        wait_until(lambda: said.getvalue().count("\n") > 1)
    *lines, last = said.getvalue().splitlines()
    assert len(lines) > 1
    assert {re.sub(r"\d+", "N", line) for line in lines} == {"lazyck: cooking (N s so far)"}
    assert re.sub(r"\d+", "N", last) == "lazyck: cooking: done in N s"


def test_a_terminal_has_one_line_which_goes_away(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with waiting.saying("cooking"):
            first = os.read(ours, 65536).decode()
    said = first + read_to_end(ours)
    os.close(ours)
    wiped = said.split("\r\x1b[K")
    assert wiped[0] == wiped[-1] == ""
    assert {re.sub(r"\d+", "N", line) for line in wiped[1:-1]} == {"lazyck: cooking (N s)"}


def test_the_inner_of_two_waits_speaks(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    with waiting.saying("cooking"), waiting.saying("boiling"):
        wait_until(lambda: said.getvalue().count("boiling") > 2)
    assert "cooking" not in said.getvalue()


@pytest.mark.parametrize(("level", "spoken"), [("", True), ("info", True), ("warn", False), ("error", False)])
def test_what_is_quick_or_unwanted_is_not_said(
    impatient: None, monkeypatch: pytest.MonkeyPatch, level: str, spoken: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", said := io.StringIO())
    monkeypatch.setenv("LAZYCK_LOG", level)
    with waiting.saying("cooking"):
        pass
    assert said.getvalue() == ""
    with waiting.saying("cooking"):
        if spoken:
            wait_until(said.getvalue)
        else:
            time.sleep(0.2)  # four times the time after which it would be said
    assert bool(said.getvalue()) == spoken


# What takes long in these builds is the compile of the runtime, which this compiler does once for
# all tests. $RUNTIME is a shell command before it, and $PROBE one before blobs are probed.
COMPILER = """#!/bin/sh
case "$*" in *runtime.cpp*) what=runtime ;; *batch*) what=probe ;; *) exec c++.real "$@" ;; esac
echo "begin $what" >> "$LOG"
if [ $what = probe ]; then
    eval "$PROBE"
    c++.real "$@" || exit
else
    eval "$RUNTIME"
    for out; do :; done
    [ -e kept ] || { c++.real "$@" -O0 && mv "$out" kept; } || exit
    cp kept "$out"
fi
echo "end $what" >> "$LOG"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with that compiler."""
    directory = tmp_path_factory.mktemp("bin")
    compiler = directory / "c++"
    compiler.write_text(COMPILER.replace("c++.real", HERE.cxx).replace("kept", str(directory / "runtime.o")))
    compiler.chmod(0o755)
    return directory


def test_a_first_build_says_what_it_waits_for_and_ends_in_one_line(
    tmp_path: Path, programs: Path, lazyck: Lazyck
) -> None:
    write_project(tmp_path, [1])
    (tmp_path / "build.sh").write_text("set -e\n" + COMPILE + "c++ -shared -o libx.so dispatch.o v1.o\n")
    env = {
        "XDG_CACHE_HOME": str(tmp_path / "fresh"),  # the runtime has not been compiled here
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LOG": "/dev/null",
    }
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", "sh", "build.sh"]
    running = subprocess.Popen(
        [sys.executable, "-m", "lazyck", *map(str, words)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env, "RUNTIME": "sleep 600"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )
    said = ""
    assert running.stderr is not None
    try:
        for line in running.stderr:
            said += line
            if "compiling lazyck's runtime with" in line:
                break
    finally:
        os.killpg(running.pid, signal.SIGINT)
    rest = running.communicate(timeout=120)[1]
    assert running.returncode != 0
    assert "compiling lazyck's runtime with" in said, said
    assert "Traceback" not in rest, rest
    assert rest.count("lazyck: ") == 1, rest
    assert "lazyck: interrupted\n" in rest
    done = lazyck(*words, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert run_library(tmp_path / "libx.so", 1, 10).stdout == "21\n"


def test_the_runtime_is_compiled_while_blobs_are_probed(tmp_path: Path, programs: Path, lazyck: Lazyck) -> None:
    write_project(tmp_path, [1])
    (tmp_path / "build.sh").write_text("set -e\n" + COMPILE + "c++ -shared -o libx.so dispatch.o v1.o\n")
    log = tmp_path / "log"
    # With two jobs, each waits for the other. With one, the runtime has time to begin too early.
    until = 'for i in $(seq 600); do grep -q "{}" "$LOG" && break; sleep 0.05; done'
    at_once = {"PROBE": until.format("begin runtime"), "RUNTIME": until.format("end probe")}
    for jobs, env, order in (
        ("2", at_once, "begin runtime, end probe, end runtime"),
        ("1", {"PROBE": "sleep 1"}, "end probe, begin runtime, end runtime"),
    ):
        log.unlink(missing_ok=True)
        full = {
            "XDG_CACHE_HOME": str(tmp_path / f"fresh{jobs}"),  # the runtime has not been compiled here
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LOG": str(log),
            **env,
        }
        tmp = tmp_path / f"tmp{jobs}"
        words = ["build", "full", "--toolchain", "host", "--jobs", jobs, "--tmp-dir", tmp, "--", "sh", "build.sh"]
        done = lazyck(*words, cwd=tmp_path, env=full)
        assert done.returncode == 0, done.stderr
        said = [line for line in log.read_text().splitlines() if line != "begin probe"]
        assert ", ".join(dict.fromkeys(said)) == order
