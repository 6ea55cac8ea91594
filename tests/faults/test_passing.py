"""Tests that the next call retries after a transient failure, but not after an error of the
compiler."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from support import wait_until
from support.faultlib import GOOD, Patient


@pytest.fixture
def compiler(patient: Patient) -> Iterator[Patient]:
    """Yield the library, and restore its compiler at the end."""
    script = patient.lib.compiler.read_text()
    yield patient
    patient.lib.compiler.unlink(missing_ok=True)
    patient.lib.compiler.write_text(script)
    patient.lib.compiler.chmod(0o755)


def fail_once(patient: Patient, how: str) -> None:
    """Make the first compile end by the shell command `how`."""
    script = patient.lib.compiler.read_text()
    mark = patient.cache.parent / "has-failed"
    mark.unlink(missing_ok=True)
    lead, rest = script.split("\nexec ", 1)
    patient.lib.compiler.write_text(f"{lead}\n[ -f {mark} ] || {{ touch {mark}; {how}; }}\nexec {rest}")


@pytest.mark.parametrize(
    "how",
    [
        "kill -9 $$",
        "exit 137",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
        "echo 'c++: internal compiler error: Killed (program cc1plus)' >&2; exit 4",
        "echo 'clang++: error: unable to execute command: Killed' >&2; exit 254",
        "echo \"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\" >&2; exit 9",
        "echo 'cc1plus: out of memory allocating 65536 bytes' >&2; exit 1",
        "echo 'virtual memory exhausted: Cannot allocate memory' >&2; exit 1",
        "echo 'LLVM ERROR: out of memory' >&2; exit 134",
        "echo 'terminate called: std::bad_alloc' >&2; exit 134",
    ],
)
def test_compiler_that_had_no_memory_is_started_again_by_the_same_call(compiler: Patient, how: str) -> None:
    fail_once(compiler, how)
    done = compiler.call()
    assert (done.returncode, done.stdout) == (0, GOOD), done
    assert "the compiler of add for" in done.stderr and "ran out of memory: retrying" in done.stderr
    compiler.expect_recovery()


@pytest.mark.parametrize(
    "how",
    [
        "kill -15 $$",
        "echo 'sh: fork: Resource temporarily unavailable' >&2; exit 1",
        "echo 'error: cannot open a.h: Too many open files' >&2; exit 1",
        "exit 1",  # without any message
    ],
)
def test_passing_failure_of_the_compiler_is_tried_again_by_the_next_call(compiler: Patient, how: str) -> None:
    fail_once(compiler, how)
    done = compiler.call("2")
    assert done.returncode == 0, done
    assert done.stdout.startswith("add failed: ")
    assert done.stdout.endswith(GOOD)
    assert "lazyck_clear_failures" not in done.stdout
    compiler.expect_recovery()


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded", "Read-only file system"])
def test_compiler_that_finds_no_room_is_started_again_elsewhere(compiler: Patient, words: str) -> None:
    fail_once(compiler, f"echo 'fatal error: error writing to blob.o: {words}' >&2; exit 1")
    done = compiler.call()
    assert (done.returncode, done.stdout) == (0, GOOD), done
    assert f"cannot write to the cache '{compiler.cache}' ({words})" in done.stderr
    compiler.expect_recovery()


@pytest.mark.parametrize(
    "how",
    [
        "echo 'add.cpp:2: error: oops was not declared' >&2; exit 1",
        "echo 'ld: cannot find -lgone' >&2; exit 1",
        "echo 'internal compiler error: Segmentation fault' >&2; exit 4",
    ],
)
def test_refusal_is_remembered_for_the_process_only(compiler: Patient, how: str) -> None:
    fail_once(compiler, how)
    done = compiler.call("1000", "0")
    assert done.returncode == 3, done
    assert done.stdout.count("add failed") == 1000
    assert done.stdout.endswith("sub: 3\n")
    assert compiler.lib.compiles() == 2
    compiler.expect_recovery()


def wait_for_failure(patient: Patient, tries: str = "500") -> subprocess.Popen[str]:
    process = patient.start(tries)
    assert process.stdout
    assert process.stdout.readline().startswith("add failed")
    return process


def finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (out, err)
    # Failures may stand between the results: one blob can be back before the other.
    assert "".join(line for line in out.splitlines(True) if " failed: " not in line) == GOOD, out


def test_missing_compiler_that_comes_back(compiler: Patient) -> None:
    away = compiler.lib.compiler.with_name("away")
    compiler.lib.compiler.rename(away)
    process = wait_for_failure(compiler)
    away.rename(compiler.lib.compiler)
    finish(process)
    compiler.expect_recovery()


def test_compiler_that_is_being_written(compiler: Patient) -> None:
    with compiler.lib.compiler.open("a"):
        process = wait_for_failure(compiler)
    finish(process)
    compiler.expect_recovery()


def test_compiler_replaced_while_it_compiles(compiler: Patient) -> None:
    script = compiler.lib.compiler.read_text()
    compiler.lib.compiler.write_text(script.replace("#!/bin/sh\n", "#!/bin/sh\nsleep 0.5\n", 1))
    process = compiler.start()
    wait_until(lambda: list(compiler.cache.glob(".staging/add-*")), pause=0.01)
    upgraded = compiler.lib.compiler.with_name("upgraded")
    upgraded.write_text(script.replace("#!/bin/sh\n", "#!/bin/sh\n# version 2\n", 1))
    upgraded.chmod(0o755)
    os.replace(upgraded, compiler.lib.compiler)
    finish(process)
    compiler.expect_recovery()


@pytest.mark.parametrize("is_moved", [True, False])
def test_bundle_that_goes_away_and_comes_back(patient: Patient, is_moved: bool) -> None:
    bundle = patient.lib.directory / "lazyck"
    away = patient.lib.directory / "elsewhere"
    bundle.rename(away)
    process = patient.start("500")
    assert process.stdout
    line = process.stdout.readline()
    assert line.startswith("add failed")
    assert "LAZYCK_ROOT" in line
    if is_moved:  # a new process is told where to look
        done = patient.call(env={"LAZYCK_ROOT": str(away)})
        assert (done.returncode, done.stdout) == (0, GOOD), done
    away.rename(bundle)
    finish(process)
    patient.expect_recovery()


def test_cache_emptied_under_a_running_compile(compiler: Patient) -> None:
    script = compiler.lib.compiler.read_text()
    compiler.lib.compiler.write_text(script.replace("#!/bin/sh\n", "#!/bin/sh\nsleep 0.5\n", 1))
    process = compiler.start()
    wait_until(lambda: list(compiler.cache.glob(".staging/add-*")), pause=0.01)
    shutil.rmtree(compiler.cache)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, GOOD), err
    assert "compiled blobs go to" not in err, err  # they go into the cache, which is recreated
    compiler.expect_recovery()
