"""Tests `lazyck cache`: what is in a cache, what it has saved, why a blob is a miss, verifying and
trimming.

test_cache_care.py tests where a cache is, clearing it, and what cannot be read.
"""

import json
import os
import platform
import re
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import HERE, Lazyck
from support.bundles import Bundle, build, entries, make_bundle
from support.cache_histories import event, said, write_history
from support.ops_library import build_ops

from lazyck.cache.explain import compare_commands, read_command
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.runtime.builder import tool_path
from lazyck.settings.environment import runtime_source
from lazyck.toolchains import HOST


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "lazyck-cache"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942", "gfx9-4-generic"])


# -- list and stats --------------------------------------------------------------------------------


def test_list_has_a_row_for_each_entry_with_size_age_and_last_use(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all")
    made = entries(cache)["gfx942/one"]
    os.utime(made, (1, os.stat(made).st_mtime - 3 * 86400 - 4 * 3600))
    seen = made.with_name(made.name + ".seen")
    seen.write_bytes(b"x")
    os.utime(seen, (1, made.stat().st_mtime + 86400))
    rows = said(lazyck, "list").splitlines()
    assert rows[0].split() == ["size", "age", "last", "use", "arch", "library", "blob"]
    assert len(rows) == 6
    assert rows[-1].startswith("4 entries, ")
    row = next(r for r in rows if "gfx942" in r and r.endswith("one"))
    assert "3 d 04 h  2 d 04 h  gfx942" in row
    as_json = json.loads(said(lazyck, "list", "--json", "--arch", "gfx942", "--library", "libtiny"))
    assert [(e["blob"], e["arch"], e["library"]) for e in as_json] == [
        ("one", "gfx942", "libtiny"), ("two", "gfx942", "libtiny"),
    ]  # fmt: skip
    assert as_json[0]["size"] == made.stat().st_size
    assert 2 * 86400 < as_json[0]["last_use"] < as_json[0]["age"] < 4 * 86400
    assert len(json.loads(said(lazyck, "list", "--json", "--arch", "gfx9-4-generic"))) == 2
    assert json.loads(said(lazyck, "list", "--json", "--library", "other")) == []


def test_stats_add_up_entries_and_history(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all", "--arch", "gfx942")
    shutil.rmtree(cache / ".history")  # this drops what that build has written
    (cache / ".costs" / "lib").write_text("7.0 1 old gfx942\n")
    write_history(
        cache,
        event("compile", "a", 20.0),
        event("compile", "b", 30.0, "no memory", failed=True),
        event("wait", "a", 2.5, "compile"),
        event("load", "a", 0.001, "cache"),
        event("load", "a", 0.001, "cache"),
        event("load", "old", 0.001, "cache"),
        event("load", "a", 0.001, "compiled"),
        event("load", "b", 0.002, "remote https://cache.example/v1"),
        '{"t": 1.7e9, "s"',
    )
    (cache / ".history" / "host.1").write_text(json.dumps(event("load", "a", 0.1, "cache")) + "\n")
    found = json.loads(said(lazyck, "stats", "--json"))
    size = sum(p.stat().st_size for p in entries(cache).values())
    own, other = ({k: s[k] for k in ("library", "arch", "entries", "bytes", "hits")} for s in found["shares"])
    assert own == {"library": "lib", "arch": "gfx942", "entries": 0, "bytes": 0, "hits": 4}
    assert other == {"library": "libtiny", "arch": "gfx942", "entries": 2, "bytes": size, "hits": 0}
    assert {k: found[k] for k in ("entries", "bytes", "hits", "fetched", "misses", "failures", "waits")} == {
        "entries": 2, "bytes": size, "hits": 4, "fetched": 1, "misses": 1, "failures": 1, "waits": 1,
    }  # fmt: skip
    assert (found["seconds_spent"], found["seconds_saved"], found["seconds_waited"]) == (50.0, 67.0, 2.5)
    text = said(lazyck, "stats")
    assert "hits      4 (67 % of 6)" in text
    assert "fetched   1 from remote caches" in text
    assert "compiles  50.0 s spent, 67.0 s saved by hits" in text
    assert f"cache     {cache}" in text and "preambles" not in text


def test_stats_count_precompiled_preambles(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    place = cache / ".preambles" / ("0" * 32) / "pch"
    place.mkdir(parents=True)
    for directory in (place, *place.parents[:2]):
        directory.chmod(0o700)
    (place / "host.pch").write_bytes(bytes(300_000))
    found = json.loads(said(lazyck, "stats", "--json"))
    assert found["preambles"] == 1 and 300_000 <= found["preamble_bytes"] < 400_000
    assert "preambles 1, 3" in said(lazyck, "stats")


def test_explain_a_hit_and_a_blob_of_which_there_is_nothing(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    hit = said(lazyck, "explain", bundle.file, "one", "--arch", "gfx942")
    assert hit.splitlines() == ["one for gfx942: hit", f"  entry       {entries(cache)['gfx942/one']}"]
    assert "the cache has no entry for this blob" in said(lazyck, "explain", bundle.file, "two", "--arch", "gfx942")


def test_explain_names_arch_and_extra_key(lazyck: Lazyck, bundle: Bundle) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    text = said(lazyck, "explain", bundle.file, "one")  # this covers each arch of the build
    assert "one for gfx942: hit" in text
    assert "one for gfx9-4-generic: miss" in text
    assert "differs in  arch: wanted gfx9_4_generic, it has gfx942" in text
    text = said(lazyck, "explain", bundle.file, "one", "--arch", "gfx942", env={"LAZYCK_EXTRA_CACHE_KEY": "x"})
    assert text.count("differs in") == 1
    assert "differs in  LAZYCK_EXTRA_CACHE_KEY: wanted set, it has none" in text
    build(lazyck, bundle, "two", "--arch", "gfx942", env={"LAZYCK_EXTRA_CACHE_KEY": "y"})
    text = said(lazyck, "explain", bundle.file, "two", "--arch", "gfx942")
    assert "differs in  LAZYCK_EXTRA_CACHE_KEY: wanted none, it has another (hash " in text
    text = said(lazyck, "explain", bundle.file, "two", "--arch", "gfx942", env={"LAZYCK_EXTRA_CACHE_KEY": "x"})
    assert "wanted set, it has another (hash " in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"toolchain_id": "g++-99-0123456789ab"}, "toolchain: wanted g++-99-0123456789ab, it has g++-test"),
        ({"name": "librenamed"}, "library: wanted librenamed, it has libtiny"),
        ({"flags": ("-O2", "-DX=1")}, "flags: wanted -O2 -DX=1, it has -O1"),
        ({"blobs": {"one": 'extern "C" int one() { return 2; }\n'}}, "source or headers (the commands are the same)"),
    ],
)
def test_explain_tells_toolchain_library_flags_and_source_apart(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    shutil.move(bundle.directory, tmp_path / "moved")  # the place of a bundle does not change its commands
    settings = {"blobs": ["one"], "archs": ["gfx942"], **change}
    other = make_bundle(bundle.directory, **settings)  # type: ignore[arg-type]
    text = said(lazyck, "explain", other.file, "one", "--arch", "gfx942")
    assert text.count("differs in") == 1, text
    assert f"differs in  {message}" in text


def test_explain_says_so_when_no_log_tells_flags_from_sources(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    entries(cache)["gfx942/one"].with_suffix(".log").unlink()
    other = make_bundle(bundle.directory, ["one"], archs=["gfx942"], flags=["-O2"])
    text = said(lazyck, "explain", other.file, "one")
    assert "source, headers or flags (the entry has no log" in text


def test_explain_looks_at_an_entry_that_is_there_and_not_taken(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all", "--arch", "gfx942")
    one, two = (entries(cache)[f"gfx942/{b}"] for b in ("one", "two"))
    whole = one.read_bytes()
    one.write_bytes(whole[:100])
    assert "not used: it is cut short" in said(lazyck, "explain", bundle.file, "one", "--arch", "gfx942")
    one.write_bytes(two.read_bytes())
    assert "not used: it is damaged, or was made for" in said(lazyck, "explain", bundle.file, "one", "--arch", "gfx942")
    other, number = ("aarch64", 183) if HERE.name != "aarch64" else ("x86_64", 62)
    one.write_bytes(whole[:18] + bytes([number, 0]) + whole[20:])
    text = said(lazyck, "explain", bundle.file, "one", "--arch", "gfx942")
    assert f"it is for {other}, but the library is for {HERE.name}" in text


def test_explain_of_an_unknown_blob_is_a_clear_error(lazyck: Lazyck, bundle: Bundle) -> None:
    assert "has no blob of this name:\n  nonsense" in said(lazyck, "explain", bundle.file, "nonsense", status=1)


def test_a_command_is_compared_word_by_word(bundle: Bundle) -> None:
    recipe = bundle.manifest.recipes[0]
    text = f"{recipe.compile[0]} --offload-arch=gfx1 -fPIC -O3 -I /new/src -c /new/src/x.cpp -o blob.o"
    assert compare_commands(recipe, "src/x.cpp", ["gfx1"], text.split()) == (["-O1"], ["-O3"])
    both = (["--offload-arch=gfx2", "-O1"], ["--offload-arch=gfx1", "-O3"])
    assert compare_commands(recipe, "src/x.cpp", ["gfx2"], text.split()) == both
    other = ["/other/compiler", *text.replace("-O3", "-O1").split()[1:]]
    assert compare_commands(recipe, "src/x.cpp", ["gfx1"], other) == ([recipe.compile[0]], ["/other/compiler"])


def test_verify_and_trim_read_and_remove_real_entries(lazyck: Lazyck, bundle: Bundle, cache: Path) -> None:
    build(lazyck, bundle, "--all", "--arch", "gfx942")
    assert "damaged" not in said(lazyck, "verify")
    one, two = sorted(entries(cache).values())
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 1
    one.write_bytes(data)
    rows = json.loads(lazyck("cache", "verify", "--json").stdout)
    assert sorted(rows, key=lambda r: str(r["path"])) == [
        {"path": str(one), "problem": "its contents changed", "removed": False},
        {"path": str(two), "problem": "", "removed": False},
    ]
    os.utime(one, (time.time() - 9 * 86400,) * 2)
    for beside in one.parent.glob(one.name.removesuffix(".so") + "*"):
        os.utime(beside, (time.time() - 9 * 86400,) * 2)
    said(lazyck, "trim", "--older-than", "7d", "--dry-run")
    assert one.exists()
    said(lazyck, "trim", "--older-than", "7d")
    assert not one.exists()
    assert two.exists()
    said(lazyck, "trim", "--max-size", "0")
    assert not two.exists()


def test_verify_finds_entries_that_do_not_define_what_a_library_calls(
    lazyck: Lazyck, bundle: Bundle, cache: Path
) -> None:
    build(lazyck, bundle, "--all", "--arch", "gfx942")
    said(lazyck, "verify", "--manifest", bundle.file)
    one, two = sorted(entries(cache).values())
    shutil.copy(one, two)  # the entry is whole, but another blob's
    said(lazyck, "verify")
    rows = json.loads(lazyck("cache", "verify", "--json", "--manifest", bundle.file).stdout)
    problems = {r["path"]: r["problem"] for r in rows}
    assert problems[str(one)] == ""
    assert re.fullmatch(r"it does not define '\w+', which .*manifest expects of it", problems[str(two)])


# -- verify and trim, against a stand-in for lazyck-rt ---------------------------------------------


@pytest.fixture
def stand_in(tmp_path: Path, cache: Path) -> dict[str, str]:
    """Make a cache, and return an environment whose `lazyck-rt` is a script that logs its arguments
    and prints the content of `answer`."""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    compiler = HOST.find_for(platform.machine(), env)
    script = tool_path(tmp_path / "xdg" / "lazyck-tools", compiler, runtime_source())
    script.parent.mkdir(parents=True)
    cache.mkdir()
    where = shlex.quote(str(tmp_path))
    script.write_text(f'#!/bin/sh\necho "$*" > {where}/words\ncat {where}/answer\nexit $(cat {where}/status)\n')
    script.chmod(0o755)
    return {"XDG_CACHE_HOME": str(tmp_path / "xdg")}


def answer(where: Path, status: int, *rows: Mapping[str, object] | str) -> None:
    (where / "answer").write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    (where / "status").write_text(str(status))


def test_verify_names_the_damaged_and_ends_with_status_1(
    lazyck: Lazyck, tmp_path: Path, cache: Path, stand_in: dict[str, str]
) -> None:
    answer(tmp_path, 0, {"path": "/c/a.so", "problem": ""}, {"path": "/c/b.so", "problem": ""})
    assert said(lazyck, "verify", env=stand_in) == "2 entries, all whole\n"
    assert (tmp_path / "words").read_text() == f"verify {cache}\n"
    answer(tmp_path, 1, {"path": "/c/a.so", "problem": ""}, {"path": "/c/b.so", "problem": "cut short"})
    done = lazyck("cache", "verify", env=stand_in)
    assert (done.returncode, done.stdout) == (1, "/c/b.so: cut short\n2 entries, 1 with a problem\n")
    rows = json.loads(lazyck("cache", "verify", "--json", env=stand_in).stdout)
    assert rows[1] == {"path": "/c/b.so", "problem": "cut short", "removed": False}
    answer(tmp_path, 0)
    assert said(lazyck, "verify", env=stand_in) == "0 entries, all whole\n"


@pytest.mark.parametrize(("status", "rows"), [(1, []), (2, ["usage: lazyck-rt"]), (0, ["not json"]), (1, ['"text"'])])
def test_a_tool_that_fails_is_not_taken_for_a_damaged_entry(
    lazyck: Lazyck, tmp_path: Path, stand_in: dict[str, str], status: int, rows: list[str]
) -> None:
    answer(tmp_path, status, *rows)
    assert f"verifying the cache: the command ended with status {status}" in said(
        lazyck, "verify", status=1, env=stand_in
    )
    assert "trimming the cache: the command ended" in said(lazyck, "trim", "--max-size", "1G", status=1, env=stand_in)


def test_trim_hands_over_bytes_and_seconds_and_sums_up(
    lazyck: Lazyck, tmp_path: Path, cache: Path, stand_in: dict[str, str]
) -> None:
    total = {"kept": 3, "kept_bytes": 3 << 20, "removed": 1, "removed_bytes": 2048}
    total |= dict.fromkeys(("removed_logs", "removed_preambles", "removed_texts"), 0)
    answer(tmp_path, 0, {"path": "/c/a.so", "bytes": 2048}, total)
    text = said(lazyck, "trim", "--max-size", "1.5G", "--older-than", "30d", env=stand_in)
    assert text == "/c/a.so\n1 entry (2.0 KB) removed, 3 (3.0 MB) stay\n"
    assert (tmp_path / "words").read_text() == f"trim {cache} --max-size {3 << 29} --older-than {30 * 86400}\n"
    assert "would be removed" in said(lazyck, "trim", "--older-than", "12h", "--dry-run", env=stand_in)
    assert (tmp_path / "words").read_text() == f"trim {cache} --older-than 43200 --dry-run\n"
    as_json = json.loads(said(lazyck, "trim", "--max-size", "0", "--json", env=stand_in))
    assert as_json == {"paths": ["/c/a.so"], **total}


def test_trim_wants_to_know_what_to_remove(lazyck: Lazyck) -> None:
    assert "--max-size SIZE, --older-than AGE" in said(lazyck, "trim", status=2)
    assert "--max-size '20 gigs': not a size" in said(lazyck, "trim", "--max-size", "20 gigs", status=2)
    assert "--older-than '30': not an age" in said(lazyck, "trim", "--older-than", "30", status=2)


def test_the_logs_of_a_real_build_fit_its_recipes(lazyck: Lazyck, tmp_path: Path, cache: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    done = lazyck("prebuild", "build", "--manifest", ops.library, "--all")
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(ops.library)
    cached = {p.name.rpartition("-")[0]: p for p in cache.glob("v1/*/*/*.so")}
    assert len(cached) == len(manifest.blobs)
    for blob in manifest.blobs:
        command = read_command(cached[blob.name].with_suffix(".log"))
        assert command
        assert compare_commands(manifest.recipes[blob.recipe], blob.source, [HERE.name], command) == ([], [])
