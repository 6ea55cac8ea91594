"""Test that a trace (`LAZYCK_TRACE`) is whole at any time: while processes append to it, and after
one was killed."""

import fcntl
import json
import os
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import wait_until
from support.four_blobs import BLOBS, CALLER, HEADER, MAIN, NAMES, SYMBOLS, slow_compiler, start
from support.lazylib import LazyLibrary, build_lazy_library

from lazyck.history.events import read_trace


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    where = tmp_path / "lib"
    where.mkdir()
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    made.program(CALLER)
    return made


def load(trace: Path) -> list[dict[str, Any]]:
    """Read the trace as JSON, under its lock. A reader needs the lock only if a write happens at
    the same moment."""
    with trace.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        events: list[dict[str, Any]] = json.load(file)
    return events


def spans(trace: Path) -> list[tuple[str, str]]:
    return [(e["cat"], e["name"]) for e in load(trace) if e["ph"] == "X" and e["cat"] != "wait"]


def call(lib: LazyLibrary, trace: Path, *blobs: int) -> subprocess.CompletedProcess[str]:
    done = lib.call(lib.directory / "main", *map(str, blobs), env={"LAZYCK_TRACE": str(trace)})
    assert done.returncode == 0, done
    return done


def test_a_killed_process_leaves_a_whole_trace(lib: LazyLibrary, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    slow_compiler(lib, 'case " $* " in *two.cpp*) sleep 60 ;; esac;')
    running = start(lib, 1, 2, env={"LAZYCK_TRACE": str(trace)})
    wait_until(lambda: lib.compiles("two"))
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    assert spans(trace) == [("compile", "one"), ("load", "one")]
    call(lib, trace, 1)  # the next process continues the trace
    assert spans(trace) == [("compile", "one"), ("load", "one"), ("load", "one")]


def test_processes_that_append_at_once_lose_nothing_whoever_is_killed(lib: LazyLibrary, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    call(lib, trace, 1, 2, 3, 4)
    before = len(spans(trace))
    running = [start(lib, 1, 2, 3, 4, env={"LAZYCK_TRACE": str(trace), "RANK": str(i)}) for i in range(12)]
    doomed = running[::4]
    for process in doomed:
        process.kill()
    while any(p.poll() is None for p in running):
        load(trace)
    for process in running:
        process.communicate()
    living = {p.pid for p in running if p not in doomed}
    loads = [e for e in load(trace) if e["ph"] == "X" and e["pid"] in living]
    assert sorted((e["pid"], e["name"]) for e in loads) == sorted((pid, name) for pid in living for name in NAMES)
    assert len(read_trace(trace).events) >= before + len(loads)
    assert {e["args"]["name"].split(",")[0] for e in load(trace) if e["ph"] == "M" and e["pid"] in living} == {
        f"rank {i}" for i in range(12) if i % 4
    }


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> tuple[LazyLibrary, str]:
    """Build a library with all called blobs in its cache. Return the library and the trace of
    that."""
    where = tmp_path_factory.mktemp("traced")
    (where / "lib").mkdir()
    made = build_lazy_library(where / "lib", objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    made.program(CALLER)
    call(made, where / "trace", 1, 2)
    return made, (where / "trace").read_text()


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 4, 20, 400, -1])
def test_a_line_that_was_cut_short_is_left_out(cached: tuple[LazyLibrary, str], tmp_path: Path, lost: int) -> None:
    lib, text = cached
    trace = tmp_path / "trace.json"
    trace.write_text(text[: len(text) - lost] if lost >= 0 else "[")
    whole = trace.read_text().count("}},\n") + trace.read_text().endswith(("}}", "}}\n", "}}\n]", "}}\n]\n"))
    call(lib, trace, 1)
    kept = len(load(trace)) - 2  # without the new process's name and its load
    assert kept == whole - (lost == 3)  # a last "}}" without a newline may not be the end of its line
    assert spans(trace)[-1] == ("load", "one")


def test_a_trace_of_an_older_version_without_an_end_goes_on(cached: tuple[LazyLibrary, str], tmp_path: Path) -> None:
    lib, text = cached
    trace = tmp_path / "trace.json"
    trace.write_text(text.removesuffix("\n]\n") + ",\n")
    call(lib, trace, 1)
    assert len(load(trace)) == len(json.loads(text)) + 2


@pytest.mark.parametrize("text", ["import os\n", '{"a": 1}\n', "[1, 2"])
def test_a_file_that_is_no_trace_is_left_as_it_is(cached: tuple[LazyLibrary, str], tmp_path: Path, text: str) -> None:
    lib, _ = cached
    (tmp_path / "mine").write_text(text)
    done = call(lib, tmp_path / "mine", 1, 2)
    assert done.stderr.count(f"cannot write the trace '{tmp_path}/mine': it holds something other than a trace") == 1
    assert (tmp_path / "mine").read_text() == text


def test_whoever_keeps_the_trace_locked_keeps_nobody_waiting(cached: tuple[LazyLibrary, str], tmp_path: Path) -> None:
    lib, text = cached
    trace = tmp_path / "trace.json"
    trace.write_text(text)
    with trace.open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        done = call(lib, trace, 1, 2)
    assert done.stderr.count(f"cannot write the trace '{trace}': another process holds its lock") == 1
    assert trace.read_text() == text


def has_open(process: int, file: Path) -> bool:
    """Return whether the process has the file open."""
    return any(os.path.realpath(fd) == str(file) for fd in Path(f"/proc/{process}/fd").glob("*"))


def test_whoever_meets_another_write_waits_for_its_end(cached: tuple[LazyLibrary, str], tmp_path: Path) -> None:
    lib, text = cached
    trace = tmp_path / "trace.json"
    trace.write_text(text.removesuffix("\n]\n") + ",\n{")  # half of a write
    with trace.open("a") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        running = start(lib, 1, env={"LAZYCK_TRACE": str(trace)})
        wait_until(lambda: has_open(running.pid, trace) or running.poll() is not None)
        writer.write("}\n]\n")  # the other half
    _, said = running.communicate()
    assert (running.returncode, said) == (0, "")
    assert len(load(trace)) == len(json.loads(text)) + 3


def test_a_full_disk_leaves_the_trace_whole(cached: tuple[LazyLibrary, str], tmp_path: Path) -> None:
    lib, _ = cached
    trace = tmp_path / "trace.json"
    filler = json.dumps({"ph": "M", "name": "x" * 4_000_000})
    trace.write_text(f"[\n{filler}\n]\n")
    before = trace.read_text()

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 60, len(before) + 60))

    env = {**os.environ, **lib.env, "LAZYCK_TRACE": str(trace)}
    done = subprocess.run(
        lib.words(lib.directory / "main", "1"), env=env, preexec_fn=limit, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done
    assert "cannot write the trace" in done.stderr and "File too large" in done.stderr
    assert trace.read_text() == before
