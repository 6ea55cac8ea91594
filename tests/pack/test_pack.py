"""Tests `lazyck pack --tar`: it makes a tar of prebuilt entries that a deployment installs beside
the library."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from support import Lazyck, wait_for_another_time
from support.bundles import Bundle, build, entries, make_bundle
from support.ops_library import build_ops

from lazyck.errors import LazyckError
from lazyck.pack.packed_files import PackedFile


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942", "gfx950"])


def pack(lazyck: Lazyck, bundle: Bundle, *words: str | Path, status: int = 0, **env: str) -> str:
    done = lazyck("pack", "--manifest", bundle.file, *words, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz", ".tgz", ".tar"])
def test_a_tar_has_the_layout_that_is_installed_beside_the_library(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"kernels{suffix}"
    said = pack(lazyck, bundle, "--all", "--tar", file)
    assert f"{file}: 4 prebuilt entries of libtiny for gfx942 gfx950" in said
    with tarfile.open(file) as tar:
        members = tar.getmembers()
    directories = [m.name for m in members if m.isdir()]
    assert directories == [
        "lazyck/cache", "lazyck/cache/v1", "lazyck/cache/v1/libtiny", "lazyck/cache/v1/libtiny/gfx942-g++-test",
        "lazyck/cache/v1/libtiny/gfx950-g++-test",
    ]  # fmt: skip
    assert {m.mode for m in members if m.isdir()} == {0o755}
    assert {m.mode for m in members if m.isfile()} == {0o644}
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "root", "root")}
    names = [m.name for m in members if m.isfile()]
    assert names == sorted(names)
    cached = {
        f"lazyck/cache/{p.relative_to(tmp_path / 'lazyck-cache')}" for p in entries(tmp_path / "lazyck-cache").values()
    }
    assert set(names) == cached


def test_equal_entries_make_equal_files(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    for form in (".tar.xz", ".tar.gz"):
        pack(lazyck, bundle, "--all", "--tar", tmp_path / f"a{form}")
        wait_for_another_time()
        pack(lazyck, bundle, "--all", "--tar", tmp_path / f"b{form}")
        assert (tmp_path / f"a{form}").read_bytes() == (tmp_path / f"b{form}").read_bytes()
    pack(lazyck, bundle, "--all", "--tar", tmp_path / "dated.tar", SOURCE_DATE_EPOCH="1700000000")
    with tarfile.open(tmp_path / "dated.tar") as tar:
        assert {m.mtime for m in tar.getmembers()} == {1_700_000_000}


def test_one_file_for_each_arch(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    pack(lazyck, bundle, "--all", "--per-arch", "--tar", tmp_path / "out" / "kernels.tar.gz")
    assert sorted(os.listdir(tmp_path / "out")) == ["kernels-gfx942.tar.gz", "kernels-gfx950.tar.gz"]
    with tarfile.open(tmp_path / "out" / "kernels-gfx950.tar.gz") as tar:
        assert all("gfx950-" in m.name for m in tar.getmembers() if m.isfile())


def test_no_build_names_what_is_missing_and_packs_nothing(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    build(lazyck, bundle, "one", "--arch", "gfx942")
    said = pack(lazyck, bundle, "--all", "--arch", "gfx942", "--no-build", "--tar", tmp_path / "k.tar", status=1)
    assert "1 of 2 entries are not cached:\n  two (gfx942)" in said
    assert not (tmp_path / "k.tar").exists()
    assert bundle.compiled() == ["one"]
    pack(lazyck, bundle, "one", "--arch", "gfx942", "--no-build", "--tar", tmp_path / "k.tar")


def test_a_damaged_entry_is_not_packed(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    build(lazyck, bundle, "--all", "--arch", "gfx942")
    entry = entries(tmp_path / "lazyck-cache")["gfx942/two"]
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 1
    entry.write_bytes(data)
    said = pack(lazyck, bundle, "--all", "--arch", "gfx942", "--no-build", "--tar", tmp_path / "k.tar", status=1)
    assert "two (gfx942)" in said
    pack(lazyck, bundle, "--all", "--arch", "gfx942", "--tar", tmp_path / "k.tar")  # the entry is compiled again
    entry.write_bytes(bytes(data[:100]))
    with pytest.raises(LazyckError, match="changed while"):
        PackedFile(entry, Path("x")).read()  # type: ignore[arg-type]


def test_what_does_not_compile_is_not_packed(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    bundle.source("two").write_text("#error broken on purpose\n")
    said = pack(lazyck, bundle, "--all", "--arch", "gfx942", "--tar", tmp_path / "k.tar", status=1)
    assert "broken on purpose" in said
    assert not (tmp_path / "k.tar").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all"], "one of --tar FILE and --wheel DIR"),
        (["--all", "--tar", "k.tar", "--wheel", "w"], "one of --tar FILE and --wheel DIR"),
        (["--all", "--tar", "kernels.zip"], "end it in .tar.xz"),
        (["--all", "--tar", ".tar"], "end it in .tar.xz"),
        (["--all", "--wheel", "w", "--base", "b"], "--tar and --manifest go together"),
        (["--all", "--tar", "k.tar", "--base", "b"], "--wheel and --base go together"),
        (["--all", "--tar", "k.tar", "--max-size", "9MB"], "--max-size goes with --wheel"),
    ],
)
def test_mistakes_are_told_before_anything_is_compiled(
    lazyck: Lazyck, bundle: Bundle, words: list[str], message: str
) -> None:
    assert message in pack(lazyck, bundle, *words, status=2)
    assert bundle.compiled() == []


def test_the_entries_of_an_unpacked_tar_are_whole(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    done = lazyck("pack", "--manifest", ops.library, "special_d64_true", "plain", "c_plain",
                  "--tar", tmp_path / "k.tar.xz")  # fmt: skip
    assert done.returncode == 0, done.stderr
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir(mode=0o700)
    subprocess.run(["tar", "-C", unpacked, "-xf", tmp_path / "k.tar.xz"], check=True)
    root = unpacked / "lazyck" / "cache"
    env = {"LAZYCK_CACHE_DIR": str(root), "LAZYCK_JIT": "off", "PATH": "/nonexistent"}
    called = ops.call("print(special(64, 1), plain(2))", env)
    assert (called.stdout, called.stderr) == ("644.0 15.0\n", "")
