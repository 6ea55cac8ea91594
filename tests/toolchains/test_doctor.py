"""Test `lazyck doctor` on real toolchains, and on ones with missing parts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import FAKE_ROCM, Lazyck
from support.rocm_layouts import need_real_hip, rocm6, script

from lazyck.toolchains import ROCM
from lazyck.toolchains.requirement import install_line, manager_of

SYSTEM_PATH = "/usr/bin:/bin"


def examined(lazyck: Lazyck, **env: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    """Run the doctor. Return its status, the whole report, and the report's toolchains by name."""
    done = lazyck("doctor", "--json", env={"PATH": SYSTEM_PATH, **env})
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    return done.returncode, report, {t["name"]: t for t in report["toolchains"]}


def check(toolchain: dict[str, Any], name: str) -> dict[str, str]:
    """Return the check called `name`."""
    return next(c for c in toolchain["checks"] if c["name"] == name)


@pytest.mark.parametrize(
    ("text", "manager"),
    [('ID=debian\nVERSION_ID="12"\n', "apt"), ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt"),
     ("ID=fedora\n", "dnf"), ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf"), ('ID="opensuse-leap"\n', "zypper"),
     ("ID=arch\n", "pacman"), ("ID=nixos\n", ""), ("", "")],
)  # fmt: skip
def test_the_install_line_is_that_of_the_distribution(text: str, manager: str) -> None:
    assert manager_of(text) == manager
    lines = {"apt": "apt install x", "any": "pip install x"}
    assert install_line(lines, manager) == ("apt install x" if manager == "apt" else "pip install x")


def test_a_machine_with_a_host_compiler_is_healthy(lazyck: Lazyck) -> None:
    status, report, toolchains = examined(lazyck)
    assert (status, report["healthy"]) == (0, True)
    host = toolchains["host"]
    assert host["usable"] and Path(host["compiler"][0]).is_file() and host["identity"].startswith(("gcc", "clang"))
    assert check(host, "C++17 library")["state"] == "ok"
    assert {c["name"] for c in report["own"]} == {
        "C compiler",
        "unpacking",
        "reads of compiles",
        "cache directory",
        "tools directory",
    }


def test_a_machine_without_gzip_is_told_what_that_means(lazyck: Lazyck, tmp_path: Path) -> None:
    for name in ("tar", "c++", "g++", "cc", "gcc", "as", "ld"):
        if found := shutil.which(name):
            (tmp_path / name).symlink_to(found)
    status, report, _ = examined(lazyck, PATH=str(tmp_path))
    (seen,) = (c for c in report["own"] if c["name"] == "unpacking")
    assert (status, seen["state"]) == (0, "note")
    assert seen["detail"].startswith("no gzip: ")
    if manager_of(Path("/etc/os-release").read_text()) == "apt":
        assert seen["install"] == "apt install gzip"


def test_without_any_compiler_it_ends_with_1_and_says_how_to_get_one(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    status, report, toolchains = examined(lazyck, PATH=str(tmp_path / "empty"))
    assert (status, report["healthy"]) == (1, False)
    host = toolchains["host"]
    assert not host["found"] and not host["usable"]
    assert check(host, "compiler")["state"] == "missing" and "CXX" in check(host, "compiler")["detail"]
    text = lazyck("doctor", env={"PATH": str(tmp_path / "empty")}).stdout
    assert "host: not found" in text
    if manager_of(Path("/etc/os-release").read_text()) == "apt":
        assert "→ apt install g++" in text


def test_a_compiler_that_cannot_make_a_cxx17_library_is_not_usable(lazyck: Lazyck, tmp_path: Path) -> None:
    old = script(
        tmp_path / "g++", '#!/bin/sh\n[ "$1" = --version ] && exec g++ "$@"\necho "error: no C++17" >&2\nexit 1\n'
    )
    status, _, toolchains = examined(lazyck, CXX=str(old))
    assert status == 1
    assert check(toolchains["host"], "C++17 library")["detail"] == "error: no C++17"


@pytest.mark.parametrize(("mode", "state"), [(0o700, "ok"), (0o777, "missing")])
def test_a_cache_that_others_can_write_to_is_reported(lazyck: Lazyck, tmp_path: Path, mode: int, state: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    status, report, _ = examined(lazyck, LAZYCK_CACHE_DIR=str(cache))
    (seen,) = (c for c in report["own"] if c["name"] == "cache directory")
    assert (seen["state"], status) == (state, 0 if state == "ok" else 1)


def test_the_gpus_present_are_those_that_the_toolchain_s_own_program_lists(lazyck: Lazyck) -> None:
    env = {"ROCM_PATH": str(FAKE_ROCM), "FAKE_ROCM_ARCH": "gfx942,gfx1100"}
    _, _, toolchains = examined(lazyck, **env)
    assert toolchains["rocm"]["gpus"] == ["gfx942", "gfx1100"]
    assert toolchains["rocm"]["home"] == str(FAKE_ROCM)


@pytest.mark.hip
def test_a_real_hipcc_says_its_archs_and_compiles_a_kernel(lazyck: Lazyck) -> None:
    need_real_hip()
    status, _, toolchains = examined(lazyck, HIP_PLATFORM="amd")
    rocm = toolchains["rocm"]
    assert status == 0 and rocm["usable"], rocm
    assert {"gfx90a", "gfx1030"} <= set(rocm["archs"])
    assert "gfx942" not in rocm["archs"]  # clang 15 does not know it
    assert check(rocm, "kernel")["detail"] == "compiles and links for gfx90a"


@pytest.mark.hip
def test_missing_device_libraries_are_named(lazyck: Lazyck, tmp_path: Path) -> None:
    need_real_hip()
    home = rocm6(tmp_path / "rocm")
    shutil.rmtree(home / "amdgcn")
    _, _, toolchains = examined(lazyck, ROCM_PATH=str(home))
    rocm = toolchains["rocm"]
    assert rocm["found"] and not rocm["usable"]
    assert check(rocm, "device libraries")["state"] == "missing"
    assert "rocm" in check(rocm, "device libraries")["install"]


def test_missing_headers_are_named(lazyck: Lazyck, tmp_path: Path) -> None:
    complaint = "k.hip:1:10: fatal error: 'hip/hip_runtime.h' file not found"
    says = (
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "clang version 19.0"; exit; }}\necho "{complaint}" >&2\nexit 1\n'
    )
    script(tmp_path / "rocm/bin/hipcc", says)
    _, _, toolchains = examined(lazyck, ROCM_PATH=str(tmp_path / "rocm"), HIP_PLATFORM="amd")
    found = check(toolchains["rocm"], "headers")
    assert (found["state"], found["detail"]) == ("missing", complaint)
    assert found["install"]


def test_a_hipcc_that_would_run_nvcc_is_not_usable(lazyck: Lazyck, tmp_path: Path) -> None:
    script(tmp_path / "rocm/bin/hipcc", "#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\n")
    script(tmp_path / "cuda/bin/nvcc", "#!/bin/sh\n")
    _, _, toolchains = examined(lazyck, ROCM_PATH=str(tmp_path / "rocm"), PATH=f"{tmp_path}/cuda/bin:{SYSTEM_PATH}")
    found = check(toolchains["rocm"], "compiler")
    assert found["state"] == "missing" and "HIP_PLATFORM=amd" in found["install"]


def test_every_answer_of_a_toolchain_that_is_missing_says_where_it_was_looked_for() -> None:
    (only,) = ROCM.checks(None, {})
    assert "ROCM_PATH" in only.detail and only.install
