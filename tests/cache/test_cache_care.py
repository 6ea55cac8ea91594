"""Tests `lazyck cache`: where a cache is, clearing it, resetting its counters, and caches that
cannot be read."""

import json
import os
import pty
import pwd
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck, wait_until
from support.bundles import Bundle, build, entries, make_bundle
from support.cache_histories import event, said, write_history

from lazyck.cache.entries import read_holdings
from lazyck.errors import UsageError
from lazyck.formats.layout import root_of
from lazyck.formats.manifest import encode
from lazyck.history.events import read_history
from lazyck.settings.environment import cache_dir

STRANGER = 12346


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "lazyck-cache"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942", "gfx9-4-generic"])


def private(directory: Path) -> Path:
    """Create a directory below a cache with the permissions that the runtime gives it, and return
    it."""
    for path in (*reversed(directory.parents), directory):
        if not path.exists():
            path.mkdir(0o700)
    return directory


# -- where it is -----------------------------------------------------------------------------------


ACCOUNT = pwd.getpwuid(os.geteuid()).pw_dir
# Pairs of an environment and the cache that it names, or None if that is refused.
PLACES: list[tuple[dict[str, str | None], str | None]] = [
    ({"LAZYCK_CACHE_DIR": "/x//y/./z/"}, "/x/y/z"),
    ({"LAZYCK_CACHE_DIR": "//x"}, "/x"),
    ({"LAZYCK_CACHE_DIR": "/x/..y/.z"}, "/x/..y/.z"),
    ({"LAZYCK_CACHE_DIR": "/x/../y"}, None),
    ({"LAZYCK_CACHE_DIR": "x"}, None),
    ({"LAZYCK_CACHE_DIR": "/./"}, None),
    ({"LAZYCK_CACHE_DIR": "/x", "LAZYCK_NAME": "../up"}, None),
    ({"XDG_CACHE_HOME": "/x"}, "/x/lazyck"),
    ({"XDG_CACHE_HOME": "//x//"}, "/x/lazyck"),
    ({"XDG_CACHE_HOME": "/"}, "/lazyck"),
    ({"XDG_CACHE_HOME": "/x/../y"}, None),
    ({"XDG_CACHE_HOME": "x"}, "/h/.cache/lazyck"),
    ({"XDG_CACHE_HOME": "/x", "HOME": ""}, "/x/lazyck"),
    ({"LAZYCK_NAME": "mine"}, "/h/.cache/mine"),
    ({"LAZYCK_NAME": "my..own"}, "/h/.cache/my..own"),
    ({"LAZYCK_NAME": "../up"}, None),
    ({"LAZYCK_NAME": "a/b"}, None),
    ({"LAZYCK_NAME": ".."}, None),
    ({"LAZYCK_NAME": ".mine"}, None),
    ({"HOME": "/h/../i"}, None),
    ({"HOME": "/"}, "/.cache/lazyck"),
    ({"HOME": "h"}, f"{ACCOUNT}/.cache/lazyck"),
    ({"HOME": ""}, f"{ACCOUNT}/.cache/lazyck"),
    ({"HOME": None}, f"{ACCOUNT}/.cache/lazyck"),
]


def test_commands_and_the_runtime_have_one_rule_for_where_the_cache_is(
    bundle: Bundle, rt_tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LAZYCK_CACHE_DIR", "LAZYCK_NAME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    of_runtime: list[tuple[object, str | None]] = []
    of_commands: list[tuple[object, str | None]] = []
    wanted: list[tuple[object, str | None]] = []
    for given, place in PLACES:
        env = {k: v for k, v in {**os.environ, "HOME": "/h", **given}.items() if v is not None}
        argv: list[str | Path] = [rt_tool, "path", "--from", bundle.file, "one"]
        told = subprocess.run(argv, env=env, capture_output=True, text=True)
        entry = Path(told.stdout.strip())
        wanted.append((given, place))
        of_runtime.append((given, str(root_of(entry)) if told.returncode == 0 else None))
        try:
            of_commands.append((given, str(cache_dir(env))))
        except UsageError:
            of_commands.append((given, None))
    assert of_runtime == wanted
    assert of_commands == wanted


@pytest.mark.parametrize(
    "env",
    [
        {"LAZYCK_CACHE_DIR": "/tmp//x/./y/"},
        {"XDG_CACHE_HOME": "/tmp/x"},
        {"HOME": "/tmp/h", "LAZYCK_NAME": "mine"},
    ],
    ids=str,
)
@pytest.mark.parametrize("baked", ["", "baked"])
def test_dir_prints_where_the_runtime_looks(
    lazyck: Lazyck, tmp_path: Path, rt_tool: Path, baked: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = make_bundle(tmp_path / "b", ["one"])
    bundle.file.write_bytes(encode(replace(bundle.manifest, cache_name=baked)))
    for name in ("LAZYCK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    full = {**os.environ, **env}
    path = subprocess.run([rt_tool, "path", "--from", bundle.file], env=full, capture_output=True, text=True).stdout
    assert said(lazyck, "dir", "--manifest", bundle.file, env=env) == f"{root_of(Path(path.strip()))}\n"
    if not baked:
        assert said(lazyck, "dir", env=env) == f"{root_of(Path(path.strip()))}\n"


# -- list and stats --------------------------------------------------------------------------------


def test_list_is_sorted_as_it_is_told(lazyck: Lazyck, tmp_path: Path, cache: Path) -> None:
    texts = {b: f'static char data[{n}] = {{1}};\nextern "C" char* {b}() {{ return data; }}\n'
             for b, n in (("b", 9000), ("a", 90), ("c", 50000))}  # fmt: skip
    build(lazyck, make_bundle(tmp_path / "b", texts), "--all")
    now = time.time()
    for entry, (made, used) in zip(sorted(entries(cache).values()), ((3, 2), (2, 2), (5, 1)), strict=True):
        os.utime(entry, (now, now - 86400 * made))
        seen = entry.with_name(f"{entry.name}.seen")
        seen.write_bytes(b"")
        os.utime(seen, (now, now - 86400 * used))
    for words, order in {
        (): "abc", ("--sort", "name"): "abc", ("--sort", "size"): "cba", ("--sort", "age"): "cab",
        ("--sort", "used"): "abc", ("--sort", "size", "--reverse"): "abc", ("--reverse",): "cba",
    }.items():  # fmt: skip
        assert "".join(e["blob"] for e in json.loads(said(lazyck, "list", "--json", *words))) == order, words


def test_stats_compare_what_the_runtime_counts_with_the_limit(
    lazyck: Lazyck, bundle: Bundle, cache: Path, rt_tool: Path
) -> None:
    build(lazyck, bundle, "--all")
    leaf = entries(cache)["gfx942/one"].parent
    (leaf / "bad-0123456789abcdef.log").write_bytes(bytes(70_000))
    (leaf / "one-0123456789abcdef.so.bad-1").write_bytes(bytes(90_000))
    (leaf / "none of ours").write_bytes(bytes(900_000))
    (private(cache / ".preambles" / ("0" * 32)) / "host.pch").write_bytes(bytes(300_000))
    argv: list[str | Path] = [rt_tool, "trim", cache, "--dry-run"]
    counted = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    open_files = len(os.listdir("/proc/self/fd"))
    assert read_holdings(cache).used_bytes == counted["kept_bytes"] > 460_000
    assert len(os.listdir("/proc/self/fd")) == open_files
    found = json.loads(said(lazyck, "stats", "--json", env={"LAZYCK_CACHE_MAXSIZE": "2MB"}))
    assert (found["used_bytes"], found["max_bytes"]) == (counted["kept_bytes"], 2 << 20)
    share = round(100 * found["used_bytes"] / (2 << 20))
    assert f"limit     {share} % of 2.0 MB, " in said(lazyck, "stats", env={"LAZYCK_CACHE_MAXSIZE": "2MB"})
    assert "limit     0 % of 20.0 GB, " in said(lazyck, "stats")
    assert "limit     none, " in said(lazyck, "stats", env={"LAZYCK_CACHE_MAXSIZE": "0"})
    assert "LAZYCK_CACHE_MAXSIZE '20': not a size" in said(
        lazyck, "stats", status=2, env={"LAZYCK_CACHE_MAXSIZE": "20"}
    )


def test_counters_begin_anew_while_processes_append(lazyck: Lazyck, cache: Path) -> None:
    now = time.time()
    write_history(cache, event("compile", "a", 7.0, t=now - 60), event("load", "a", 0.1, "cache", t=now - 50))
    with (cache / ".history" / "host").open("a") as running:
        before = json.loads(said(lazyck, "stats", "--json"))
        assert (before["hits"], before["misses"], before["since"]) == (1, 1, now - 60)
        zeroed = json.loads(said(lazyck, "stats", "--json", "--zero"))
        assert {zeroed[k] for k in ("hits", "misses", "waits", "seconds_spent", "seconds_saved")} == {0}
        assert now < zeroed["since"] <= time.time()
        late = event("compile", "b", 60.0, t=now - 30)  # This began before the reset and ends after it.
        running.write("".join(json.dumps(e) + "\n" for e in (late, event("load", "a", 0.1, "cache", t=now + 30))))
    after = json.loads(said(lazyck, "stats", "--json"))
    assert (after["hits"], after["misses"], after["seconds_spent"], after["seconds_saved"]) == (1, 1, 60.0, 7.0)
    assert len(read_history(cache).events) == 4


# -- clear -----------------------------------------------------------------------------------------


@pytest.fixture
def full(lazyck: Lazyck, bundle: Bundle, cache: Path) -> Path:
    """Make a cache with entries of two libraries for two archs, the log of a failure, a preamble
    and texts."""
    build(lazyck, bundle, "--all")
    build(lazyck, make_bundle(bundle.directory.with_name("o"), ["three"], name="libother"), "--all")
    one = entries(cache)["gfx942/one"]
    (one.parent / "failed-0123456789abcdef.log").write_text("error: no\n")
    (one.parent / "empty-0123456789abcdef.log").write_text("")  # This takes no disk space and has the latest date.
    os.utime(one.parent / "empty-0123456789abcdef.log", (time.time() + 9,) * 2)
    (private(cache / ".preambles" / ("0" * 32)) / "host.pch").write_bytes(bytes(300_000))
    (private(cache / ".texts") / ("1" * 32)).write_text(str(one.relative_to(cache / "v1")))
    return cache


def test_clear_removes_all_that_can_be_made_again(lazyck: Lazyck, full: Path) -> None:
    text = said(lazyck, "clear", "--yes")
    assert text.startswith(f"{full}: 5 entries (")
    assert text.endswith("), 2 logs of failures, 1 precompiled preamble, 1 text removed\n")
    left = [p for place in ("v1", ".preambles", ".texts") for p in (full / place).rglob("*") if p.is_file()]
    assert left == []
    assert list((full / ".history").iterdir()) and list((full / ".costs").iterdir())
    assert said(lazyck, "clear", "--yes") == f"{full}: 0 entries (0 B) removed\n"


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--library", "libtiny"], {"three"}),
        (["--arch", "gfx9-4-generic"], {"gfx942/one", "gfx942/two", "three"}),
        (["--library", "libtiny", "--arch", "gfx942"], {"gfx9_4_generic/one", "gfx9_4_generic/two", "three"}),
        (["--library", "libnone"], {"gfx942/one", "gfx942/two", "gfx9_4_generic/one", "gfx9_4_generic/two", "three"}),
    ],
)
def test_clear_removes_those_of_a_library_or_arch(lazyck: Lazyck, full: Path, words: list[str], left: set[str]) -> None:
    done = json.loads(said(lazyck, "clear", "--yes", "--json", *words))
    assert {k.rpartition("/")[2] if k.endswith("three") else k for k in entries(full)} == left
    assert (done["removed"], done["kept"]) == (5 - len(left), len(left))
    has_failure = "gfx942/one" in left
    assert bool(list(full.rglob("failed-*.log"))) is has_failure
    assert bool(list((full / ".texts").iterdir())) is has_failure
    assert list((full / ".preambles").iterdir())


def test_clear_asks_on_a_terminal_and_does_nothing_without_one(lazyck: Lazyck, full: Path) -> None:
    refused = said(lazyck, "clear", status=2)
    assert f"from {full}, and there is no terminal to confirm\n  hint: add --yes" in refused
    for answer, status, count in (("n", 1, 5), ("y", 0, 0)):
        here, there = pty.openpty()
        os.write(here, f"{answer}\n".encode())
        argv = [sys.executable, "-m", "lazyck", "cache", "clear"]
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(argv, env=env, stdin=there, capture_output=True, text=True, timeout=60)
        os.close(here)
        os.close(there)
        assert "Remove 5 entries (" in done.stdout and f") from {full}? [y/N]" in done.stdout
        assert (done.returncode, len(entries(full))) == (status, count), done.stdout + done.stderr


def test_what_compiles_while_the_cache_is_cleared_goes_on(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    bundle.slow.write_text("3")
    result: list[object] = []
    running = threading.Thread(
        target=lambda: result.append(build(lazyck, bundle, "two", "--arch", "gfx942")["compiled"])
    )
    running.start()
    spans = bundle.directory / "spans.log"
    wait_until(lambda: spans.read_text().count("begin") > spans.read_text().count("end"))
    assert ": 1 entry (" in said(lazyck, "clear", "--yes")
    running.join()
    assert result == [1]
    assert list(entries(cache)) == ["gfx942/two"]


# -- verify --remove -------------------------------------------------------------------------------


def test_verify_says_how_to_remove_what_is_damaged_and_that_line_does_it(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    cache = tmp_path / "my cache's"
    env = {"LAZYCK_CACHE_DIR": str(cache)}
    build(lazyck, bundle, "--all", env=env)
    cut, swapped, whole, _ = sorted(entries(cache).values())
    others: list[str | Path] = ["verify", "--manifest", bundle.file]
    cut.write_bytes(cut.read_bytes()[:100])
    shutil.copy(whole, swapped)
    (cut.parent / "failed-0123456789abcdef.log").write_text("error: no\n")
    found = lazyck("cache", *others, env=env)
    assert found.returncode == 1
    assert found.stdout.splitlines()[-1] == "4 entries, 2 with a problem"
    line = found.stderr.splitlines()[-1]
    script = f'lazyck() {{ {shlex.quote(sys.executable)} -m lazyck "$@"; }}\n{line}'
    there = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_CACHE_DIR": str(tmp_path / "another")}
    done = subprocess.run(["bash", "-c", script], env=there, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "4 entries, 2 with a problem, 2 removed"
    assert not {cut, swapped} & set(entries(cache).values())
    assert list(cut.parent.glob("failed-*.log"))
    assert said(lazyck, *others, env=env) == "2 entries, all whole\n"


def test_verify_does_not_take_what_it_cannot_look_into_for_removed(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all")
    leaf = entries(cache)["gfx942/one"].parent
    leaf.chmod(0o777)
    text = said(lazyck, "verify", "--remove", status=1)
    assert f"{leaf}: " in text and "others can write to it" in text and "removed" not in text
    assert len(entries(cache)) == 4


# -- a cache that is not there, or cannot be read --------------------------------------------------

COMMANDS: dict[str, list[str]] = {
    "list": [], "stats": [], "clear": ["--yes"], "verify": [], "trim": ["--max-size", "1G"],
    "explain": ["BUNDLE", "one"], "push": [], "pull": ["--manifest", "BUNDLE"], "sync": ["--manifest", "BUNDLE"],
}  # fmt: skip


def no_directory(cache: Path) -> str:
    cache.write_text("")
    return "it is not a directory"


def below_a_file(cache: Path) -> str:
    cache.parent.rmdir()
    cache.parent.write_text("")
    return "cannot be read: Not a directory"


def of_another_user(cache: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root can make directories of others")
    cache.mkdir()
    os.chown(cache, STRANGER, STRANGER)
    return f"it belongs to user {STRANGER}"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("spoil", [no_directory, below_a_file, of_another_user])
def test_a_cache_that_cannot_be_used_is_an_error_with_a_hint(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, command: str, spoil: Callable[[Path], str]
) -> None:
    cache = tmp_path / "above" / "cache"
    cache.parent.mkdir()
    why = spoil(cache)
    words = [str(bundle.file) if w == "BUNDLE" else w for w in COMMANDS[command]]
    env = {"LAZYCK_CACHE_DIR": str(cache), "LAZYCK_REMOTE": f"{tmp_path}|trusted"}
    done = lazyck("cache", command, *words, env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr and str(cache) in done.stderr
    assert "\n  hint: " in done.stderr and "LAZYCK_CACHE_DIR to a directory of your own" in done.stderr


def test_a_cache_without_permission_is_an_error_with_a_hint(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(0o700)
    script = (
        "import os, sys, lazyck.cli, lazyck.commands.cache\n"
        f"if os.geteuid() == 0: os.setresuid({STRANGER}, {STRANGER}, {STRANGER})\n"
        f"else: os.chmod({str(cache)!r}, 0)\n"
        "sys.argv = ['lazyck', 'cache', 'list']\nlazyck.cli.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "XDG_CONFIG_HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    cache.chmod(0o700)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"the cache {cache} cannot be read: Permission denied\n  hint: run this as the cache's owner" in done.stderr


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("pull", "sync")])
def test_a_cache_that_is_not_there_yet_is_said_to_be_so(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, command: str
) -> None:
    cache = tmp_path / "none"
    words = [str(bundle.file) if w == "BUNDLE" else w for w in COMMANDS[command]]
    done = lazyck(
        "cache", command, *words, env={"LAZYCK_CACHE_DIR": str(cache), "LAZYCK_REMOTE": f"{tmp_path}|trusted"}
    )
    assert done.returncode == 0, done.stderr
    assert f"lazyck: there is no cache at {cache} yet\n" in done.stderr
    assert not cache.exists()


def test_a_value_that_the_runtime_refuses_is_an_error(lazyck: Lazyck) -> None:
    for name, value in (("LAZYCK_CACHE_DIR", "somewhere"), ("LAZYCK_CACHE_DIR", "/a/../b"), ("LAZYCK_NAME", "a/b")):
        env = {"LAZYCK_CACHE_DIR": "", "HOME": "/tmp", name: value}
        assert f"{name}={value!r}: must be " in said(lazyck, "list", status=2, env=env)
