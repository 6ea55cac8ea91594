"""Test how a HIP build chooses its architectures: from the options, the environment, the commands,
or the machine."""

from pathlib import Path

import pytest
from support import FAKE_ROCM, Lazyck
from support.hip_builds import assert_calls_reach_hip, build_hip
from support.ops_library import inspect
from support.rocm_layouts import need_real_hip

from lazyck.toolchains import ROCM, archs_of_environment, resolve_native
from lazyck.toolchains.base import Found

SHOW = 'echo "$GPU_ARCHS|$PYTORCH_ROCM_ARCH|$AMDGPU_TARGETS|$HCC_AMDGPU_TARGET"'


def asked(lazyck: Lazyck, tmp_path: Path, archs: str, **env: str) -> str:
    """Return what a build sees of `--gpu-archs`."""
    env = {"ROCM_PATH": str(FAKE_ROCM), **env}
    words = ["--toolchain", "rocm", "--gpu-archs", archs, "--tmp-dir", str(tmp_path / "tmp")]
    done = lazyck("build", "full", *words, "--", "sh", "-c", SHOW, env=env)
    return done.stdout.strip() if done.returncode == 0 else done.stderr


def test_a_build_is_told_the_archs_each_variable_in_its_own_spelling(lazyck: Lazyck, tmp_path: Path) -> None:
    both = "gfx942;gfx90a:xnack-"
    # hipcc inserts the last variable into a command line for the shell, so it has commas.
    assert asked(lazyck, tmp_path, "gfx942 gfx90a:xnack-") == f"{both}|{both}|{both}|gfx942,gfx90a:xnack-"


def test_a_variable_that_the_user_set_stays(lazyck: Lazyck, tmp_path: Path) -> None:
    assert asked(lazyck, tmp_path, "gfx942", GPU_ARCHS="gfx950") == "gfx950|gfx942|gfx942|gfx942"


def test_native_is_the_gpu_present(lazyck: Lazyck, tmp_path: Path) -> None:
    assert asked(lazyck, tmp_path, "native", FAKE_ROCM_ARCH="gfx1100").startswith("gfx1100|")


def test_native_without_a_gpu_is_an_error_that_says_what_to_write(lazyck: Lazyck, tmp_path: Path) -> None:
    said = asked(lazyck, tmp_path, "native", FAKE_ROCM_ARCH="none")
    assert "no GPU answers" in said and "--gpu-archs 'gfx942" in said


def test_native_is_asked_of_the_real_enumerator(tmp_path: Path) -> None:
    if not Path("/usr/bin/rocm_agent_enumerator").is_file():
        pytest.skip("needs rocm_agent_enumerator: apt-get install rocminfo")
    (tmp_path / "target.lst").write_text("gfx90a\n")
    env = {"ROCM_TARGET_LST": str(tmp_path / "target.lst"), "PATH": "/usr/bin:/bin"}
    found = Found(ROCM, "/usr", ("/usr/bin/hipcc",))
    assert resolve_native("native;gfx1030", [found], env) == "gfx90a;gfx1030"


@pytest.mark.parametrize("variable", ["GPU_ARCHS", "PYTORCH_ROCM_ARCH", "AMDGPU_TARGETS", "HCC_AMDGPU_TARGET"])
def test_the_environment_s_archs_are_read_and_nonsense_is_not_ours(variable: str) -> None:
    found = [Found(ROCM, "/nowhere", ("/nowhere/bin/hipcc",))]
    assert archs_of_environment(found, {variable: "gfx942;gfx90a:xnack-"}) == (("rocm", ("gfx942", "gfx90a:xnack-")),)
    assert archs_of_environment(found, {variable: "native"}) == ()
    assert archs_of_environment(found, {variable: "whatever"}) == ()


@pytest.mark.parametrize(
    ("words", "asks"),
    [(("--offload-arch=native",), True), (("--offload-arch=gfx942,native",), True), (("--offload-arch=gfx942",), False),
     (("-DX=native", "-march=native"), False)],
)  # fmt: skip
def test_a_command_line_that_asks_for_the_gpus_present(words: tuple[str, ...], asks: bool) -> None:
    assert ROCM.names_native(words) is asks


@pytest.mark.hip
def test_a_build_that_names_no_arch_has_that_of_its_environment(lazyck: Lazyck, tmp_path: Path) -> None:
    need_real_hip()
    env = {"HIP_PLATFORM": "amd", "OFFLOAD": " ", "HCC_AMDGPU_TARGET": "gfx90a"}
    build = build_hip(lazyck, tmp_path, "./build.sh", env)
    assert {*inspect(lazyck, build.library)["recipes"][0]["archs"]} == {"gfx90a"}
    assert_calls_reach_hip(build)
    (tmp_path / "target.lst").write_text("gfx90a\n")
    env["ROCM_TARGET_LST"] = str(tmp_path / "target.lst")  # a GPU, as far as the real enumerator can tell
    listed = lazyck("prebuild", "list", "--manifest", build.library, "--gpu-archs", "native", env=env)
    assert "scale_float_3\tgfx90a" in listed.stdout, listed.stderr


@pytest.mark.hip
def test_feature_suffixes_are_kept_for_the_build_and_dropped_for_a_blob(lazyck: Lazyck, tmp_path: Path) -> None:
    need_real_hip()
    build = build_hip(lazyck, tmp_path, "./build.sh", {"HIP_PLATFORM": "amd"}, archs="gfx90a:xnack-")
    assert {*inspect(lazyck, build.library)["recipes"][0]["archs"]} == {"gfx90a:xnack-"}
    assert_calls_reach_hip(build)  # plain gfx90a code runs with any setting of xnack
