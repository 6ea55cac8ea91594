"""Tests kills, torn files and refused calls between lock and publish: the next run finds a whole
entry or makes one.

`python -m tests.faults` runs these cases for as long as asked.
"""

import errno
import fcntl
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import REPOSITORY, wait_until
from support.faultlib import (
    ERRORS,
    EVERY_STEP,
    GOOD,
    Patient,
    fail_each_call,
    kill_at_each_step,
    kill_at_random,
    tear,
    tear_an_entry,
)


def test_killed_at_random_moments(patient: Patient) -> None:
    dice = random.Random(4)
    longest = patient.seconds()
    ends: list[str] = []
    while ends.count("killed") < 6 and len(ends) < 60:  # the other kills come too late
        ends.append(kill_at_random(patient, dice, longest))
    assert ends.count("killed") == 6, ends


def test_killed_at_each_step_from_the_first_look_to_the_last_unlock(patient: Patient) -> None:
    steps = [line.split(" ", 1)[1] for line in kill_at_each_step(patient, until="/sub-")]
    operations = {step.split()[0] for step in steps}
    assert operations == set(EVERY_STEP.split(",")), steps
    lock, entry, spawns = [], [], []
    for at, step in enumerate(steps):
        if step.startswith("flock ") and "/.locks/add-" in step:
            lock.append(at)
        if step.startswith("rename ") and step.endswith(".so"):
            entry.append(at)
        if step.startswith("spawn"):
            spawns.append(at)
    # The process locks, compiles and links (each by way of a watcher and its second thread),
    # publishes and unlocks. It was killed before each of these steps.
    assert (len(lock), len(entry), len(spawns)) == (2, 1, 6), steps
    assert lock[0] < spawns[0] < spawns[5] < entry[0] < lock[1], steps


def test_torn_entries_are_found_and_made_again(patient: Patient) -> None:
    dice = random.Random(5)
    ends = [tear_an_entry(patient, dice) for _ in range(25)]
    assert ends.count("torn") > 20


def test_torn_seen_file_is_not_believed(patient: Patient) -> None:
    patient.expect_recovery()
    seen = [e.with_name(e.name + ".seen") for e in patient.entries()]

    def are_all_seen() -> bool:  # they are written when an entry's change time is two seconds old
        patient.expect_recovery()
        return all(s.exists() for s in seen)

    wait_until(are_all_seen, pause=0.3)
    whole = [s.read_bytes() for s in seen]
    dice = random.Random(6)
    for _ in range(10):
        for path, data in zip(seen, whole, strict=True):
            path.write_bytes(tear(data, dice))
        assert patient.expect_recovery().stderr == ""
    assert [s.read_bytes() for s in seen] == whole


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EIO"])
def test_each_call_of_the_publish_path_may_fail_once(patient: Patient, error: str) -> None:
    failed = fail_each_call(patient, ERRORS[error])
    operations = {line.split()[1] for line in failed}
    assert operations >= {"mkdir", "open", "write", "fsync", "rename"}, failed
    assert len(failed) > 20


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_each_call_of_unpacking_a_bundle_may_fail_once(packed: Patient, error: str) -> None:
    failed = fail_each_call(packed, ERRORS[error])
    calls = {line.split()[1] for line in failed if "bundle" in line}
    assert calls >= {"mkdir", "open", "rename"}, failed


def test_killed_at_each_step_with_a_bundle_that_is_unpacked(packed: Patient) -> None:
    steps = [line.split(" ", 1)[1] for line in kill_at_each_step(packed, until="/sub-")]
    assert [step for step in steps if step.startswith("rename ") and "/.bundles/" in step], steps


def test_what_fails_everywhere_is_tried_again_by_the_next_call(patient: Patient) -> None:
    # The first sixty calls fail, wherever they write.
    env = patient.faulty(1, ERRORS["ENOSPC"], FAULT_BELOW="/", FAULT_LAST="60")
    done = patient.call("50", env=env)
    assert done.returncode == 0, done
    assert done.stdout.endswith(GOOD), done
    assert "No space left on device" in done.stdout
    assert "no other place can be written either: set LAZYCK_CACHE_DIR" in done.stdout
    patient.expect_recovery()


@pytest.mark.parametrize("error", ["EAGAIN", "ENOMEM"])
def test_compiler_that_cannot_be_started_for_once(patient: Patient, error: str) -> None:
    env = patient.faulty(1, getattr(errno, error), FAULT_OPS="spawn")
    done = patient.call("2", env=env)
    assert done.returncode == 0, done
    assert "add failed: " in done.stdout
    assert "cannot start" in done.stdout and os.strerror(getattr(errno, error)) in done.stdout
    assert "install that compiler" not in done.stdout
    patient.expect_recovery()


def test_entry_that_cannot_be_opened_for_lack_of_descriptors_stays(patient: Patient) -> None:
    patient.expect_recovery()
    whole = [e.read_bytes() for e in patient.entries()]
    for entry in patient.entries():
        entry.with_name(entry.name + ".seen").unlink(missing_ok=True)
    env = patient.faulty(1, errno.EMFILE, FAULT_OPS="read", FAULT_LAST="3")
    done = patient.call("9", env=env)
    assert done.returncode == 0, done
    assert not list(patient.cache.glob("v1/*/*/*.bad-*"))
    assert [e.read_bytes() for e in patient.entries()] == whole


def make_left_over(patient: Patient, name: str, age: float = 3600) -> Path:
    directory = patient.cache / ".staging" / name
    directory.mkdir(parents=True)
    (directory / "blob.o").write_bytes(b"x" * 100)
    os.utime(directory, (time.time() - age,) * 2)
    return directory


def test_what_killed_processes_left_is_removed_and_nothing_else(patient: Patient) -> None:
    patient.expect_recovery()
    for entry in patient.entries():
        entry.unlink()
    host = os.uname().nodename
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE, text=True)
    gone = dead.stdout.strip()
    left_over = make_left_over(patient, f"add-{gone}@{host}-aBc123")
    from_future = make_left_over(patient, f"add-{gone}@{host}-aBc124", age=-3600)
    kept = [
        make_left_over(patient, f"add-{os.getpid()}@{host}-aBc123"),  # its process is alive
        make_left_over(patient, f"add-{gone}@x{host}-aBc123"),  # it is of another host
        make_left_over(patient, f"add-{gone}@{host}-aBc125", age=5),  # it is too young
        make_left_over(patient, "something else"),
    ]
    held = make_left_over(patient, f"add-{gone}@{host}-aBc126")
    with subprocess.Popen(["flock", "--shared", str(held), "sh", "-c", "echo; cat"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as holder:  # fmt: skip
        assert holder.stdout and holder.stdin
        holder.stdout.readline()
        assert patient.call().returncode == 0
        holder.stdin.close()
    assert not left_over.exists()
    assert not from_future.exists()
    assert all(d.is_dir() for d in [*kept, held])


def replace_program(path: Path, text: str) -> None:
    """Replace the program by another file, since a file that is being started cannot be written."""
    new = path.with_name("new")
    new.write_text(text)
    new.chmod(0o755)
    new.replace(path)


def is_held(directory: Path) -> bool:
    """Return whether a process has locked the directory, as PrivateDirectories and
    StagingDirectory of the runtime do."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_killed_process_leaves_a_directory_that_is_known_as_its_own(patient: Patient) -> None:
    script = patient.lib.compiler.read_text()
    replace_program(patient.lib.compiler, script.replace("#!/bin/sh\n", "#!/bin/sh\nsleep 20\n", 1))
    try:
        process = patient.start()
        wait_until(lambda: list(patient.cache.glob(".staging/add-*")), pause=0.01)
        process.kill()
        process.communicate()
        (left,) = patient.cache.glob(".staging/add-*")
        assert left.name.startswith(f"add-{process.pid}@{os.uname().nodename}-")
        # The processes that it had started are killed with it. They need time to end, and hold the
        # directory until then.
        wait_until(lambda: not is_held(left))
        os.utime(left, (time.time() - 3600,) * 2)
    finally:
        replace_program(patient.lib.compiler, script)
    patient.expect_recovery()
    assert not left.exists()


@pytest.mark.parametrize("version", [0, 2, 0xFFFFFFFF])
def test_entries_of_other_versions_of_the_format_are_a_miss(patient: Patient, version: int) -> None:
    patient.expect_recovery()
    (patient.cache / "v0").write_text("a file where a directory may be expected")
    (patient.cache / "v2/demo/x").mkdir(parents=True)
    (patient.cache / "v2/demo/x/add.so").write_bytes(b"of the future")
    for entry in patient.entries():
        data = bytearray(entry.read_bytes())
        struct.pack_into("<I", data, len(data) - 64 + 8, version)
        entry.write_bytes(data)
    done = patient.expect_recovery()
    assert "written by another version of lazyck" in done.stderr
    assert (patient.cache / "v2/demo/x/add.so").read_bytes() == b"of the future"
    (patient.cache / "v0").unlink()


def test_the_command_runs_the_cases_as_often_as_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--help"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--kills" in done.stdout
