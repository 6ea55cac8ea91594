"""Test `lazyck cache push|pull|sync|keygen` with compiled entries."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, Lazyck, wait_until
from support.bundles import Bundle, build, entries, make_bundle
from support.servers import Hostile

from lazyck.history.costs import read_costs
from lazyck.remote import EntryName, Remote

BLOBS = ["one", "two", "three"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "lazyck-cache"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a shared directory and name it in LAZYCK_REMOTE."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("LAZYCK_REMOTE", f"{tmp_path}/shared|trusted")
    monkeypatch.setenv("LAZYCK_REMOTE_TIMEOUT", "2")
    return tmp_path / "shared"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Path]:
    """Build a library, and a cache with all its blobs."""
    directory = tmp_path_factory.mktemp("compiled")
    made = make_bundle(directory / "b", BLOBS, archs=["gfx942"])
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(made.file), "--all"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_CACHE_DIR": str(directory / "cache")}
    subprocess.run(argv, env=env, check=True, capture_output=True)
    return made, directory / "cache"


@pytest.fixture
def bundle(compiled: tuple[Bundle, Path], cache: Path) -> Bundle:
    """Provide a library whose blobs are all in the cache."""
    shutil.copytree(compiled[1], cache)
    return compiled[0]


def said(lazyck: Lazyck, *words: str | Path, status: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = lazyck("cache", *words, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def as_json(
    lazyck: Lazyck, *words: str | Path, status: int = 0, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    done = lazyck("cache", *words, "--json", env=env)
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def names(cache: Path) -> list[str]:
    return sorted(str(p.relative_to(cache / "v1")) for p in entries(cache).values())


def test_what_is_pushed_can_be_pulled_and_is_a_hit(lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path) -> None:
    whole = {p.name: p.read_bytes() for p in entries(cache).values()}
    all_names = names(cache)
    pushed = as_json(lazyck, "push")
    assert sorted(pushed["pushed"]) == all_names
    assert pushed["bytes"] == sum(map(len, whole.values()))
    took = read_costs([cache]).seconds
    shutil.rmtree(cache)
    pulled = as_json(lazyck, "pull", "--manifest", bundle.file)
    assert took and read_costs([cache]).seconds == took
    assert sorted(pulled["pulled"]) == all_names
    assert pulled["bytes"] == pushed["bytes"]
    assert {p.name: p.read_bytes() for p in entries(cache).values()} == whole
    assert "3 entries, all whole" in said(lazyck, "verify")
    for path in entries(cache).values():
        assert path.stat().st_mode & 0o777 == 0o600
        assert all(d.stat().st_mode & 0o777 == 0o700 for d in list(path.parents)[:3])
    assert not list((cache / ".staging").iterdir())
    assert build(lazyck, bundle, "--all")["compiled"] == 0
    assert sorted(bundle.compiled()) == sorted(BLOBS)


def test_what_is_there_is_not_transferred_again(lazyck: Lazyck, bundle: Bundle, cache: Path, hostile: Hostile) -> None:
    env = {"LAZYCK_REMOTE": f"{hostile.url}|trusted"}
    assert "2 entries" in said(lazyck, "push", "t*", env=env)
    done = as_json(lazyck, "push", env=env)
    assert ([n.split("/")[2][:3] for n in done["pushed"]], done["there"]) == (["one"], 2)
    hostile.asked.clear()
    done = as_json(lazyck, "push", env=env)
    assert (done["pushed"], done["there"]) == ([], 3)
    assert sorted(method for method, _ in hostile.asked) == ["GET"] * 3 + ["HEAD"] * 3
    entries(cache)["gfx942/one"].unlink()
    hostile.asked.clear()
    done = as_json(lazyck, "pull", "--manifest", bundle.file, env=env)
    assert ([n.split("/")[2][:3] for n in done["pulled"]], done["there"]) == (["one"], 2)
    assert [method for method, _ in hostile.asked] == ["GET", "GET"]


def test_patterns_profiles_and_libraries_choose(lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path) -> None:
    profile = shared.parent / "profile"
    profile.write_text("three\n")

    def dry(*words: str | Path) -> list[str]:
        done = as_json(lazyck, *words, "--dry-run")
        found = done.get("pushed", done.get("pulled"))
        assert found is not None
        return sorted(n.split("/")[2].partition("-")[0] for n in found)

    assert dry("push", "o*") == ["one"]
    assert dry("push", "--profile", profile) == ["three"]
    assert dry("push", "--profile", profile, "two") == ["three", "two"]
    assert dry("push", "--manifest", bundle.file, "t*") == ["three", "two"]
    assert not list(shared.iterdir())
    assert "has no entry for a blob 'nothing'" in said(lazyck, "push", "nothing", status=1)
    assert "no blob of this name" in said(lazyck, "pull", "--manifest", bundle.file, "nothing", status=1)
    said(lazyck, "push")
    shutil.rmtree(cache)
    assert dry("pull", "--manifest", bundle.file, "--profile", profile) == ["three"]
    assert not list(cache.glob("v1/*"))
    assert dry("pull", "--manifest", bundle.file) == ["one", "three", "two"]
    text = said(lazyck, "pull", "--manifest", bundle.file, "two", "--dry-run")
    assert "two-" in text.splitlines()[0]
    assert "1 entry" in text and "would be pulled" in text


def test_sync_goes_both_ways(lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path) -> None:
    said(lazyck, "push", "one", "two")
    entries(cache)["gfx942/two"].unlink()
    done = as_json(lazyck, "sync", "--manifest", bundle.file)
    assert [len(done["pull"]["pulled"]), done["pull"]["there"]] == [1, 2]
    assert [len(done["push"]["pushed"]), done["push"]["there"]] == [1, 2]
    assert len(list((shared / "ac").iterdir())) == 3
    assert len(entries(cache)) == 3


def test_a_damaged_entry_is_not_pushed(lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path) -> None:
    bad = entries(cache)["gfx942/one"]
    data = bytearray(bad.read_bytes())
    data[100] ^= 1
    bad.write_bytes(data)
    text = said(lazyck, "push", status=1)
    assert f"lazyck: refused: {bad}: its contents changed" in text
    assert "2 entries" in text and "1 refused" in text
    assert len(list((shared / "ac").iterdir())) == 2


def test_what_is_pulled_must_be_signed_and_whole(
    lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path, key: tuple[Path, str]
) -> None:
    said(lazyck, "push", "one")
    env = {"LAZYCK_REMOTE": str(shared), "LAZYCK_SIGN_KEY": str(key[0])}
    said(lazyck, "push", "two", env=env)
    # The entry is signed, but the runtime would not load it. Only its own digest shows that.
    bad = entries(cache)["gfx942/three"]
    data = bytearray(bad.read_bytes())
    data[100] ^= 1
    bad.write_bytes(data)
    remote = Remote.from_environment(env)
    assert remote and remote.push(EntryName.of_file(cache, bad), bad)
    shutil.rmtree(cache)
    done = lazyck(
        "cache", "pull", "--manifest", bundle.file, "--json", env={"LAZYCK_REMOTE": str(shared), "LAZYCK_TRUST": key[1]}
    )
    assert done.returncode == 1
    outcome = json.loads(done.stdout)
    assert [n.split("/")[2].partition("-")[0] for n in outcome["pulled"]] == ["two"]
    assert outcome["absent"] == outcome["left"] == 0
    refused = sorted(line for line in done.stderr.splitlines() if line.startswith("lazyck: refused: "))
    assert len(refused) == len(outcome["refused"]) == 2
    assert "one-" in refused[0] and "it is not signed" in refused[0]
    assert "three-" in refused[1] and "its contents changed" in refused[1]
    assert list(entries(cache)) == ["gfx942/two"]


def test_a_remote_that_is_down_ends_it_soon_and_leaves_the_rest(
    lazyck: Lazyck, bundle: Bundle, cache: Path, hostile: Hostile
) -> None:
    hostile.mood = "stall"
    env = {"LAZYCK_REMOTE": f"{hostile.url}|trusted", "LAZYCK_REMOTE_TIMEOUT": "0.5"}
    began = time.monotonic()
    text = said(lazyck, "push", status=1, env=env)
    assert "no answer within 0.5 s" in text and "3 left" in text
    shutil.rmtree(cache)
    text = said(lazyck, "pull", "--manifest", bundle.file, status=1, env=env)
    assert "3 left" in text
    assert time.monotonic() - began < 30
    hostile.mood = ""  # the remote is asked again at once, whatever was remembered
    assert "3 in no remote" in said(lazyck, "pull", "--manifest", bundle.file, env=env)


def test_a_cache_that_others_can_write_gets_nothing(lazyck: Lazyck, bundle: Bundle, cache: Path, shared: Path) -> None:
    said(lazyck, "push")
    entries(cache)["gfx942/one"].unlink()
    (cache / "v1").chmod(0o777)
    text = said(lazyck, "pull", "--manifest", bundle.file, status=1)
    assert "others can write" in text or "writable" in text


def test_without_a_remote_or_one_to_write_it_says_what_to_set(
    lazyck: Lazyck, bundle: Bundle, shared: Path, tmp_path: Path
) -> None:
    assert "set LAZYCK_REMOTE" in said(lazyck, "push", status=2, env={"LAZYCK_REMOTE": ""})
    text = said(lazyck, "push", status=1, env={"LAZYCK_REMOTE": str(shared)})
    assert "LAZYCK_REMOTE names no tier that may be written" in text and "LAZYCK_SIGN_KEY" in text
    assert "no tier" in said(lazyck, "push", status=1, env={"LAZYCK_REMOTE": f"{shared}|trusted|read-only"})


def test_keygen_makes_a_private_file_and_prints_what_trust_takes(lazyck: Lazyck, tmp_path: Path, shared: Path) -> None:
    file = tmp_path / "new.pem"
    public = said(lazyck, "keygen", file).strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert said(lazyck, "keygen", file, "--public").strip() == public
    assert "is there already" in said(lazyck, "keygen", file, status=2)
    assert "PRIVATE" in file.read_text() and public not in file.read_text()


def test_an_interrupted_pull_leaves_whole_entries_and_nothing_else(
    lazyck: Lazyck, bundle: Bundle, hostile: Hostile, cache: Path
) -> None:
    env = {"LAZYCK_REMOTE": f"{hostile.url}|trusted", "LAZYCK_REMOTE_TIMEOUT": "0.8"}
    said(lazyck, "push", env=env)
    shutil.rmtree(cache)
    hostile.mood, hostile.only = "stall", "cas/"
    hostile.asked.clear()
    argv = [sys.executable, "-m", "lazyck", "cache", "pull", "--manifest", str(bundle.file)]
    process = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # A process that a shell starts in the background ignores SIGINT, and its children would do
        # so, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: any("cas/" in path for _, path in hostile.asked))
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=20)[0].decode()
    assert process.returncode == 130 and "interrupted" in text and "Traceback" not in text
    assert not list((cache / ".staging").iterdir())
    assert not entries(cache)
    hostile.mood = ""
    assert "3 entries" in said(lazyck, "pull", "--manifest", bundle.file, env=env)


def test_a_missing_library_is_named_with_the_line_that_installs_it(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "redis.py").write_text("raise ImportError('no redis here')\n")
    path = f"{tmp_path / 'without'}:{REPOSITORY}"
    done = subprocess.run(
        [sys.executable, "-m", "lazyck", "cache", "push"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "LAZYCK_REMOTE": "redis://:pw@127.0.0.1:1/0|trusted"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'lazyck[remote-redis]'" in done.stderr
    assert "pw@" not in done.stderr
