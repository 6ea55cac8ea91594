"""Test the example server with real requests: its health endpoint during warm-up, and calls after
it under each mode of LAZYCK_JIT."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, Lazyck, Once, wait_until

EXAMPLE = REPOSITORY / "examples" / "serve"
Ask = Callable[[str], tuple[int, dict[str, Any]]]


@pytest.fixture
def library(once: Once, lazyck_shared: Lazyck) -> Path:
    """Build the example's library, and record two of its four kernels in a profile beside it."""

    def make(place: Path) -> Path:
        shutil.copytree(EXAMPLE, place / "serve")
        words = ("build", "full", "--toolchain", "host", "--blobs", "*/gen/*.cpp", "--", "make", "--quiet")
        done = lazyck_shared(*words, cwd=place / "serve")
        assert "4 blobs deferred, 4 lazy with 4 symbols, 0 eager" in done.stderr, done.stderr
        return place / "serve" / "libserve.so"

    return once("example-serve", make)


@pytest.fixture
def profile(library: Path, tmp_path: Path) -> Path:
    words = (sys.executable, str(EXAMPLE / "server.py"), str(library), "record", str(tmp_path / "warm.profile"))
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_CACHE_DIR": str(tmp_path / "recorded")}
    subprocess.run([*words, "2", "3"], env=env, check=True, timeout=120)
    return tmp_path / "warm.profile"


@pytest.fixture
def serve(library: Path, profile: Path, tmp_path: Path) -> Iterator[Callable[..., Ask]]:
    started: list[subprocess.Popen[str]] = []

    def run(**env: str) -> Ask:
        words = (sys.executable, str(EXAMPLE / "server.py"), str(library), "serve", str(profile), "0")
        full = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
        with (tmp_path / "log").open("a") as log:
            server = subprocess.Popen(words, env=full, stdout=subprocess.PIPE, stderr=log, text=True)
        started.append(server)
        assert server.stdout is not None
        address = server.stdout.readline().strip()

        def ask(path: str) -> tuple[int, dict[str, Any]]:
            try:
                with urllib.request.urlopen(address + path, timeout=120) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as e:
                return e.code, json.load(e)

        return ask

    yield run
    for server in started:
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def health_until_ready(ask: Ask) -> list[tuple[int, dict[str, Any]]]:
    """Ask for the health until the server is ready, and return the answers."""
    answers: list[tuple[int, dict[str, Any]]] = []

    def is_ready() -> bool:
        answers.append(ask("/health"))
        return answers[-1][0] == 200

    wait_until(is_ready, 120, said=lambda: f"never ready: {answers[-1]}")
    return answers


def test_the_health_tells_the_warm_up_and_afterwards_only_warm_kernels_are_called(
    serve: Callable[..., Ask], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    launcher = tmp_path / "wait"
    launcher.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\nexec "$@"\n')
    launcher.chmod(0o755)
    ask = serve(LAZYCK_JIT="error", LAZYCK_LAUNCHER=str(launcher), LAZYCK_JOBS="1")
    status, said = ask("/health")
    assert (status, said["status"], said["ready"], said["total"]) == (503, "warming up", 0, 2)
    assert said["seconds_left"] >= 0  # the profile has what the compiles took
    gate.touch()
    answers = health_until_ready(ask)
    assert answers[-1] == (200, {"status": "ready", "ready": 2, "total": 2})
    assert ask("/scale?factor=3&x=1&x=2") == (200, {"y": [3.0, 6.0]})
    status, said = ask("/scale?factor=5&x=1")
    assert status == 500 and "LAZYCK_JIT=error after warm-up (lazyck_ready) forbids compiling it" in said["error"]
    assert ask("/scale?factor=3&x=4") == (200, {"y": [12.0]})
    assert "compiled scale_5" not in (tmp_path / "log").read_text()


def test_under_warn_a_late_kernel_is_compiled_and_reported(serve: Callable[..., Ask], tmp_path: Path) -> None:
    ask = serve(LAZYCK_JIT="warn")
    health_until_ready(ask)
    assert ask("/scale?factor=5&x=1") == (200, {"y": [5.0]})
    assert ask("/scale?factor=5&x=2") == (200, {"y": [10.0]})
    late = [line for line in (tmp_path / "log").read_text().splitlines() if "after warm-up was over" in line]
    assert len(late) == 1 and " scale_5 " in late[0]


def test_a_kernel_that_does_not_compile_is_told_by_the_health(serve: Callable[..., Ask]) -> None:
    ask = serve(LAZYCK_JIT="error", LAZYCK_LAUNCHER="false")
    wait_until(lambda: ask("/health")[1]["status"] != "warming up", 120)
    answer = ask("/health")
    assert answer[0] == 503 and answer[1]["status"] == "failed" and "cannot compile blob" in answer[1]["error"]


@pytest.mark.parametrize("path", ["/scale", "/scale?factor=x&x=1", "/scale?factor=4&x=1", "/nothing"])
def test_requests_that_make_no_sense_are_errors_and_the_server_goes_on(serve: Callable[..., Ask], path: str) -> None:
    ask = serve()
    status, said = ask(path)
    assert status >= 400 and said["error"]
    health_until_ready(ask)
    assert ask("/scale?factor=2&x=1") == (200, {"y": [2.0]})
