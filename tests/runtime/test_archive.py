"""Test a bundle that was deployed as one file. The first compile unpacks it into the cache, whole
and only once."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support import Machine, wait_until, with_sanitizers
from support.bundles import archive_sources
from support.four_blobs import BLOBS, CALLER, HEADER, MAIN, SYMBOLS, all_want_all, start
from support.lazylib import LazyLibrary, build_lazy_library

from lazyck import abi
from lazyck.formats.manifest import encode


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path, machine: Machine) -> LazyLibrary:
    """Build a library whose bundle has its manifest and sources.tar.gz."""
    where = tmp_path_factory.mktemp("archive")
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, machine=machine)
    made.program(CALLER)
    archive_sources(where / "lazyck", "demo")
    return made


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    shutil.rmtree(shared.cache, ignore_errors=True)
    shared.calls.unlink(missing_ok=True)
    return shared


@pytest.fixture
def archive(lib: LazyLibrary) -> Path:
    return lib.manifest_file.with_name(abi.BUNDLE_ARCHIVE)


@pytest.fixture
def tar(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose tar counts its calls in `tmp_path`/tar.log and first runs
    `tmp_path`/first."""
    real = shutil.which("tar")
    own = tmp_path / "bin" / "tar"
    own.parent.mkdir()
    log, first = shlex.quote(str(tmp_path / "tar.log")), shlex.quote(str(tmp_path / "first"))
    own.write_text(f'#!/bin/sh\necho called >> {log}\n[ ! -e {first} ] || . {first}\nexec {real} "$@"\n')
    own.chmod(0o755)
    return {"PATH": f"{own.parent}:{os.environ['PATH']}"}


def unpackings(tmp_path: Path) -> int:
    log = tmp_path / "tar.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def call(lib: LazyLibrary, *blobs: int, **env: str) -> subprocess.CompletedProcess[str]:
    return lib.call(lib.directory / "main", *map(str, blobs), env=env)


def unpacked(lib: LazyLibrary) -> list[Path]:
    return sorted((lib.cache / ".bundles").iterdir())


def test_is_unpacked_by_the_first_compile_and_not_again(lib: LazyLibrary, tar: dict[str, str], tmp_path: Path) -> None:
    assert call(lib, 1, 2, **tar).returncode == 0
    assert call(lib, 3, **tar).returncode == 0
    assert (unpackings(tmp_path), lib.compiles()) == (1, 3)
    (place,) = unpacked(lib)
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "src" / "one.cpp").read_text() == BLOBS["one"]


def test_nothing_is_unpacked_for_what_is_cached(lib: LazyLibrary) -> None:
    assert call(lib, 1).returncode == 0
    shutil.rmtree(lib.cache / ".bundles")
    done = call(lib, 1, PATH="/nonexistent")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (lib.cache / ".bundles").exists()


def test_unpacking_that_takes_long_is_said(
    lib: LazyLibrary, archive: Path, tar: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "first").write_text("sleep 3\n")
    done = call(lib, 1, **tar)
    assert done.returncode == 0
    assert f"[lazyck] still unpacking '{archive}' (2.0 s)\n" in done.stderr


def test_processes_that_start_at_once_unpack_once(lib: LazyLibrary, tar: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "first").write_text("sleep 0.5\n")
    processes = [start(lib, 1 + i % 4, env=tar) for i in range(8)]
    assert [p.wait(60) for p in processes] == [0] * 8
    assert (unpackings(tmp_path), lib.compiles()) == (1, 4)
    assert not list((lib.cache / ".staging").iterdir())


@with_sanitizers
def test_threads_and_processes_that_all_want_all_blobs_unpack_once(lib: LazyLibrary) -> None:
    all_want_all(lib)
    assert len(unpacked(lib)) == 1


@pytest.mark.parametrize("damage", ["removed source", "removed header", "changed header", "emptied"])
def test_what_was_damaged_in_the_cache_is_unpacked_again(
    lib: LazyLibrary, tar: dict[str, str], tmp_path: Path, damage: str
) -> None:
    assert call(lib, 1, **tar).returncode == 0
    (place,) = unpacked(lib)
    if damage == "emptied":
        shutil.rmtree(lib.cache)
    elif damage == "changed header":
        (place / "src" / "demo.h").write_text("torn")
    else:
        (place / "src" / ("two.cpp" if "source" in damage else "demo.h")).unlink()
    done = call(lib, 2, **tar)
    assert (done.returncode, done.stdout) == (0, "")
    assert unpackings(tmp_path) == 2
    assert call(lib, 3, **tar).returncode == 0
    assert unpackings(tmp_path) == 2


def test_a_cache_emptied_under_a_running_process_is_filled_again(lib: LazyLibrary) -> None:
    code = f"""
import ctypes, shutil
demo = ctypes.CDLL({str(lib.library)!r})
print(demo._Z4callii(1, 10))
shutil.rmtree({str(lib.cache)!r})
print(demo._Z4callii(2, 10))
"""
    done = lib.call("python3", "-c", code)
    assert done.stdout == "11\n12\n", done.stderr


def test_killed_while_it_unpacks_leaves_nothing_that_counts(
    lib: LazyLibrary, tar: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "first").write_text("touch unpacks; sleep 60\n")
    process = start(lib, 1, env=tar)
    wait_until(lambda: list(lib.cache.glob(".staging/bundle-*/unpacked/unpacks")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert unpacked(lib) == []
    (tmp_path / "first").unlink()
    assert call(lib, 1, **tar).returncode == 0
    assert lib.compiles() == 1


def test_without_tar_the_error_says_what_to_do_and_that_works(lib: LazyLibrary, archive: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "tr", "c++", "g++", "as", "ld", "collect2"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    done = call(lib, 1, PATH=str(tools))
    assert done.returncode == 3
    assert f"lazyck: cannot unpack '{archive}' into the cache: cannot start 'tar'" in done.stdout
    (line,) = (part.partition("in its place: ")[2] for part in done.stdout.splitlines() if "in its place" in part)
    subprocess.run(["sh", "-c", line], check=True)
    try:
        done = call(lib, 1, PATH=str(tools))
        assert (done.returncode, done.stdout) == (0, ""), done
        assert unpacked(lib) == []
    finally:
        shutil.rmtree(lib.directory / "lazyck" / "src")
        (lib.manifest_file.with_name("contents")).unlink()


@pytest.mark.parametrize("keep", [0, 200])
def test_a_damaged_archive_is_an_error_that_names_it(lib: LazyLibrary, archive: Path, keep: int) -> None:
    whole = archive.read_bytes()
    try:
        archive.write_bytes(whole[:keep])
        done = call(lib, 1)
    finally:
        archive.write_bytes(whole)
    assert done.returncode == 3
    assert f"'{archive}'" in done.stdout
    assert unpacked(lib) == []
    assert not list((lib.cache / ".staging").iterdir())


def test_an_archive_of_another_build_is_refused(lib: LazyLibrary) -> None:
    whole = lib.manifest_file.read_bytes()
    other = replace(lib.manifest, blobs=tuple(replace(b, digest="0" * 64) for b in lib.manifest.blobs))
    try:
        lib.manifest_file.write_bytes(encode(other))
        done = call(lib, 1)
    finally:
        lib.manifest_file.write_bytes(whole)
    assert done.returncode == 3
    assert "is of another build" in done.stdout


def test_is_not_taken_from_where_others_could_have_put_it(lib: LazyLibrary) -> None:
    assert call(lib, 1).returncode == 0
    (lib.cache / ".bundles").chmod(0o777)
    done = call(lib, 2)
    assert done.returncode == 3
    assert ".bundles" in done.stdout
    assert lib.compiles() == 1


def test_a_cache_that_cannot_be_written_is_stood_in_for(lib: LazyLibrary) -> None:
    done = call(lib, 1, LAZYCK_CACHE_DIR="/proc/nothing/can/be/here")
    assert (done.returncode, done.stdout) == (0, ""), done


def test_what_was_not_used_for_a_week_goes(lib: LazyLibrary) -> None:
    assert call(lib, 1).returncode == 0
    (place,) = unpacked(lib)
    old = place.with_name("0" * 32)
    shutil.copytree(place, old)
    os.utime(old, (time.time() - 8 * 86400,) * 2)
    (lib.cache / ".trimmed").unlink(missing_ok=True)
    os.utime(place, (time.time() - 8 * 86400,) * 2)
    assert call(lib, 2).returncode == 0  # a compile that uses the unpacked bundle
    assert unpacked(lib) == [place]


def test_the_tool_of_prebuild_unpacks_too(lib: LazyLibrary, tar: dict[str, str], tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(lib.library), "--all"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **lib.env, **tar})
    assert done.returncode == 0, done.stderr
    assert (unpackings(tmp_path), len(lib.entries())) == (1, 4)
