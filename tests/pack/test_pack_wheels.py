"""Tests `lazyck pack --wheel`: it makes wheels of prebuilt entries, one for each arch, for a wheel
with lazy libraries. How the runtime finds what they install is tested in runtime/test_packs.py."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import HERE, Lazyck, wait_for_another_time
from support.base_wheels import make_wheel, pip_install
from support.bundles import Bundle, entries, make_bundle

PLATFORM = f"linux_{HERE.name}"


def lazy_library(bundle: Bundle) -> Path:
    """Make a library that has nothing but the bundle's manifest."""
    library = bundle.directory / f"{bundle.manifest.library}.so"
    text = f'.section .lazyck.manifest,"a"\n.incbin "{bundle.file}"\n'
    argv: list[str | Path] = [HERE.cxx, "-shared", "-nostdlib", "-x", "assembler", "-", "-o", library]
    subprocess.run(argv, input=text, text=True, check=True)
    return library


def files_of(bundle: Bundle) -> list[Path]:
    return [lazy_library(bundle), *sorted(p for p in (bundle.directory / "lazyck").rglob("*") if p.is_file())]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942", "gfx950"])


def base_of(bundle: Bundle, dist: Path, version: str = "1.0", **how: str) -> Path:
    return make_wheel(dist, bundle.directory, files_of(bundle), version, **how)


def pack(lazyck: Lazyck, base: Path, *words: str | Path, status: int = 0, env: Mapping[str, str] | None = None) -> str:
    done = lazyck("pack", "--base", base, *words, env=env)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_each_arch_is_a_wheel_of_its_own_for_one_version_of_the_base(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    base = base_of(bundle, tmp_path / "dist")
    said = pack(lazyck, base, "--all", "--wheel", tmp_path / "dist")
    names = [f"vectors_gfx942-1.0-py3-none-{PLATFORM}.whl", f"vectors_gfx950-1.0-py3-none-{PLATFORM}.whl"]
    assert sorted(os.listdir(tmp_path / "dist")) == [base.name, *names]
    for name, arch in zip(names, ("gfx942", "gfx950"), strict=True):
        assert f"{tmp_path}/dist/{name}: 2 prebuilt entries of libtiny for {arch}" in said
        found = members(tmp_path / "dist" / name)
        cached = {k: p for k, p in entries(tmp_path / "lazyck-cache").items() if k.startswith(arch)}
        prefix = f"vectors_{arch}/lazyck/cache/"
        assert {k: v for k, v in found.items() if k.startswith(prefix)} == {
            f"{prefix}{p.relative_to(tmp_path / 'lazyck-cache')}": p.read_bytes() for p in cached.values()
        }
        assert found[f"vectors_{arch}/lazyck/pack"].decode().splitlines() == [
            "lazyck pack 1",
            f"pack Vectors-{arch} 1.0",
            f"part Vectors-{arch} 1.0",
            "base Vectors 1.0",
            f"library {bundle.manifest.digest} vectors/libtiny.so",
        ]
        metadata = found[f"vectors_{arch}-1.0.dist-info/METADATA"].decode()
        assert f"Name: Vectors-{arch}\nVersion: 1.0\n" in metadata
        assert "Requires-Dist: Vectors==1.0\n" in metadata


def test_pip_takes_a_pack_out_again_and_python_sees_its_entry_point(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    dist = tmp_path / "dist"
    pack(lazyck, base_of(bundle, dist), "one", "--arch", "gfx942", "--wheel", dist)
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv" / "bin" / "python")]
    subprocess.run([*pip, "install", "-q", "--no-index", "--find-links", dist, "vectors-gfx942"], check=True)
    (installed,) = importlib.metadata.distributions(name="vectors-gfx942", path=[str(site)])
    (entry,) = installed.entry_points
    assert (entry.group, entry.name, entry.value) == ("lazyck.packs", "libtiny", "vectors_gfx942")
    before = sorted(p for p in (site / "vectors").rglob("*") if p.is_file())
    subprocess.run([*pip, "uninstall", "-q", "-y", "vectors-gfx942"], check=True)
    assert [p for p in (site / "vectors_gfx942").rglob("*") if p.is_file()] == []
    assert sorted(p for p in (site / "vectors").rglob("*") if p.is_file()) == before


def test_equal_entries_make_equal_wheels(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    base = base_of(bundle, tmp_path / "dist")
    other = tmp_path / "elsewhere" / base.name
    other.parent.mkdir()
    shutil.copy(base, other)
    pack(lazyck, base, "--all", "--wheel", tmp_path / "x")
    wait_for_another_time(2)  # a zip file's times are even
    pack(lazyck, other, "--all", "--wheel", tmp_path / "y")
    made = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("x", "y")]
    assert len(made[0]) == 2
    assert made[0] == made[1]
    pack(lazyck, base, "--all", "--wheel", tmp_path / "z", env={"SOURCE_DATE_EPOCH": "1700000000"})
    for wheel in (tmp_path / "z").iterdir():
        with zipfile.ZipFile(wheel) as archive:
            assert {i.date_time for i in archive.infolist()} == {time.gmtime(1_700_000_000)[:6]}


def test_a_wheel_above_the_size_is_split_and_the_first_requires_the_rest(lazyck: Lazyck, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", [f"blob{i}" for i in range(5)], archs=["80", "90a"], toolchain="cuda")
    base = base_of(bundle, tmp_path / "dist")
    pack(lazyck, base, "--all", "--wheel", tmp_path / "whole")
    assert [p.name.partition("-")[0] for p in sorted((tmp_path / "whole").iterdir())] == [
        "vectors_sm80",
        "vectors_sm90a",
    ]
    pack(lazyck, base, "--all", "--arch", "90a", "--wheel", tmp_path / "w", "--max-size", "20KB")
    wheels = sorted((tmp_path / "w").iterdir())
    stems = [p.name.partition("-")[0] for p in wheels]
    assert stems == ["vectors_sm90a", *(f"vectors_sm90a_{i}" for i in range(2, len(wheels) + 1))]
    assert len(wheels) > 1
    assert all(p.stat().st_size <= 20 << 10 for p in wheels)
    packed = [n for p in wheels for n in members(p) if n.endswith(".so")]
    assert len(packed) == len(set(packed)) == 5
    requires = [m for m in members(wheels[0])["vectors_sm90a-1.0.dist-info/METADATA"].decode().splitlines()]
    assert [r for r in requires if r.startswith("Requires-Dist")] == [
        "Requires-Dist: Vectors==1.0",
        *(f"Requires-Dist: Vectors-sm90a-{i}==1.0" for i in range(2, len(wheels) + 1)),
    ]
    assert b"pack Vectors-sm90a 1.0\npart Vectors-sm90a-2 1.0" in members(wheels[1])["vectors_sm90a_2/lazyck/pack"]
    said = pack(lazyck, base, "--all", "--wheel", tmp_path / "none", "--max-size", "17KB", status=1)
    assert "blob0-" in said and "this entry alone takes" in said
    assert list((tmp_path / "none").iterdir()) == []


def test_packs_for_gpus_require_the_host_s_own_entries(lazyck: Lazyck, tmp_path: Path) -> None:
    host = make_bundle(tmp_path / "h", ["one"], name="libhost")
    gpu = make_bundle(tmp_path / "g", ["two"], name="libgpu", archs=["gfx942"])
    shutil.copy(lazy_library(host), gpu.directory)
    shutil.copytree(host.directory / "lazyck", gpu.directory / "lazyck", dirs_exist_ok=True)
    base = make_wheel(tmp_path / "dist", gpu.directory, [gpu.directory / "libhost.so", *files_of(gpu)], "1.0")
    said = pack(lazyck, base, "--all", "--wheel", tmp_path / "w")
    assert "1 prebuilt entry of libhost libgpu for gfx942" in said or "of libgpu libhost for gfx942" in said
    wheels = {p.name.partition("-1.0-")[0]: members(p) for p in (tmp_path / "w").iterdir()}
    assert sorted(wheels) == ["vectors_gfx942", f"vectors_{HERE.name}"]
    metadata = wheels["vectors_gfx942"]["vectors_gfx942-1.0.dist-info/METADATA"].decode()
    assert f"Requires-Dist: Vectors-{HERE.name}==1.0\n" in metadata
    points = wheels["vectors_gfx942"]["vectors_gfx942-1.0.dist-info/entry_points.txt"].decode()
    assert sorted(points.splitlines()) == ["[lazyck.packs]", "libgpu = vectors_gfx942", "libhost = vectors_gfx942"]
    assert (
        "Requires-Dist: Vectors-"
        not in wheels[f"vectors_{HERE.name}"][f"vectors_{HERE.name}-1.0.dist-info/METADATA"].decode()
    )
    # A list names blobs of either library. What neither has is an error.
    (tmp_path / "list").write_text("two\none\n")
    pack(lazyck, base, "--blob-list", tmp_path / "list", "--wheel", tmp_path / "w2")
    assert len(list((tmp_path / "w2").iterdir())) == 2
    pack(lazyck, base, "two", "--wheel", tmp_path / "w3")
    assert len(list((tmp_path / "w3").iterdir())) == 1
    assert "Vectors has no blob of this name:\n  three" in pack(lazyck, base, "one", "three", "--wheel", "w", status=1)
    assert "no blob named" in pack(lazyck, base, "--wheel", "w", status=2)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("py3-none-any", f"py3-none-{PLATFORM}"),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", ""),
        ("1-cp39-abi3-linux_x86_64", ""),
    ],
)
def test_a_pack_fits_wherever_its_base_fits(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, tag: str, expected: str
) -> None:
    pack(lazyck, base_of(bundle, tmp_path, tag=tag), "one", "--arch", "gfx942", "--wheel", tmp_path / "w")
    (wheel,) = (tmp_path / "w").iterdir()
    assert wheel.name == f"vectors_gfx942-1.0-{expected or tag}.whl"
    about = members(wheel)["vectors_gfx942-1.0.dist-info/WHEEL"].decode()
    assert about.count("Tag: ") == (2 if "manylinux" in tag else 1)
    assert ("Build: 1\n" in about) == tag.startswith("1-")
    assert "Root-Is-Purelib: true\n" in about


def test_a_base_that_is_not_a_wheel_with_one_build_of_its_libraries_is_refused(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    good = base_of(bundle, tmp_path / "good")

    def refused(base: Path, *messages: str) -> None:
        said = pack(lazyck, base, "--all", "--wheel", tmp_path / "w", status=1)
        assert all(m in said for m in (str(base), *messages)), said
        assert not (tmp_path / "w").exists()

    refused(tmp_path / good.name, "No such file")
    (tmp_path / good.name).write_text("text")
    refused(tmp_path / good.name, "File is not a zip file")
    shutil.copy(good, tmp_path / "kernels.zip")
    refused(tmp_path / "kernels.zip", "Bad wheel filename")
    shutil.copy(good, tmp_path / "other-1.0-py3-none-any.whl")
    refused(tmp_path / "other-1.0-py3-none-any.whl", "Missing other-1.0.dist-info/RECORD")
    data = bytearray(good.read_bytes())
    data[len(data) // 3] ^= 1
    (tmp_path / good.name).write_bytes(data)
    refused(tmp_path / good.name, "not a wheel that can be read")
    plain = bundle.directory / "plain.so"
    subprocess.run([HERE.cxx, "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", plain], check=True)
    refused(make_wheel(tmp_path / "p", bundle.directory, [plain], "1.0"), "there is no lazy library in it")
    outside = base_of(bundle, tmp_path / "o", into="vectors-1.0.data/data/lib")
    refused(outside, "vectors-1.0.data/data/lib/libtiny.so is not installed into site-packages")
    later = make_bundle(tmp_path / "b" / "later", {"one": 'extern "C" int one() { return 7; }\n'}, archs=["gfx942"])
    both = [lazy_library(later), *files_of(bundle)]
    two = make_wheel(tmp_path / "t", bundle.directory, both, "1.0")
    refused(two, "vectors/later/libtiny.so and vectors/libtiny.so are two builds of one library, libtiny")
    assert bundle.compiled() == []


def test_a_library_may_be_at_two_places_and_in_another_scheme(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    files = files_of(bundle)
    (bundle.directory / "again").mkdir()
    shutil.copy(files[0], bundle.directory / "again" / "libtiny.so.1")
    files.append(bundle.directory / "again" / "libtiny.so.1")
    base = make_wheel(tmp_path / "d", bundle.directory, files, "1.0", into="vectors-1.0.data/platlib/vectors")
    pack(lazyck, base, "--all", "--arch", "gfx942", "--wheel", tmp_path / "w")
    (wheel,) = (tmp_path / "w").iterdir()
    digest = bundle.manifest.digest
    assert members(wheel)["vectors_gfx942/lazyck/pack"].decode().splitlines()[4:] == [
        f"library {digest} vectors/again/libtiny.so.1", f"library {digest} vectors/libtiny.so",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all", "--wheel", "w", "--per-arch"], "wheels are always per arch"),
        (["--all", "--wheel", "w", "--max-size", "big"], "--max-size 'big': not a size"),
        (["--all", "--wheel", "w", "--manifest", "m"], "--tar and --manifest go together"),
        (["--all"], "one of --tar FILE and --wheel DIR"),
    ],
)
def test_mistakes_are_told_before_anything_is_compiled(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, words: list[str], message: str
) -> None:
    assert message in pack(lazyck, base_of(bundle, tmp_path), *words, status=2)
    assert bundle.compiled() == []


def test_a_wheel_without_its_base_is_a_mistake(lazyck: Lazyck) -> None:
    done = lazyck("pack", "--all", "--wheel", "w")
    assert done.returncode == 2
    assert "name the wheel with the library by --base WHEEL" in done.stderr


def test_pip_installs_the_version_of_the_base_that_a_pack_was_made_for(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path
) -> None:
    dist = tmp_path / "dist"
    pack(lazyck, base_of(bundle, dist), "one", "--arch", "gfx942", "--wheel", dist)
    base_of(bundle, dist, "1.1")
    pip_install(tmp_path / "site", dist, "vectors-gfx942")
    assert (tmp_path / "site" / "vectors-1.0.dist-info").exists()
