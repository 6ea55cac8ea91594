"""Tests the file in which a bundle travels to workers."""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from support.bundles import make_bundle

from lazyck.errors import BuildError, FormatError
from lazyck.prebuild.farm.parcel import pack, parcel_files, unpack, unpacked


def test_the_same_bundle_makes_the_same_bytes_wherever_and_whenever(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "here", ["one", "two"])
    for place in ("here", "there"):
        if place == "there":
            shutil.copytree(tmp_path / "here", tmp_path / place)
            for path in (tmp_path / place).rglob("*"):
                os.utime(path, (1, 1))
        files = parcel_files(tmp_path / place / "lazyck" / "libtiny" / "manifest", bundle.manifest, {})
        pack(tmp_path / f"{place}.parcel", files, bundle.manifest)
    assert (tmp_path / "here.parcel").read_bytes() == (tmp_path / "there.parcel").read_bytes()


def test_a_parcel_is_fetched_once_and_verified(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", ["one", "two"])
    pack(tmp_path / "parcel", parcel_files(bundle.file, bundle.manifest, {}), bundle.manifest)
    digest = hashlib.sha256((tmp_path / "parcel").read_bytes()).hexdigest()
    env = {"XDG_CACHE_HOME": str(tmp_path / "home")}
    fetched = []

    def fetch(to: Path) -> bool:
        fetched.append(to)
        shutil.copy(tmp_path / "parcel", to)
        return True

    for _ in range(2):
        manifest_file = unpacked(digest, "libtiny", fetch, env)
        assert manifest_file.read_bytes() == bundle.file.read_bytes()
        assert (manifest_file.parents[1] / "src" / "one.cpp").read_text() == bundle.source("one").read_text()
    assert len(fetched) == 1
    with pytest.raises(FormatError, match="not the one that was sent"):
        unpacked("0" * 64, "libtiny", fetch, env)
    with pytest.raises(BuildError, match="not in the remote cache"):
        unpacked("1" * 64, "libtiny", lambda _: False, env)
    assert not list((tmp_path / "home" / "lazyck-tools" / "farm").glob(".new-*"))


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", ["one"])
    moved = tmp_path / "libtiny.so"
    with pytest.raises(BuildError, match="its bundle is not at"):
        parcel_files(moved, bundle.manifest, {})
    assert parcel_files(moved, bundle.manifest, {"LAZYCK_ROOT": str(bundle.directory / "lazyck")})


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "./a"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "parcel", "w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(FormatError, match="not a bundle"):
        unpack(tmp_path / "parcel", tmp_path / "in" / "it")
    assert not (tmp_path / "out").exists()


def test_links_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "parcel", "w:gz") as tar:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(FormatError, match="not a bundle"):
        unpack(tmp_path / "parcel", tmp_path / "in")
