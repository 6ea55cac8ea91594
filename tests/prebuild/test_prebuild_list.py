"""Tests `lazyck prebuild list`: which entries there are, which are cached, and which are
missing."""

import json
from pathlib import Path

import pytest
from support import Lazyck
from support.bundles import Bundle, build, make_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["fwd_a", "fwd_b", "bwd_a"], archs=["gfx942", "gfx9-4-generic"])


def names(lazyck: Lazyck, bundle: Bundle, *words: str) -> list[str]:
    done = lazyck("prebuild", "list", "--manifest", bundle.file, "--format", "blob-list", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_filters_by_what_is_cached_and_by_name(lazyck: Lazyck, bundle: Bundle) -> None:
    assert build(lazyck, bundle, "fwd_a", "--arch", "gfx942")["compiled"] == 1
    assert build(lazyck, bundle, "bwd_a")["compiled"] == 2
    assert names(lazyck, bundle) == ["fwd_a", "fwd_b", "bwd_a"]
    assert names(lazyck, bundle, "--cached") == ["fwd_a", "bwd_a"]
    assert names(lazyck, bundle, "--missing") == ["fwd_b"]
    assert names(lazyck, bundle, "--cached", "--arch", "gfx9-4-generic") == ["bwd_a"]
    assert names(lazyck, bundle, "--missing", "--arch", "gfx942;gfx9-4-generic") == ["fwd_a", "fwd_b"]
    assert names(lazyck, bundle, "--match", "fwd_*") == ["fwd_a", "fwd_b"]
    assert names(lazyck, bundle, "--match", "*/bwd*.cpp") == ["bwd_a"]
    assert names(lazyck, bundle, "--match", "nothing") == []
    text = lazyck("prebuild", "list", "--manifest", bundle.file).stdout
    assert text == "fwd_a\tgfx942\nfwd_b\t-\nbwd_a\tgfx942 gfx9_4_generic\n"


def test_what_is_missing_is_a_blob_list_for_the_next_build(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    assert build(lazyck, bundle, "fwd_a", "--arch", "gfx942")["compiled"] == 1
    missing = tmp_path / "missing"
    missing.write_text("\n".join(names(lazyck, bundle, "--missing", "--arch", "gfx942")))
    done = build(lazyck, bundle, "--blob-list", missing, "--arch", "gfx942")
    assert (done["cached"], done["compiled"]) == (0, 2)


def test_json_has_paths(lazyck: Lazyck, bundle: Bundle) -> None:
    assert build(lazyck, bundle, "bwd_a", "--arch", "gfx942")["compiled"] == 1
    done = lazyck("prebuild", "list", "--manifest", bundle.file, "--format", "json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert rows["fwd_a"]["entries"] == {}
    assert (rows["bwd_a"]["cached"], rows["bwd_a"]["symbols"]) == (True, 1)
    assert Path(rows["bwd_a"]["entries"]["gfx942"]).is_file()


def test_entries_of_another_extra_key_are_not_taken_for_this_one(lazyck: Lazyck, bundle: Bundle) -> None:
    assert (
        lazyck("prebuild", "build", "--manifest", bundle.file, "fwd_a", env={"LAZYCK_EXTRA_CACHE_KEY": "x"}).returncode
        == 0
    )
    assert names(lazyck, bundle, "--cached") == []


def test_cached_and_missing_together_make_no_sense(lazyck: Lazyck, bundle: Bundle) -> None:
    done = lazyck("prebuild", "list", "--manifest", bundle.file, "--cached", "--missing")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr
