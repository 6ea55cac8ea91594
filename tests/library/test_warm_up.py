"""Test the contract with engines: the end of warm-up, LAZYCK_JIT, waiting for what is in flight,
and expected times."""

import json
import os
import re
from pathlib import Path

import pytest
from support.demo_libraries import Python, slow

# Calls `one` during warm-up and `two` after it; the third call finds `two` loaded.
SERVE = """
library = lazyck.load(path)
print(library._handle.call(1, 10))
lazyck.ready()
print([library._handle.call(which, 10) for which in (1, 2, 2)])
print(library.ready(False), library.ready(True))
"""


@pytest.mark.parametrize("mode", ["", "on", "warn", "error"])
def test_the_mode_decides_on_a_call_that_compiles_after_warm_up(python: Python, mode: str) -> None:
    done = python(SERVE, LAZYCK_JIT=mode)
    after = "[11, -1, -1]" if mode == "error" else "[11, 12, 12]"
    assert done.stdout.splitlines() == ["11", after, "True False"]
    late = [line for line in done.stderr.splitlines() if "after warm-up was over" in line]
    assert len(late) == (mode == "warn"), done.stderr
    assert all(
        re.match(r"\[lazyck\] warn: a call waited [\d.]+ s for the compile of two for \w+ ", line) for line in late
    )
    assert ("compiled two" in done.stderr) == (mode != "error")


def test_a_refused_call_says_why_and_a_second_warm_up_may_compile(python: Python) -> None:
    done = python(
        """
library = lazyck.load(path)
lazyck.ready()
try:
    library.prefetch(["three"]).wait()
except lazyck.CompileError as error:
    print(error)
lazyck.ready(False)
print(library.prefetch(["three"]).wait().ready, library.ready())
print(library._handle.call(3, 10))
""",
        LAZYCK_JIT="error",
    )
    *said, ready, called = done.stdout.splitlines()
    assert "and LAZYCK_JIT=error after warm-up (lazyck_ready) forbids compiling it" in said[0]
    assert (ready, called) == ("1 False", "13")


def test_what_a_cache_has_is_no_late_compile(python: Python) -> None:
    python("lazyck.load(path).prefetch().wait()")
    for mode in ("warn", "error", "off"):
        done = python(SERVE, LAZYCK_JIT=mode)
        assert done.stdout.splitlines()[:2] == ["11", "[11, 12, 12]"]
        assert "warning" not in done.stderr


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"LAZYCK_JIT": "off"}, "LAZYCK_JIT=off"),
        ({"LAZYCK_JIT": "maybe"}, "LAZYCK_JIT=maybe: must be on, warn, error or off"),
    ],
)
def test_off_refuses_from_the_start_and_a_value_that_makes_no_sense_is_an_error(
    python: Python, env: dict[str, str], why: str
) -> None:
    done = python(
        """
try:
    lazyck.load(path).prefetch(["one"]).wait()
except lazyck.CompileError as error:
    print(error)
""",
        **env,
    )
    assert why in done.stdout
    if "maybe" not in why:
        assert f"and {why} forbids compiling it" in done.stdout


def test_a_block_restores_what_the_mode_forbids(python: Python) -> None:
    done = python(
        """
with lazyck.forbid_jit():
    library = lazyck.load(path)
print(library._handle.call(1, 10))
""",
        LAZYCK_JIT="off",
    )
    assert done.stdout == "-1\n"


def test_a_library_that_is_loaded_after_warm_up_is_ready_too(python: Python) -> None:
    done = python(
        """
lazyck.load(path)
lazyck.ready()
late = lazyck.load(other)
try:
    late.prefetch(["four"]).wait()
except lazyck.CompileError as error:
    print("refused")
print(late.ready())
""",
        LAZYCK_JIT="error",
    )
    assert done.stdout.splitlines() == ["refused", "True"]


def test_without_lazy_libraries_ready_and_drain_do_nothing(python: Python) -> None:
    assert python("print(lazyck.ready(), lazyck.drain(0))").stdout == "None True\n"


def test_a_late_compile_has_fields_in_a_log_of_json(python: Python) -> None:
    done = python(SERVE, LAZYCK_JIT="warn", LAZYCK_LOG_FORMAT="json")
    (late,) = (row for row in map(json.loads, done.stderr.splitlines()) if row["event"] == "late")
    assert (late["blob"], late["outcome"], late["level"]) == ("two", "compiled", "warn")
    assert late["seconds"] > 0


# -- waiting ---------------------------------------------------------------------------------------


def test_drain_waits_for_calls_and_prefetches(python: Python) -> None:
    script = slow(python.demo.compiler, "sleep 0.4")
    try:
        done = python("""
import threading
library = lazyck.load(path)
print(lazyck.drain(0))
call = threading.Thread(target=library._handle.call, args=(1, 10))
call.start()
while library.stats().misses == 0:
    pass
print(lazyck.drain(0), lazyck.drain(0.05), lazyck.drain(), call.join())
job = library.prefetch(["two", "three"], workers=1)
print(library.drain(0), job.progress().is_over)
print(library.drain(), job.progress().ready, library.drain(0))
""")
    finally:
        python.demo.compiler.write_text(script)
    assert done.stdout.splitlines() == ["True", "False False True None", "False False", "True 2 True"]


def test_a_child_of_fork_has_nothing_in_flight(python: Python) -> None:
    script = slow(python.demo.compiler, "sleep 0.4")
    try:
        done = python("""
import os
library = lazyck.load(path)
job = library.prefetch(["one"])
while library.stats().misses == 0:
    pass
child = os.fork()
if child == 0:
    is_idle = library.drain(0)
    job.progress()
    os._exit(0 if is_idle and library._handle.call(2, 10) == 12 and library.drain(0) else 1)
print(library.drain(0), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), library.drain())
""")
    finally:
        python.demo.compiler.write_text(script)
    assert done.stdout.splitlines() == ["False 0 True"]


# -- expected times --------------------------------------------------------------------------------


def test_a_prefetch_and_its_events_tell_the_expected_seconds(python: Python) -> None:
    script = slow(python.demo.compiler, "sleep 0.5")
    try:
        first = python("print(lazyck.load(path).prefetch(['one', 'two'], workers=1).progress().seconds_left)")
        python("lazyck.load(path).prefetch(['one', 'two']).wait()")
        for entry in Path(os.environ["LAZYCK_CACHE_DIR"]).rglob("*.so"):
            entry.unlink()
        again = python("""
library = lazyck.load(path)
heard = []
with library.on_event(heard.append):
    job = library.prefetch(["one", "two"], workers=1)
    left = []
    job.wait(on_progress=lambda now: left.append(now.seconds_left))
print(left[0], left[-1])
print([e.expected for e in heard if e.kind == "compile" and not e.has_ended])
""")
    finally:
        python.demo.compiler.write_text(script)
    assert first.stdout == "None\n"
    begin, end = re.fullmatch(r"([\d.]+) ([\d.]+)", again.stdout.splitlines()[0]).groups()  # type: ignore[union-attr]
    assert float(begin) > 0.5 and float(end) == 0
    expected = json.loads(again.stdout.splitlines()[1])
    assert len(expected) == 2 and min(expected) >= 0.5
