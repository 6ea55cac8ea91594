"""Test HIP compilers as a distribution installs them, new enough to find all their parts by
themselves. Nothing of ours stands between, and no variable is set. Debian 12's hipcc is older
(test_rocm_builds.py tests it). These tests ran with Debian sid's hipcc 7.0.2, HIP 6.4.3, clang 21
and CMake 4.3 (docs/toolchains.md).
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import Lazyck
from support.hip_builds import assert_calls_reach_hip, build_hip

from lazyck.toolchains import ROCM, rocm_places
from lazyck.toolchains.base import Found
from lazyck.toolchains.requirement import RequirementState

pytestmark = pytest.mark.hip
ARCHS = ("gfx942", "gfx1030")


@pytest.fixture(autouse=True)
def new_hipcc() -> Found:
    """Return the distribution's hipcc, or skip the test if it does not know `ARCHS`."""
    found = Found(ROCM, "/usr", ("/usr/bin/hipcc",))
    if not rocm_places.hipcc_in("/usr") or not set(ARCHS) <= set(ROCM.known_archs(found, os.environ)):
        pytest.skip("needs a distribution's hipcc that knows gfx942 (Debian sid's does, Debian 12's does not)")
    return found


def versioned_clang() -> str:
    """Return the name on PATH of hipcc's clang, or skip the test if there is none."""
    said = subprocess.run(["hipcc", "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"clang version (\d+)", said)
    name = f"clang++-{version[1]}" if version else ""
    if not name or not shutil.which(name):
        pytest.skip(f"needs {name or 'a clang of a known version'} on PATH")
    return name


def test_hipcc_on_path_compiles_a_blob_on_its_first_call(lazyck: Lazyck, tmp_path: Path) -> None:
    build = build_hip(lazyck, tmp_path, "./build.sh", {}, archs=";".join(ARCHS), light=False)
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in build.done.stderr
    assert build.deferred_by() == {"hipcc"}
    assert_calls_reach_hip(build, ARCHS)


def test_clang_compiles_hip_under_its_versioned_name(lazyck: Lazyck, tmp_path: Path) -> None:
    name = versioned_clang()
    command = f'HIPCC={name} LANGUAGE="-x hip" LDFLAGS=--hip-link ./build.sh'
    build = build_hip(lazyck, tmp_path, command, {}, archs="gfx942", light=False)
    assert build.deferred_by() == {name}
    assert_calls_reach_hip(build, ("gfx942",))


def test_cmakes_hip_language_is_led_to_a_shim_of_the_clang_that_hipconfig_names(lazyck: Lazyck, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    tool, given = "clang++", ""
    if not rocm_places.clang_of_hipconfig("/usr", os.environ):  # Debian 13's hipconfig names a missing clang++
        tool = versioned_clang()
        given = f"-DCMAKE_HIP_COMPILER={tool} -DCMAKE_HIP_COMPILER_ROCM_ROOT=/usr"
    command = f"cmake -S . -B build -G 'Unix Makefiles' -DCMAKE_HIP_ARCHITECTURES=$ARCHS {given} && cmake --build build"
    build = build_hip(lazyck, tmp_path, command, {}, archs="gfx942", light=False)
    assert build.deferred_by() == {tool}
    assert_calls_reach_hip(build, ("gfx942",))


def test_doctor_knows_its_archs_and_compiles_for_one(new_hipcc: Found) -> None:
    checks = {check.name: check for check in ROCM.checks(new_hipcc, os.environ)}
    assert checks["kernel"].state is RequirementState.OK
    assert checks["kernel"].detail.startswith("compiles and links for gfx")
