"""Tests what the command line lists, reads, moves and deletes in a cache: nothing behind a link,
and nothing in a directory that the runtime refuses, even if directories are exchanged at that
moment."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import Lazyck
from support.bundles import Bundle, build, entries, make_bundle

from lazyck.cache import push_pull, sweep
from lazyck.cache.entries import read_entries
from lazyck.cache.transfer import Share, TransferItem, local_items
from lazyck.directory import Directory, RefusedError, directory_below, opened_in, staging
from lazyck.formats.manifest import Manifest
from lazyck.history.costs import read_costs, read_last
from lazyck.history.events import read_history
from lazyck.prebuild import blob_entries, output
from lazyck.prebuild.blob_entries import BlobEntry, cached_archs, clean_blobs
from lazyck.prebuild.blob_names import Selection
from lazyck.report.gather import cache_size

LEAF = "v1/lib/any-g++"
NAME = "add-0123456789abcdef.so"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache")


def make_cache(root: Path) -> Path:
    """Make files that only have the names of a cache's files."""
    for leaf in (LEAF, "v1/lib/any-clang"):
        (root / leaf).mkdir(parents=True)
        for name in (NAME, f"{NAME}.seen", NAME.replace(".so", ".log")):
            (root / leaf / name).write_text("x")
    for place in (".costs", ".history", ".locks", ".staging"):
        (root / place).mkdir()
        (root / place / "lib").write_text("1.0 1 add any\n")
    for path in (root, *root.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return root


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else b"" for p in directory.rglob("*")}


# -- exchanging directories at Python's audit events, which precede each call that touches a file --

_EVENTS = {"open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod"}
_before_each: list[Callable[[], None]] = []


def _hook(event: str, _arguments: object) -> None:
    if _before_each and event in _EVENTS:
        work = _before_each.pop()
        work()


sys.addaudithook(_hook)


def exchange_before(number: int, directory: Path, target: Path) -> Callable[[], bool]:
    """Put a link to `target` in the place of `directory` before call number `number`. Return a
    function that tells whether there was such a call."""
    seen = [0]

    def look() -> None:
        seen[0] += 1
        if seen[0] < number:
            _before_each.append(look)
        elif directory.is_dir():
            directory.rename(directory.with_name("aside"))
            directory.symlink_to(target)

    _before_each.append(look)
    return lambda: seen[0] >= number


@pytest.fixture(autouse=True)
def no_hook_left() -> Iterator[None]:
    yield
    _before_each.clear()


def entry_of(cache: Path) -> BlobEntry:
    return BlobEntry("add", (), "any", cache / LEAF / NAME, True, "0" * 32, f"lib/any-g++/{NAME}")


def tidy(cache: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    output.tidy(cache, keep_logs=False)


def clean(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_entries, "tool", lambda _: Path("rt"))
    monkeypatch.setattr(blob_entries, "first_sets", lambda selection, _: [((), selection)])
    monkeypatch.setattr(blob_entries, "entries", lambda *_: [entry_of(cache)])
    manifest = Manifest("lib", "lib.so", "", "", (), (), (), (), "test", "", "")
    clean_blobs(Path("lib.so"), Selection(manifest, ()), "", {})


def stage(cache: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    with staging(cache, "pull") as own:
        (own / "file").write_text("x")


def publish(cache: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    with staging(cache, "pull") as own:
        with directory_below(own, Path(LEAF), makes=True):
            (own / LEAF / NAME).write_text("new")
        (own / LEAF / NAME).chmod(0o600)
        push_pull.publish(own, cache, f"lib/any-g++/{NAME}")


@pytest.mark.parametrize("place", ["v1", "v1/lib", LEAF, ".staging", ".locks"])
@pytest.mark.parametrize("work", [tidy, clean, stage, publish])
def test_nothing_changes_behind_a_link_put_there_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path, pytest.MonkeyPatch], None], place: str
) -> None:
    monkeypatch.setattr("lazyck.directory.secrets.token_hex", lambda _: "abc123")
    staged = f"pull-{os.getpid()}@{socket.gethostname()}-abc123"  # the name of the staging directory
    for number in range(1, 200):
        cache = make_cache(tmp_path / "cache")
        theirs = tmp_path / "theirs"
        shutil.copytree(cache / place, theirs)
        (theirs / staged).mkdir()
        (theirs / staged / "kept").write_text("x")
        before = contents(theirs)
        came = exchange_before(number, cache / place, theirs)
        with contextlib.suppress(RefusedError, OSError):  # it may refuse, and then does nothing
            work(cache, monkeypatch)
        _before_each.clear()
        after = contents(theirs)
        assert {k: after.get(k) for k in before} == before
        # The test writes to its staging directory by path, so changes there do not count.
        assert place == ".staging" or after == before
        if not came():
            break
        shutil.rmtree(cache)
        shutil.rmtree(theirs)
    assert number > 5


# -- directories that are refused ------------------------------------------------------------------


def spoil(directory: Path, kind: str, tmp_path: Path) -> Path:
    """Make the runtime refuse a directory, and return the place where its contents are
    afterwards."""
    if kind == "link":
        moved = tmp_path / "moved"
        directory.rename(moved)
        directory.symlink_to(moved)
        return moved
    if kind == "stranger's":
        if os.geteuid() != 0:
            pytest.skip("only root can give a directory away")
        os.chown(directory, 12345, 12345)
    else:
        directory.chmod(0o777)
    return directory


KINDS = pytest.mark.parametrize("kind", ["link", "shared", "stranger's"])
REASONS = {"link": "it is a symbolic link", "shared": "others can write to it (mode 0777)", "stranger's": "user 12345"}


@KINDS
@pytest.mark.parametrize("place", ["v1", "v1/lib", LEAF])
def test_a_refused_directory_is_passed_over_and_named_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    place: str, kind: str,
) -> None:  # fmt: skip
    there = spoil(cache / place, kind, tmp_path)
    before = contents(there)
    left = 1 if place == LEAF else 0
    assert len(list(read_entries(cache))) == left
    assert len(local_items(cache, [], [])) == 0
    assert cache_size(cache) == (left, left)
    assert len(cached_archs(entry_of(cache))) <= left
    clean(cache, monkeypatch)
    assert contents(there) == before
    tidy(cache, monkeypatch)
    assert contents(there) == before
    said = capsys.readouterr().err
    assert said.count(f"skipped: refusing the cache directory {cache / place}: ") == 1, said
    assert REASONS[kind] in said


@KINDS
def test_a_refused_root_is_an_error(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = spoil(cache, kind, tmp_path)
    before = contents(there)
    for work in (
        lambda: list(read_entries(cache)),
        lambda: clean(cache, monkeypatch),
        lambda: tidy(cache, monkeypatch),
        lambda: stage(cache, monkeypatch),
        lambda: publish(cache, monkeypatch),
        lambda: cache_size(cache),
        lambda: read_history(cache),
        lambda: output.adopt(cache, [BlobEntry("a", (), "any", make_cache(tmp_path / "b") / LEAF / NAME, True)]),
    ):
        with pytest.raises(RefusedError) as caught:
            work()
        assert REASONS[kind] in caught.value.message
    # Recorded costs are only estimates, so losing them is no error.
    assert (read_costs([cache]).seconds, read_last(cache, "lib", "add", "any")) == ({}, None)
    assert "skipped: refusing the cache directory" in capsys.readouterr().err
    assert contents(there) == before


@KINDS
@pytest.mark.parametrize("place", [".history", ".costs"])
def test_a_refused_directory_of_records_is_not_read(
    cache: Path, tmp_path: Path, kind: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / ".history/lib").write_text('{"t": 1, "s": 1, "kind": "load", "blob": "a"}\n')
    spoil(cache / place, kind, tmp_path)
    assert len(read_history(cache).events) == (place != ".history")
    assert len(read_costs([cache]).seconds) == (place != ".costs")
    assert (read_last(cache, "lib", "add", "any") is None) == (place == ".costs")
    assert capsys.readouterr().err.count(f"refusing the cache directory {cache / place}") == 1


def test_a_tree_is_removed_without_following_links(cache: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    (cache / ".staging/deep/deeper").mkdir(parents=True)
    (cache / ".staging/deep/deeper/link").symlink_to(kept)
    with Directory.open(cache) as root:
        root.remove_tree(".staging")
    assert not (cache / ".staging").exists()
    assert (kept / "file").exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "shared", "directory"])
def test_what_is_no_plain_file_of_the_users_own_is_not_opened(cache: Path, tmp_path: Path, kind: str) -> None:
    entry = cache / LEAF / NAME
    data = entry.read_bytes()
    entry.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        entry.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(entry)
    elif kind == "directory":
        entry.mkdir()
    else:
        entry.write_bytes(data)
        entry.chmod(0o666)
    with pytest.raises((RefusedError, OSError)), opened_in(cache, entry):
        pass


def test_a_file_is_written_whole_with_its_mode(cache: Path) -> None:
    with Directory.open(cache) as root:
        root.write("new", b"abc", 0o640)
        assert root.names() == sorted([".costs", ".history", ".locks", ".staging", "new", "v1"])
    assert (cache / "new").read_bytes() == b"abc"
    assert stat.S_IMODE((cache / "new").stat().st_mode) == 0o640


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942"])


def test_commands_say_what_they_pass_over(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    cache = tmp_path / "lazyck-cache"
    build(lazyck, bundle, "--all")
    leaf = entries(cache)["gfx942/one"].parent
    there = spoil(leaf, "link", tmp_path)
    before = contents(there)
    for words, status in (
        (("list",), 0), (("stats",), 0), (("verify",), 1), (("trim", "--max-size", "0"), 0),
        (("explain", bundle.file, "one", "--arch", "gfx942"), 0),
    ):  # fmt: skip
        done = lazyck("cache", *words)
        assert done.returncode == status, done
        said = done.stdout + done.stderr
        assert "refusing the cache directory" in said, done
        assert "it is a symbolic link" in said
    assert lazyck("prebuild", "clean", "--manifest", bundle.file, "--all").returncode == 0
    assert contents(there) == before


def share(env: dict[str, str]) -> Share:
    return Share(env, 1, False)


def test_what_was_not_verified_is_neither_pushed_nor_published(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "lazyck-cache"
    (tmp_path / "shared").mkdir()
    build(lazyck, bundle, "--all")
    env = {"LAZYCK_REMOTE": f"{tmp_path}/shared|trusted", "HOME": str(tmp_path)}
    items = local_items(cache, [], [])
    # This is the case of a directory that was good a moment ago and is refused afterwards: `verify`
    # says nothing of its entries.
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "verify", lambda *_: {})
        done = push_pull.push(share(env), items, cache)
        assert (done.done, len(done.refused)) == ((), 2)
    assert not list((tmp_path / "shared").rglob("*"))
    assert len(push_pull.push(share(env), items, None).done) == 2
    found = [BlobEntry(i.entry.entry_path.blob, (), "", i.path, False, i.entry.key_id, i.entry.name) for i in items]
    shutil.rmtree(cache)
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(sweep, "verify", lambda *_: {})
    done = push_pull.pull(share(env), found)
    assert (done.done, len(done.refused)) == ((), 2)
    assert not list(cache.glob("v1/*/*/*"))


def test_an_entry_in_a_directory_exchanged_after_the_check_is_not_pushed(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    cache = tmp_path / "lazyck-cache"
    (tmp_path / "shared").mkdir()
    build(lazyck, bundle, "one")
    env = {"LAZYCK_REMOTE": f"{tmp_path}/shared|trusted", "HOME": str(tmp_path)}
    (item,) = local_items(cache, [], [])
    spoil(item.path.parent, "link", tmp_path)
    done = push_pull.push(share(env), [TransferItem(item.entry, item.path)], None)
    assert (done.done, len(done.refused)) == ((), 1)
    assert "it is a symbolic link" in done.refused[0]
    assert json.dumps(contents(tmp_path / "shared"), default=str) == "{}"


def test_two_users_a_stranger_who_can_write_v1_has_nothing_removed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    cache, kept = make_cache(tmp_path / "cache"), make_cache(tmp_path / "kept")
    (cache / "v1").chmod(0o777)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o001 == 0 and str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o011)
    cache.chmod(0o711)
    kept.chmod(0o711)
    words = ["setpriv", "--reuid", "12346", "--regid", "12346", "--clear-groups", "ln", "-s"]
    subprocess.run([*words, str(kept / "v1/lib"), str(cache / "v1/lib2")], check=True, cwd="/")
    before = contents(kept)
    output.tidy(cache, keep_logs=False)
    assert contents(kept) == before
    assert (cache / LEAF / f"{NAME}.seen").exists()
