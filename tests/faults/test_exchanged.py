"""Tests a cache directory that is exchanged for a link while lazyck lists, moves and deletes in it:
nothing is done behind the link."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.faultlib import GOOD, Patient, build_shim

LEAF = "v1/demo/any-g++"
STEM = "add-0123456789abcdef"


def make_cache(root: Path) -> Path:
    """Make a cache of files that only have the names of entries."""
    for leaf in (LEAF, "v1/demo/any-clang", "v1/other/any-g++"):
        (root / leaf).mkdir(parents=True)
        for name in (f"{STEM}.so", f"{STEM}.so.seen", f"{STEM}.log"):
            (root / leaf / name).write_text("x" * 5000)
    for path in (root, *root.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return root


def lookalike(of: Path, where: Path, owner: int = 0) -> Path:
    """Copy the directory `of` to `where`, so that it has the same names, and give it to the user
    `owner`."""
    subprocess.run(["cp", "-a", of, where], check=True)
    for path in (where, *where.rglob("*")):
        os.chown(path, owner, owner)
    return where


def contents(directory: Path) -> dict[str, bytes]:
    """Return the contents of a directory's files. A large sparse file that stands for a long
    history counts by its size."""
    found = {}
    for p in directory.rglob("*"):
        size = p.stat().st_size if p.is_file() else 0
        found[str(p.relative_to(directory))] = p.read_bytes() if 0 < size < 1 << 20 else b"%d" % size
    return found


def trim(rt_tool: Path, root: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words: list[str | Path] = [rt_tool, "trim", root, "--max-size", "0"]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)


@pytest.mark.parametrize("place", ["v1", "v1/demo", LEAF])
def test_trim_deletes_nothing_behind_a_link_put_there_at_any_step(
    rt_tool: Path, objects_dir: Path, tmp_path: Path, place: str
) -> None:
    shim = build_shim(objects_dir / "shim")
    for number in range(1, 200):
        root = make_cache(tmp_path / "cache")
        theirs = lookalike(root / place, tmp_path / "theirs")
        before = contents(theirs)
        log = tmp_path / "log"
        done = trim(
            rt_tool, root, LD_PRELOAD=str(shim), FAULT_PROGRAM=rt_tool.name, FAULT_BELOW=str(root),
            FAULT_FIRST=str(number), FAULT_OPS="read,unlink", FAULT_LOG=str(log), FAULT_LINK=f"{root / place}={theirs}",
        )  # fmt: skip
        assert contents(theirs) == before, log.read_text()
        assert done.returncode == 0, done
        if not log.exists():
            break
        log.unlink()
        for path in (root, theirs):
            shutil.rmtree(path)
    assert number > 10, "the calls were seen"
    assert not list(root.rglob("*.so"))


def test_trim_deletes_nothing_behind_a_link_that_comes_and_goes(rt_tool: Path, tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache")
    theirs = lookalike(root / "v1/demo", tmp_path / "theirs")
    before = contents(theirs)
    ours = os.open(root / LEAF, os.O_RDONLY)
    link = tmp_path / "link"
    link.symlink_to(theirs)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    is_over = threading.Event()

    def go_on_exchanging() -> None:
        here = -100  # AT_FDCWD
        while not is_over.is_set():
            assert exchange(here, os.fsencode(link), here, os.fsencode(root / "v1/demo"), 2) == 0  # RENAME_EXCHANGE
            time.sleep(0.0003)  # so short that any step may see either of them

    thread = threading.Thread(target=go_on_exchanging)
    thread.start()
    try:
        rounds = 0
        end = time.monotonic() + 1.5
        while rounds <= 20 or time.monotonic() < end:
            trim(rt_tool, root)
            rounds += 1
            for end_of_name in (".so", ".so.seen", ".log"):  # by descriptor, whatever the directory's name is
                os.close(os.open(STEM + end_of_name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=ours))
    finally:
        is_over.set()
        thread.join()
        os.close(ours)
    assert contents(theirs) == before


def test_trim_passes_over_a_directory_that_is_refused_and_names_it_once(rt_tool: Path, tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache")
    theirs = lookalike(root / LEAF, tmp_path / "theirs")
    before = contents(theirs)
    shutil.rmtree(root / LEAF)
    (root / LEAF).symlink_to(theirs)
    (root / "v1/other").chmod(0o777)
    done = trim(rt_tool, root)
    assert contents(theirs) == before
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["removed"]) == (0, 1)
    assert done.stderr.count(f"refusing the cache directory '{root / LEAF}': it is a symbolic link") == 1
    assert done.stderr.count(f"refusing the cache directory '{root / 'v1/other'}': others can write to it") == 1
    assert (root / "v1/other/any-g++" / f"{STEM}.so").exists()


@pytest.mark.parametrize("verb", ["trim", "verify"])
@pytest.mark.parametrize("kind", ["link", "link/", "shared", "relative"])
def test_a_root_that_is_refused_is_an_error(rt_tool: Path, tmp_path: Path, verb: str, kind: str) -> None:
    root = make_cache(tmp_path / "cache")
    before = contents(root)
    (tmp_path / "link").symlink_to(root)
    if kind == "shared":
        root.chmod(0o777)
    given = {"link": str(tmp_path / "link"), "link/": f"{tmp_path}/link/", "shared": str(root), "relative": "../x"}[
        kind
    ]
    words: list[str | Path] = [rt_tool, verb, given, *(["--max-size", "0"] if verb == "trim" else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=root)
    assert (done.returncode, done.stdout) == (1, "")
    assert "refusing the cache directory" in done.stderr or "the cache's path is refused" in done.stderr
    assert contents(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")
def test_a_stranger_who_can_write_v1_has_nothing_of_its_owner_deleted(
    rt_tool: Path, patient: Patient, tmp_path: Path
) -> None:
    owner, stranger = 12345, 12346
    place = patient.cache.parent / "two-users"
    place.mkdir()
    try:
        tool = shutil.copy(rt_tool, place / "lazyck-rt")
        for directory in (root := make_cache(place / "cache"), kept := make_cache(place / "kept")):
            for path in (directory, *directory.rglob("*")):
                os.chown(path, owner, owner)
        root.chmod(0o755)
        (root / "v1").chmod(0o777)
        subprocess.run(
            ["setpriv", "--reuid", str(stranger), "--regid", str(stranger), "--clear-groups", "sh", "-c",
             f"ln -s {kept / 'v1/demo'} {root / 'v1/mine'}"],
            check=True, cwd="/",
        )  # fmt: skip
        before = contents(kept)
        done = subprocess.run(
            ["setpriv", "--reuid", str(owner), "--regid", str(owner), "--clear-groups",
             tool, "trim", root, "--max-size", "0"],
            capture_output=True, text=True, timeout=60, cwd="/",
        )  # fmt: skip
        assert contents(kept) == before
        assert done.returncode == 0
        assert f"refusing the cache directory '{root / 'v1'}': others can write to it" in done.stderr
    finally:
        shutil.rmtree(place)


def test_verify_names_what_it_passes_over(rt_tool: Path, tmp_path: Path) -> None:
    root = make_cache(tmp_path / "cache")
    (root / "v1/other").chmod(0o777)
    done = subprocess.run([rt_tool, "verify", root], capture_output=True, text=True, timeout=60)
    rows = {r["path"]: r["problem"] for r in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1
    assert set(rows) == {str(root / "v1/other"), *(str(root / f"v1/demo/any-{c}/{STEM}.so") for c in ("g++", "clang"))}
    assert "others can write to it" in rows[str(root / "v1/other")]


# -- what a call of a lazy function moves and clears away ------------------------------------------


def prepare(patient: Patient) -> str:
    """Make a cache in which the next call finds a damaged entry, a long history, an old bundle, and
    what a killed process left. Return the directory of the entries."""
    patient.clear()
    patient.expect_recovery()
    (entry, _) = patient.entries()
    entry.write_bytes(b"torn")
    history = next(patient.cache.glob(".history/*"))
    with history.open("ab") as f:
        f.truncate(9 << 20)
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = patient.cache / ".staging" / f"add-{gone.pid}@{socket.gethostname()}-aBc123"
    for old in (patient.cache / ".bundles" / ("0" * 32), left):
        old.mkdir(parents=True, mode=0o700)
        (old / "file").write_text("x")
        os.utime(old, (1e9, 1e9))
    for path in patient.cache.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)
    (patient.cache / ".trimmed").unlink(missing_ok=True)
    return str(entry.parent.relative_to(patient.cache))


@pytest.mark.parametrize("place", ["v1", "leaf", ".staging", ".history", ".bundles"])
def test_a_call_moves_and_deletes_nothing_behind_a_link_put_there_at_any_step(patient: Patient, place: str) -> None:
    leaf = prepare(patient)
    prepared = lookalike(patient.cache, patient.cache.with_name("prepared"))
    directory = patient.cache / (leaf if place == "leaf" else place)
    theirs = lookalike(directory, patient.cache.with_name("theirs"))
    before = contents(theirs)
    try:
        for number in range(1, 400):
            patient.clear()
            subprocess.run(["cp", "-a", prepared, patient.cache], check=True)
            patient.injected()
            env = patient.faulty(
                number, 0, FAULT_OPS="mkdir,read,rename,unlink", FAULT_LINK=f"{directory}={theirs}",
                LAZYCK_CACHE_MAXSIZE="1K",
            )  # fmt: skip
            done = patient.call(env=env)
            step = patient.injected()
            assert contents(theirs) == before, step
            assert done.returncode in (0, 3), done
            if not step:
                assert done.stdout == GOOD
                break
    finally:
        for made in (prepared, theirs):
            shutil.rmtree(made)
    assert number > 20


@pytest.mark.parametrize("kind", ["link", "shared"])
def test_old_bundles_in_a_directory_that_is_refused_stay(patient: Patient, tmp_path: Path, kind: str) -> None:
    prepare(patient)
    bundles = patient.cache / ".bundles"
    theirs = lookalike(bundles, tmp_path / "theirs")
    before = contents(theirs)
    if kind == "link":
        shutil.rmtree(bundles)
        bundles.symlink_to(theirs)
    else:
        bundles.chmod(0o777)
    done = patient.call(env={"LAZYCK_CACHE_MAXSIZE": "1G"})
    assert (done.returncode, done.stdout) == (0, GOOD)
    assert contents(bundles.resolve()) == before
    assert done.stderr.count(f"refusing the cache directory '{bundles}'") == 1
    assert "; skipped" in done.stderr
