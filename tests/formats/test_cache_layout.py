"""Tests that the commands take the names of a cache's files apart as the runtime puts them
together."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.bundles import make_bundle

from lazyck.errors import FormatError
from lazyck.formats.layout import EntryPath, is_of_entry, log_of, root_of, split_build
from lazyck.formats.manifest import encode
from lazyck.remote import EntryName


@pytest.mark.parametrize("extra_key", ["", "mine"])
def test_the_path_of_an_entry_says_what_the_runtime_made_it_for(tmp_path: Path, rt_tool: Path, extra_key: str) -> None:
    bundle = make_bundle(tmp_path / "b", ["one"], archs=["gfx942", "gfx9-4-generic"])
    blob = replace(bundle.manifest.blobs[0], name="dir-1/a b-0123456789abcdef.so")
    bundle.file.write_bytes(encode(replace(bundle.manifest, blobs=(blob,))))
    cache = tmp_path / "cache"
    env = {**os.environ, "LAZYCK_CACHE_DIR": str(cache), "LAZYCK_EXTRA_CACHE_KEY": extra_key}
    argv: list[str | Path] = [rt_tool, "status", "--from", bundle.file, "--arch", "gfx942", "--arch", "gfx9-4-generic"]
    row = json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout)
    path = Path(row["path"])
    place = EntryPath.of(path)
    assert root_of(path) == cache
    assert (place.library, place.archs) == ("libtiny", "gfx9_4_generic+gfx942")
    assert place.blob.startswith("dir-1_a_b-0123456789abcdef.so~")
    assert place.digest == blob.digest[:16]
    toolchain, salt = split_build(place.build)
    assert toolchain == bundle.manifest.recipes[0].toolchain_id
    assert len(salt) == (12 if extra_key else 0)
    assert (place.is_entry, place.is_log) == (True, False)
    assert (EntryPath.of(log_of(path)).is_entry, EntryPath.of(log_of(path)).is_log) == (False, True)
    name = EntryName(row["key"], row["entry"])
    assert name.entry_path == place


@pytest.mark.parametrize(
    "name",
    [
        "", "lib", "lib/any-g++", "lib/any-g++/add.so", "lib/any-g++/add-0123456789abcdef.log",
        "lib/any-g++/add-0123456789abcde.so", "lib/any-g++/add-0123456789abcdeF.so", "lib/any-g++/-0123456789abcdef.so",
        "x/lib/any-g++/add-0123456789abcdef.so", "lib//add-0123456789abcdef.so", "../any-g++/add-0123456789abcdef.so",
        "lib/../add-0123456789abcdef.so", "lib/any-g++/.add-0123456789abcdef.so", "lib/any g++/add-0123456789abcdef.so",
        "lib/any-g++/add\n-0123456789abcdef.so", "lib/any-g++/add-0123456789abcdef.so\n",
        "lib/any-g++/" + "a" * 252 + "-0123456789abcdef.so",
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused_as_a_name_in_a_remote(name: str) -> None:
    with pytest.raises(FormatError):
        EntryName("0" * 32, name)
    assert EntryName("0" * 32, "lib/any-g++/add-0123456789abcdef.so").entry_path.blob == "add"


def test_files_that_belong_to_an_entry_are_known_by_their_ends() -> None:
    own = ("a-0.so", "a-0.log", "a-0.so.seen", "a-0.so.bad-17-3")
    assert [is_of_entry(name) for name in own] == [True] * len(own)
    assert not any(map(is_of_entry, ("none of ours", "a-0.so.lock", ".0123456789abcdef")))
