"""Tests that calls work although the cache cannot be written or used, and that one line says where
and why."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faultlib import GOOD, OTHER_USER, Patient, public_directory


def can_mount() -> bool:
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="only root may mount, and not in every container")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
AS_OTHER = ("setpriv", "--reuid", str(OTHER_USER), "--regid", str(OTHER_USER), "--clear-groups")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield an empty directory for the program's own temporary files."""
    with public_directory() as directory:
        place = directory / "tmp"
        place.mkdir()
        place.chmod(0o1777)
        yield place


def in_mounts(patient: Patient, script: str, temporary: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script whose mounts only it can see. It finds the places in $CACHE, $TMPDIR and
    $CALLS."""
    patient.cache.mkdir(mode=0o700, exist_ok=True)
    names = {"CACHE": str(patient.cache), "CALLS": str(patient.program), "TMPDIR": str(temporary), **env}
    return subprocess.run(
        ["unshare", "-m", "sh", "-euc", script], capture_output=True, text=True, env=patient.env(names), timeout=120,
        check=False,
    )  # fmt: skip


@needs_mounts
def test_full_file_system(patient: Patient, temporary: Path) -> None:
    script = """
        mount -t tmpfs -o size=256k,mode=700 none "$CACHE"
        "$CALLS" > /dev/null; rm -r "$CACHE"/v1/*                 # directories and locks are there
        dd if=/dev/zero of="$CACHE"/fill bs=1k 2> /dev/null || true
        echo full 1>&2; "$CALLS"; find "$CACHE" -name '*.so'
        rm "$CACHE"/fill
        echo room 1>&2; "$CALLS"; "$CALLS"
        find "$CACHE" -name '*.so' | wc -l
    """
    done = in_mounts(patient, script, temporary)
    assert (done.returncode, done.stdout) == (0, GOOD + GOOD + GOOD + "2\n"), done
    full, room = done.stderr.split("full\n")[1].split("room\n")
    assert "No space left on device" in full
    assert f"compiled blobs go to '{temporary}/lazyck-" in full
    assert "set LAZYCK_CACHE_DIR to a directory that can be written" in full
    assert full.count("cannot write to the cache") == 1
    assert "cannot" not in room
    patient.expect_recovery()


@needs_mounts
@pytest.mark.parametrize("size", ["16k", "48k", "256k"])
def test_a_bundle_that_does_not_fit_is_unpacked_elsewhere(packed: Patient, temporary: Path, size: str) -> None:
    script = f"""
        mount -t tmpfs -o size={size},mode=700 none "$CACHE"
        dd if=/dev/zero of="$CACHE"/fill bs=1k count=200 2> /dev/null || true
        "$CALLS"; "$CALLS"
    """
    done = in_mounts(packed, script, temporary)
    assert (done.returncode, done.stdout) == (0, GOOD + GOOD), done
    packed.expect_recovery()


@needs_mounts
def test_file_system_that_is_too_small_for_any_entry(patient: Patient, temporary: Path) -> None:
    done = in_mounts(patient, 'mount -t tmpfs -o size=16k,mode=700 none "$CACHE"; "$CALLS"; "$CALLS"', temporary)
    assert (done.returncode, done.stdout) == (0, GOOD + GOOD), done
    patient.expect_recovery()


READ_ONLY = 'mount --bind "$CACHE" "$CACHE"; mount -o remount,bind,ro "$CACHE" "$CACHE"; '


@needs_mounts
@pytest.mark.parametrize("held", ["nothing", "one", "all"])
def test_read_only_cache_is_read_and_the_rest_goes_elsewhere(patient: Patient, temporary: Path, held: str) -> None:
    if held != "nothing":
        patient.expect_recovery()
    if held == "one":
        next(e for e in patient.entries() if e.name.startswith("sub")).unlink()
    patient.lib.calls.unlink(missing_ok=True)
    before = sorted(patient.cache.rglob("*"))
    done = in_mounts(patient, READ_ONLY + '"$CALLS"', temporary)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    assert patient.lib.compiles() == {"nothing": 2, "one": 1, "all": 0}[held]
    assert done.stderr.count("Read-only file system") == (0 if held == "all" else 1)
    assert sorted(patient.cache.rglob("*")) == before
    patient.expect_recovery()


@needs_mounts
def test_damaged_entry_of_a_read_only_cache_is_not_loaded(patient: Patient, temporary: Path) -> None:
    patient.expect_recovery()
    for entry in patient.entries():
        entry.write_bytes(entry.read_bytes()[:-100])
    done = in_mounts(patient, READ_ONLY + '"$CALLS"', temporary)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    patient.expect_recovery()


@needs_mounts
def test_cache_mounted_noexec_is_used_by_way_of_memory(patient: Patient, temporary: Path) -> None:
    done = in_mounts(patient, 'mount -t tmpfs -o noexec,mode=700 none "$CACHE"; "$CALLS"; "$CALLS"', temporary)
    assert (done.returncode, done.stdout) == (0, 2 * (GOOD + "from memory\n")), done
    assert patient.lib.compiles() == 2
    patient.expect_recovery()


@needs_mounts
def test_no_home_and_a_noexec_tmp(patient: Patient, temporary: Path) -> None:
    script = 'mount -t tmpfs -o noexec,mode=1777 none "$TMPDIR"; unset HOME LAZYCK_CACHE_DIR XDG_CACHE_HOME; '
    script += f"{' '.join(AS_OTHER)} " + '"$CALLS"'
    done = in_mounts(patient, script, temporary)
    assert (done.returncode, done.stdout) == (0, GOOD + "from memory\n"), done
    patient.expect_recovery()


@needs_root
@pytest.mark.parametrize("home", ["", "/", "/nonexistent", "/root", "relative"])
def test_unknown_user_without_a_home(patient: Patient, temporary: Path, home: str) -> None:
    env = {"LAZYCK_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": home, "TMPDIR": str(temporary)}
    script = patient.lib.compiler.read_text()
    look = f"\nstat -c '%a %u' {temporary}/lazyck-*/ > {temporary}/seen\nexec "
    patient.lib.compiler.write_text(script.replace("\nexec ", look, 1))
    try:
        # The name differs every time, so nobody can have prepared the directory.
        names = set()
        for _ in range(2):
            done = patient.call(env=env, by=AS_OTHER)
            assert (done.returncode, done.stdout) == (0, GOOD), done
            names.add(stand_in(done))
            assert "set LAZYCK_CACHE_DIR" in done.stderr
            assert (temporary / "seen").read_text() == f"700 {OTHER_USER}\n"
            (temporary / "seen").unlink()
            assert not list(temporary.iterdir())  # the directory was for that process alone
        assert len(names) == 2
    finally:
        patient.lib.compiler.write_text(script)
    patient.expect_recovery()


def stand_in(done: subprocess.CompletedProcess[str]) -> Path:
    """Return the place where blobs go, which a call must have named once."""
    assert done.stderr.count("compiled blobs go to '") == 1, done
    return Path(done.stderr.split("compiled blobs go to '")[1].split("'")[0])


@needs_root
def test_cache_of_root_that_lacks_a_blob(patient: Patient, temporary: Path) -> None:
    patient.expect_recovery()
    for path in (patient.cache, *patient.cache.rglob("*")):
        path.chmod(0o755)
    next(e for e in patient.entries() if e.name.startswith("sub")).unlink()
    patient.lib.calls.unlink()
    patient.lib.calls.touch()
    patient.lib.calls.chmod(0o666)
    done = patient.call(env={"TMPDIR": str(temporary)}, by=AS_OTHER)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    assert "Permission denied" in done.stderr
    assert patient.lib.compiles() == 1
    patient.expect_recovery()


@needs_root
def test_session_directory_is_found_by_later_processes(patient: Patient, temporary: Path) -> None:
    session = temporary / "session"
    session.mkdir(mode=0o700)
    os.chown(session, OTHER_USER, OTHER_USER)
    patient.lib.calls.touch()
    patient.lib.calls.chmod(0o666)
    env = {"LAZYCK_CACHE_DIR": "", "HOME": "/nonexistent", "XDG_RUNTIME_DIR": str(session), "TMPDIR": str(temporary)}
    for _ in range(2):
        done = patient.call(env=env, by=AS_OTHER)
        assert (done.returncode, done.stdout) == (0, GOOD), done
        assert f"compiled blobs go to '{session}/lazyck'" in done.stderr
    assert patient.lib.compiles() == 2
    # A directory that others can write to is no place for code.
    session.chmod(0o777)
    done = patient.call(env=env, by=AS_OTHER)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    assert f"compiled blobs go to '{temporary}/lazyck-" in done.stderr
    patient.expect_recovery()


@needs_root
def test_temporary_directory_in_which_others_can_swap_names_is_not_used(patient: Patient, temporary: Path) -> None:
    loose = temporary / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    env = {"LAZYCK_CACHE_DIR": "", "HOME": "/nonexistent", "TMPDIR": str(loose)}
    done = patient.call(env=env, by=AS_OTHER)
    assert (done.returncode, done.stdout) == (0, GOOD), done
    # Nothing is left of the directory at the end, so only the message tells where it was.
    assert "compiled blobs go to '/tmp/lazyck-" in done.stderr and str(loose) not in done.stderr, done
    assert not stand_in(done).exists()


def test_unsafe_cache_is_refused_although_there_are_other_places(patient: Patient) -> None:
    patient.cache.mkdir(exist_ok=True)
    patient.cache.chmod(0o777)
    done = patient.call()
    assert done.returncode == 3
    assert "others can write to it" in done.stdout
    assert "compiled blobs go to" not in done.stderr
    patient.cache.chmod(0o700)
    patient.expect_recovery()


def test_stand_ins_of_ended_processes_are_removed(patient: Patient, temporary: Path) -> None:
    env = {"LAZYCK_CACHE_DIR": "/proc/nowhere", "TMPDIR": str(temporary)}
    left = stand_in(patient.call(env=env))
    left.mkdir()  # as if that process had been killed
    assert patient.call(env=env).stdout == GOOD
    assert list(temporary.iterdir()) == [left]  # the directory is too young to be removed
    os.utime(left, (time.time() - 3600,) * 2)
    assert patient.call(env=env).stdout == GOOD
    assert not list(temporary.iterdir())
    patient.expect_recovery()


def test_prebuild_tool_does_not_fill_a_stand_in(patient: Patient, temporary: Path, rt_tool: Path) -> None:
    env = patient.env({"LAZYCK_CACHE_DIR": "/proc/nowhere", "TMPDIR": str(temporary)})
    done = subprocess.run(
        [rt_tool, "compile", "--from", patient.lib.library], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot make the cache directory '/proc/nowhere'" in done.stderr
    assert not list(temporary.iterdir())


def test_frozen_process_without_a_cache_says_so(patient: Patient) -> None:
    with tempfile.TemporaryDirectory() as nothing:
        env = {"LAZYCK_CACHE_DIR": nothing + "/cache", "LAZYCK_JIT": "off"}
        done = patient.call(env=env)
        assert done.returncode == 3
        assert "forbids compiling it" in done.stdout
        assert not list(Path(nothing).iterdir())
