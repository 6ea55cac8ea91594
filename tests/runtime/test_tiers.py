"""Test caches that are only read (LAZYCK_CACHE_PATH, or shipped beside the library), and caches
that are kept below a size."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from support.four_blobs import BLOBS, CALLER, HEADER, MAIN, SYMBOLS, start
from support.lazylib import LazyLibrary, build_lazy_library, run


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    where = tmp_path_factory.mktemp("tiers")
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    made.program(CALLER)
    return made


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    shutil.rmtree(shared.cache, ignore_errors=True)
    shutil.rmtree(shared.directory / "lazyck/cache", ignore_errors=True)
    shared.calls.unlink(missing_ok=True)
    return shared


def make_tier(lib: LazyLibrary, where: Path, *blobs: int) -> Path:
    """Make a cache with these blobs as it ships, with entries only. The user's own cache is empty
    afterwards."""
    assert lib.call(lib.directory / "main", *map(str, blobs)).returncode == 0
    where.mkdir(parents=True)
    shutil.copytree(lib.cache / "v1", where / "v1", ignore=shutil.ignore_patterns("*.log", "*.seen"))
    for path in [where, *where.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(lib.cache)
    lib.calls.unlink()
    return where


def call(lib: LazyLibrary, *blobs: int, **env: str) -> str:
    done = lib.call(lib.directory / "main", *map(str, blobs), env=env)
    assert done.returncode == 0, done
    return done.stderr


def test_tiers_are_read_after_the_users_own_cache_and_never_written(lib: LazyLibrary, tmp_path: Path) -> None:
    one, two = make_tier(lib, tmp_path / "a", 1), make_tier(lib, tmp_path / "b", 2)
    before = {p: p.stat().st_mtime_ns for tier in (one, two) for p in [tier, *tier.rglob("*")]}
    path = f"{one}:{two}"
    said = call(lib, 1, 2, 3, LAZYCK_CACHE_PATH=path, LAZYCK_LOG="debug")
    assert f"found one for x86_64: {one}/v1/" in said or f": {one}/v1/" in said
    assert [lib.compiles(n) for n in ("one", "two", "three")] == [0, 0, 1]
    assert [e.name.partition("-")[0] for e in lib.entries()] == ["three"]
    assert {p: p.stat().st_mtime_ns for tier in (one, two) for p in [tier, *tier.rglob("*")]} == before
    assert lib.call(lib.directory / "main", "1").returncode == 0
    said = call(lib, 1, LAZYCK_CACHE_PATH=path, LAZYCK_LOG="debug")
    assert f": {lib.cache}/v1/" in said, "the user's own comes first"


def test_entries_beside_the_library_work_without_compiler_and_cache(lib: LazyLibrary) -> None:
    make_tier(lib, lib.directory / "lazyck/cache", 1, 2)
    away = lib.compiler.with_name("away")
    lib.compiler.rename(away)
    try:
        env = {"LAZYCK_CACHE_DIR": "/proc/nothing/can/be/here", "PATH": "/nonexistent"}
        assert call(lib, 1, 2, **env) == ""
        frozen = lib.call(lib.directory / "main", "1", "3", env={**env, "LAZYCK_JIT": "off"})
        assert frozen.returncode == 3
        assert "blob 'three' for" in frozen.stdout
        assert "LAZYCK_JIT=off forbids compiling it" in frozen.stdout
        assert "lazyck prebuild build --manifest" in frozen.stdout
        missing = lib.call(lib.directory / "main", "3", env={"PATH": "/nonexistent"})
        assert missing.returncode == 3
        assert "cannot start" in missing.stdout
    finally:
        away.rename(lib.compiler)


def test_what_is_known_of_a_tiers_entries_is_kept_in_the_users_own_cache(lib: LazyLibrary, tmp_path: Path) -> None:
    tier = make_tier(lib, tmp_path / "a", 1)
    call(lib, 2)
    time.sleep(2.5)  # a fresh entry is not trusted to stay as it is
    call(lib, 1, LAZYCK_CACHE_PATH=str(tier))
    (note,) = (lib.cache / ".seen").iterdir()
    known = note.read_bytes()
    call(lib, 1, LAZYCK_CACHE_PATH=str(tier))
    assert note.read_bytes() == known
    (entry,) = tier.glob("v1/*/*/*.so")
    entry.write_bytes(entry.read_bytes()[:-1])
    said = call(lib, 1, LAZYCK_CACHE_PATH=str(tier))
    assert f"the entry '{entry}' is damaged (cut short" in said
    assert lib.compiles("one") == 1


@pytest.mark.parametrize("place", ["", "v1", "v1/demo"])
def test_a_tier_that_others_can_write_is_passed_over_with_the_reason(
    lib: LazyLibrary, tmp_path: Path, place: str
) -> None:
    tier = make_tier(lib, tmp_path / "a", 1, 2)
    (tier / place).chmod(0o777)
    said = call(lib, 1, 2, LAZYCK_CACHE_PATH=str(tier))
    assert said.count("others can write to it (mode 0777); run: chmod go-w") == 1
    assert (lib.compiles("one"), lib.compiles("two")) == (1, 1)


def test_a_relative_tier_is_an_error(lib: LazyLibrary) -> None:
    done = lib.call(lib.directory / "main", "1", env={"LAZYCK_CACHE_PATH": "/tmp:packs"})
    assert done.returncode == 3
    assert "LAZYCK_CACHE_PATH: packs" in done.stdout


# -- trimming --------------------------------------------------------------------------------------


def age(lib: LazyLibrary, blob: str, hours: float) -> None:
    for path in lib.cache.glob(f"v1/*/*/{blob}-*"):
        os.utime(path, (time.time() - 3600 * hours,) * 2)


def names(lib: LazyLibrary) -> list[str]:
    return sorted(e.name.partition("-")[0] for e in lib.entries())


def trim(rt_tool: Path, lib: LazyLibrary, *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run([rt_tool, "trim", lib.cache, *words]).stdout.splitlines()]


def test_trim_removes_what_was_not_used_for_longest(lib: LazyLibrary, rt_tool: Path) -> None:
    call(lib, 1, 2, 3, 4)
    for hours, blob in enumerate(("two", "four", "one", "three"), 1):
        age(lib, blob, 10 * hours)
    *entries, before = trim(rt_tool, lib, "--max-size", "0", "--dry-run")
    assert [Path(str(e["path"])).name.partition("-")[0] for e in entries] == ["three", "one", "four", "two"]
    assert (before["removed"], names(lib)) == (4, ["four", "one", "three", "two"])
    half = str(sum(int(str(e["bytes"])) for e in entries) // 2)
    *gone, after = trim(rt_tool, lib, "--max-size", half)
    assert (after["removed"], after["kept"], names(lib)) == (2, 2, ["four", "two"])
    assert len(gone) == 2
    assert not list(lib.cache.glob("v1/*/*/three-*")), "with its log and its note"
    trim(rt_tool, lib, "--older-than", str(15 * 3600))
    assert names(lib) == ["two"]
    call(lib, 1, 2, 3, 4)
    assert lib.compiles("three") == 2


def test_precompiled_preambles_count_for_the_limit(lib: LazyLibrary, rt_tool: Path) -> None:
    call(lib, 1, 2)
    for hours, name in ((20, "older"), (1, "newer")):
        place = lib.cache / ".preambles" / name / "pch"
        place.mkdir(parents=True)
        (place / "host.pch").write_bytes(bytes(1 << 20))
        os.utime(place.parent, (time.time() - hours * 3600,) * 2)
    age(lib, "one", 10)
    *gone, outcome = trim(rt_tool, lib, "--max-size", str(3 << 19), "--dry-run")
    assert (len(gone), outcome["removed"], outcome["kept"]) == (0, 0, 2)
    trim(rt_tool, lib, "--max-size", str(3 << 19))
    assert (names(lib), sorted(p.name for p in lib.cache.glob(".preambles/*"))) == (["one", "two"], ["newer"])
    trim(rt_tool, lib, "--max-size", "0")
    assert (names(lib), list(lib.cache.glob(".preambles/*"))) == ([], [])


def test_a_hit_counts_as_use(lib: LazyLibrary, rt_tool: Path) -> None:
    call(lib, 1, 2)
    time.sleep(2.5)  # a fresh entry is not trusted to stay as it is
    call(lib, 1)  # reads the entry whole and notes that
    for path in lib.cache.glob("v1/*/*/*"):
        if path.suffix == ".seen":
            os.utime(path, (time.time() - 30 * 3600,) * 2)
    before = {e: e.stat() for e in lib.entries()}
    call(lib, 1)  # finds the note
    assert {e: e.stat().st_ctime_ns for e in lib.entries()} == {e: s.st_ctime_ns for e, s in before.items()}
    for entry in lib.entries():
        os.utime(entry, (time.time() - 30 * 3600,) * 2)
    age(lib, "two", 30)
    trim(rt_tool, lib, "--older-than", str(20 * 3600))
    assert names(lib) == ["one"]


def test_trimming_beside_running_jobs_harms_none(lib: LazyLibrary, rt_tool: Path) -> None:
    running = [start(lib, *[1, 2, 3, 4] * 3) for _ in range(6)]
    end = time.monotonic() + 60
    while any(p.poll() is None for p in running) and time.monotonic() < end:
        trim(rt_tool, lib, "--max-size", "0")
    assert [p.communicate(timeout=60) and p.returncode for p in running] == [0] * 6


def test_the_cache_is_kept_below_its_largest_size(lib: LazyLibrary) -> None:
    call(lib, 1, 2)
    age(lib, "one", 2)
    age(lib, "two", 1)
    entry = next(e for e in lib.entries() if e.name.startswith("one-"))
    with (lib.cache / "v1/ballast.so").open("wb"):
        pass
    (lib.cache / ".trimmed").unlink(missing_ok=True)
    said = call(lib, 3, LAZYCK_CACHE_MAXSIZE=f"{4 * entry.stat().st_size // 1024}K")
    assert "(LAZYCK_CACHE_MAXSIZE)" in said
    assert "three" in names(lib)
    assert "one" not in names(lib)
    # Trimming happens at most once an hour.
    assert "MAXSIZE" not in call(lib, 4, LAZYCK_CACHE_MAXSIZE="1K")


def test_verify_reads_every_entry(lib: LazyLibrary, rt_tool: Path) -> None:
    call(lib, 1, 2)
    run([rt_tool, "verify", lib.cache])
    entry = lib.entries()[0]
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    with pytest.raises(AssertionError, match="its contents changed"):
        run([rt_tool, "verify", lib.cache])
