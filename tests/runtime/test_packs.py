"""Test packs: wheels of entries for one arch, which pip installs beside the package that the lazy
library lives in. A stand-in for HIP says which GPU there is."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck
from support.base_wheels import make_wheel, pip_install
from support.lazylib import CXX, LazyLibrary, build_lazy_library, run

from lazyck import abi

HEADER = "#pragma once\nint arch();\nint other();\nint use();\n"
BLOBS = {"arch": "int arch() { return ARCH; }\n", "other": "int other() { return 1; }\n"}
MAIN = '#include "demo.h"\nint use() { return arch(); }\n'
SYMBOLS = {"arch": ("_Z4archv",), "other": ("_Z5otherv",)}
PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
int main() {
    int status = 0;
    for (int (*each)() : {use, other}) {
        try { std::printf("%d\n", each()); }
        catch (const lazyck::CompileError& e) { std::puts(e.what()); status = 3; }
    }
    return status;
}
"""
DEVICE = r"""
#include <cstdlib>
#include <cstring>
extern "C" int hipGetDevice(int* d) { *d = 0; return 0; }
extern "C" int hipGetDeviceCount(int* n) { *n = 1; return 0; }
extern "C" int hipGetDevicePropertiesR0600(char* p, int) { std::strcpy(p + 1160, std::getenv("TEST_GPU")); return 0; }
"""


@dataclass(frozen=True)
class Release:
    """A library, and the directory with its wheels: the base, and a pack for each arch."""

    lib: LazyLibrary
    dist: Path

    @property
    def base(self) -> Path:
        return next(self.dist.glob("vectors-*.whl"))

    @property
    def build(self) -> str:
        """Return the digits by which messages name the library's build."""
        return self.lib.manifest.digest[:12]


@dataclass(frozen=True)
class Site:
    """A directory that pip has installed into."""

    path: Path
    release: Release

    @property
    def library(self) -> Path:
        return self.path / "vectors" / "libdemo.so"

    def pack(self, arch: str) -> Path:
        return self.path / f"vectors_{arch}"

    def call(self, arch: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program that calls the installed library's two blobs on a GPU of this arch, with an
        empty cache."""
        shutil.rmtree(self.cache, ignore_errors=True)
        return self.call_again(arch, **env)

    def call_again(self, arch: str, **env: str) -> subprocess.CompletedProcess[str]:
        place = {"LD_LIBRARY_PATH": str(self.library.parent), "TEST_GPU": arch, "LAZYCK_CACHE_DIR": str(self.cache)}
        return self.release.lib.call(self.release.lib.directory / "main", env={**place, **env})

    @property
    def cache(self) -> Path:
        return self.path.with_name(f"{self.path.name}-cache")


FORBIDDEN = {"LAZYCK_JIT": "off", "PATH": "/nonexistent"}


def release(where: Path, objects_dir: Path, lazyck: Lazyck, version: str, other: int, *words: str) -> Release:
    where.mkdir()
    (where / "device.cpp").write_text(DEVICE)
    run([CXX, "-shared", "-fPIC", where / "device.cpp", "-o", where / "libdevice.so"])
    blobs = {"arch": BLOBS["arch"], "other": BLOBS["other"].replace("1", str(other))}
    lib = build_lazy_library(
        where, objects_dir, blobs, MAIN, header=HEADER, symbols=SYMBOLS, toolchain="rocm",
        arch_flags=("-Dgfx942=942", "-Dgfx950=950", f"-DARCH={abi.PH_ARCH}"), archs=["gfx942", "gfx950"],
        link_flags=["-Wl,--no-as-needed", "-L.", "-ldevice", "-Wl,-rpath,$ORIGIN"],
    )  # fmt: skip
    lib.program(PROGRAM, libs=[f"-Wl,-rpath-link,{where}"])
    files = [lib.library, where / "libdevice.so", *(p for p in (where / "lazyck").rglob("*") if p.is_file())]
    base = make_wheel(where / "dist", where, files, version)
    done = lazyck("pack", "--base", base, "--all", "--wheel", base.parent, *words, env=lib.env)
    assert done.returncode == 0, done.stderr
    return Release(lib, base.parent)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path, lazyck_shared: Lazyck) -> Release:
    return release(tmp_path_factory.mktemp("packs") / "1.0", objects_dir, lazyck_shared, "1.0", 1)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path, lazyck_shared: Lazyck) -> Release:
    """Return a later release: one source has changed."""
    return release(tmp_path_factory.mktemp("packs") / "1.1", objects_dir, lazyck_shared, "1.1", 2)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, first: Release) -> Path:
    """Return a directory with the first release's base and both packs. Nobody may change it."""
    site = tmp_path_factory.mktemp("installed") / "site"
    pip_install(site, first.dist, "vectors-gfx942", "vectors-gfx950")
    return site


@pytest.fixture
def site(tmp_path: Path, installed: Path, first: Release) -> Site:
    return Site(Path(shutil.copytree(installed, tmp_path / "site")), first)


def test_packs_for_two_archs_side_by_side_need_no_compiler(site: Site) -> None:
    assert site.release.lib.compiles() == 4
    for arch in ("gfx942", "gfx950"):
        done = site.call(arch, **FORBIDDEN)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{arch[3:]}\n1\n", "")
    assert site.release.lib.compiles() == 4


def test_without_the_pack_of_its_arch_a_device_has_no_entries(tmp_path: Path, first: Release) -> None:
    site = Site(tmp_path / "site", first)
    pip_install(site.path, first.dist, "vectors-gfx942")
    assert site.call("gfx942", **FORBIDDEN).returncode == 0
    done = site.call("gfx950", **FORBIDDEN)
    assert done.returncode == 3
    assert "blob 'arch' for gfx950 is missing in the cache" in done.stdout
    assert "another build" not in done.stdout


def test_packs_are_looked_for_only_where_no_other_cache_has_the_entry(site: Site) -> None:
    assert site.call("gfx942").stderr == ""
    (site.pack("gfx950") / "lazyck" / "pack").write_text("lazyck pack 2\n")
    said = site.call("gfx942").stderr
    assert said.count("was written by another version of lazyck; skipped") == 1
    shutil.copytree(site.pack("gfx942") / "lazyck" / "cache", site.cache, dirs_exist_ok=True)
    for path in [site.cache, *site.cache.rglob("*")]:
        path.chmod(0o700)
    assert site.call_again("gfx942", **FORBIDDEN).stderr == ""


def pasted(command: str, site: Site, dist: Path) -> None:
    """Run a command of pip that a message shows, for this site and these wheels."""
    (pip := site.path.with_name("bin") / "pip").parent.mkdir()
    pip.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pip "$@"\n')
    pip.chmod(0o755)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(dist), "PIP_TARGET": str(site.path), "PIP_UPGRADE": "1"}
    env = {**os.environ, **settings, "PATH": f"{pip.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", command], env=env, check=True, capture_output=True)


def upgraded(site: Site, release: Release) -> Site:
    """Return the site after the base alone was replaced by that of another release."""
    pip_install(site.path, release.dist, "--upgrade", "--no-deps", "vectors")
    shutil.rmtree(site.path / "vectors-1.0.dist-info")  # --target leaves it behind
    return Site(site.path, release)


def test_a_pack_of_another_build_is_an_error_that_names_both(site: Site, first: Release, second: Release) -> None:
    site = upgraded(site, second)
    done = site.call("gfx942", **FORBIDDEN)
    assert done.returncode == 3
    assert "blob 'arch' for gfx942 is missing in the cache" in done.stdout
    words = (
        f"installed for another build of demo: Vectors-gfx942 1.0, Vectors-gfx950 1.0, made for Vectors 1.0 "
        f"(build {first.build}); '{site.library}' is of Vectors 1.1 (build {second.build}); "
        f"to install those of this build: "
    )
    assert words in done.stdout
    command = done.stdout.split(words)[1].splitlines()[0]
    assert command == "pip install Vectors-gfx942==1.1 Vectors-gfx950==1.1"
    pasted(command, site, second.dist)
    assert site.call("gfx942", **FORBIDDEN).stdout == "942\n2\n"


def test_a_pack_of_another_build_of_one_version_is_told_apart(
    site: Site, tmp_path: Path, first: Release, objects_dir: Path, lazyck: Lazyck
) -> None:
    again = release(tmp_path / "again", objects_dir, lazyck, "1.0", 3)
    pip_install(site.path, again.dist, "--upgrade", "--no-deps", "--force-reinstall", "vectors")
    site = Site(site.path, again)
    done = site.call("gfx942", **FORBIDDEN)
    assert f"made for Vectors 1.0 (build {first.build})" in done.stdout
    assert f"is of Vectors 1.0 (build {again.build})" in done.stdout
    command = re.findall("pip install .*gfx942.*", done.stdout)[0]
    assert command == "pip install --force-reinstall --no-deps Vectors-gfx942==1.0 Vectors-gfx950==1.0"
    pasted(command, site, again.dist)
    assert site.call("gfx942", **FORBIDDEN).stdout == "942\n3\n"


def test_a_base_that_two_directories_claim_is_not_given_a_version(site: Site, second: Release) -> None:
    pip_install(site.path, second.dist, "--upgrade", "--no-deps", "vectors")
    done = Site(site.path, second).call("gfx942", **FORBIDDEN)
    assert f"is of Vectors (build {second.build}); install these packs and Vectors from one build" in done.stdout


def test_where_a_compile_is_allowed_a_pack_of_another_build_is_a_warning(site: Site, second: Release) -> None:
    site = upgraded(site, second)
    done = site.call("gfx942")
    assert (done.returncode, done.stdout) == (0, "942\n2\n")
    assert done.stderr.count("installed for another build of demo: Vectors-gfx942 1.0, ") == 1


def test_without_a_compiler_the_error_names_the_pack_of_another_build(site: Site, second: Release) -> None:
    site = upgraded(site, second)
    away = second.lib.compiler.with_name("away")
    second.lib.compiler.rename(away)
    try:
        done = site.call("gfx942")
    finally:
        away.rename(second.lib.compiler)
    assert done.returncode == 3
    assert "cannot start" in done.stdout
    assert done.stdout.count("installed for another build of demo: Vectors-gfx942 1.0, ") == 2


def test_what_the_compiler_refuses_is_not_blamed_on_a_pack(site: Site, second: Release) -> None:
    site = upgraded(site, second)
    source = site.path / "vectors" / "lazyck" / "src" / "arch.cpp"
    source.write_text("#error broken on purpose\n")
    done = site.call("gfx942")
    assert "broken on purpose" in done.stdout
    assert "another build" not in done.stdout


@pytest.mark.parametrize("place", [".", "lazyck", "lazyck/pack", "lazyck/cache", "lazyck/cache/v1/demo"])
def test_a_pack_that_others_can_write_is_passed_over_with_the_reason(site: Site, place: str) -> None:
    path = site.pack("gfx942") / place
    path.chmod(0o777)
    done = site.call("gfx942", **FORBIDDEN)
    assert done.returncode == 3
    assert "blob 'arch' for gfx942 is missing" in done.stdout
    assert str(path) in done.stderr
    path.chmod(0o755)
    assert site.call("gfx942", **FORBIDDEN).returncode == 0


def test_a_link_in_place_of_a_pack_is_not_followed(site: Site, tmp_path: Path) -> None:
    site.pack("gfx942").rename(tmp_path / "elsewhere")
    site.pack("gfx942").symlink_to(tmp_path / "elsewhere")
    done = site.call("gfx942", **FORBIDDEN)
    assert done.returncode == 3
    assert str(site.pack("gfx942")) in done.stderr


@pytest.mark.parametrize("module", ["../elsewhere", "{}/elsewhere", "vectors_gfx950.elsewhere", "."])
def test_an_entry_point_leads_only_to_a_directory_of_the_site(site: Site, tmp_path: Path, module: str) -> None:
    for place in (tmp_path / "elsewhere", site.pack("gfx950") / "elsewhere", site.path):
        shutil.copytree(site.pack("gfx942"), place, dirs_exist_ok=True)
    shutil.rmtree(site.pack("gfx942"))
    points = next(site.path.glob("vectors_gfx942-*/entry_points.txt"))
    points.write_text(points.read_text().replace("vectors_gfx942", module.format(tmp_path)))
    assert site.call("gfx942", **FORBIDDEN).returncode == 3


def test_only_the_group_of_packs_is_read(site: Site) -> None:
    points = next(site.path.glob("vectors_gfx942-*/entry_points.txt"))
    text = points.read_text()
    points.write_text(text.replace("[lazyck.packs]", "[console_scripts]"))
    assert site.call("gfx942", **FORBIDDEN).returncode == 3
    points.write_text(f"[console_scripts]\r\nx = y:z\r\n\r\n# {text}\r\n[ lazyck.packs ]\n" + text)
    assert site.call("gfx942", **FORBIDDEN).returncode == 0


def test_another_packages_library_of_the_same_name_is_no_mismatch(site: Site, second: Release) -> None:
    site = upgraded(site, second)
    for arch in ("gfx942", "gfx950"):
        pack = site.pack(arch) / "lazyck" / "pack"
        pack.write_text(pack.read_text().replace("vectors/libdemo.so", "others/libdemo.so"))
    done = site.call("gfx942", **FORBIDDEN)
    assert done.returncode == 3
    assert "another build" not in done.stdout


def test_a_site_may_hold_things_that_are_no_packs(site: Site) -> None:
    (site.path / "broken-1.dist-info").mkdir()
    os.mkfifo(site.path / "broken-1.dist-info" / "entry_points.txt")
    (site.path / "empty-1.dist-info").mkdir()
    (site.path / "file-1.dist-info").write_text("")
    (site.path / "gone-1.dist-info").mkdir()
    (site.path / "gone-1.dist-info" / "entry_points.txt").write_text("[lazyck.packs]\ndemo = gone\n=\ndemo\n")
    done = site.call("gfx942", **FORBIDDEN)
    assert done.stdout == "942\n1\n"
    assert done.stderr.count("gone") == 1


def test_explain_names_the_pack_that_has_the_entry(site: Site, lazyck: Lazyck, tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(site.library)
    env = {"LAZYCK_CACHE_DIR": str(site.cache)}
    said = lazyck("cache", "explain", link, "arch", "--gpu-archs", "gfx942", env=env).stdout
    assert "arch for gfx942: hit" in said
    assert f"entry       {site.pack('gfx942')}/lazyck/cache/v1/demo/gfx942-" in said
    assert "pack        Vectors-gfx942 1.0 has the entry" in said
    assert "pack        Vectors-gfx950 1.0 does not have it" in said


def test_explain_names_the_pack_of_another_build(site: Site, lazyck: Lazyck, second: Release) -> None:
    site = upgraded(site, second)
    env = {"LAZYCK_CACHE_DIR": str(site.cache)}
    said = lazyck("cache", "explain", site.library, "arch", "--gpu-archs", "gfx942", env=env).stdout
    assert "arch for gfx942: miss" in said
    assert "pack        installed for another build of demo: Vectors-gfx942 1.0, made for Vectors 1.0" in said


def test_split_wheels_are_installed_by_one_name(tmp_path: Path, first: Release, lazyck: Lazyck) -> None:
    dist = tmp_path / "dist"
    words = ("--all", "--gpu-archs", "gfx942", "--max-size", "19KB", "--no-build", "--wheel", dist)
    done = lazyck("pack", "--base", first.base, *words, env=first.lib.env)
    assert done.returncode == 0, done.stderr
    assert len(list(dist.iterdir())) == 2
    assert all(wheel.stat().st_size <= 19 << 10 for wheel in dist.iterdir())
    shutil.copy(first.base, dist)
    site = Site(tmp_path / "site", first)
    pip_install(site.path, dist, "vectors-gfx942")
    assert site.call("gfx942", **FORBIDDEN).stdout == "942\n1\n"
