"""Tests the shim homes of whole ROCm trees: which of their programs are shims, and what `realpath`
and the real compilers see."""

# ruff: noqa: F401, F811
import os
from pathlib import Path

import pytest
from support.shim_project import SYSTEM_PATH, MakeProject, Project, built_shim, clean_env, make_project, script

SHOW = 'echo "$0|$ROCM_PATH|$HIP_PATH|$HIPCXX"\n'


@pytest.fixture
def rocm6(tmp_path: Path) -> Path:
    """Make a ROCm 6 tree: `llvm` links to `lib/llvm`, and `bin/amdclang++` and `bin/hipcc` link to
    the programs there."""
    home = tmp_path / "opt/rocm-6.2.0"
    for name in ("hipcc", "clang++", "amdclang++"):
        script(home / "lib/llvm/bin" / name, SHOW)
    script(home / "lib/llvm/bin/llvm-objcopy", "echo objcopy\n")
    (home / "lib/libamdhip64.so").touch()
    (home / "llvm").symlink_to("lib/llvm")
    (home / "bin").mkdir()
    for name in ("hipcc", "amdclang++"):
        (home / "bin" / name).symlink_to(f"../lib/llvm/bin/{name}")
    script(home / "bin/rocminfo", "echo info\n")
    (home / "include/hip").mkdir(parents=True)
    return home


@pytest.fixture
def rocm5(tmp_path: Path) -> Path:
    """Make a ROCm 5 tree, with the part `hip/` that HIP_PATH may name."""
    home = tmp_path / "opt/rocm-5.2.3"
    script(home / "bin/hipcc", SHOW)
    script(home / "llvm/bin/clang++", SHOW)
    (home / "hip/bin").mkdir(parents=True)
    (home / "hip/bin/hipcc").symlink_to("../../bin/hipcc")
    (home / "hip/include").symlink_to("../include")
    (home / "include/hip").mkdir(parents=True)
    return home


@pytest.mark.parametrize(
    "program",
    [
        "bin/hipcc",
        "bin/amdclang++",
        "llvm/bin/clang++",
        "lib/llvm/bin/clang++",
        "llvm/bin/hipcc",
        "llvm/bin/amdclang++",
    ],
)
def test_every_compiler_of_a_shim_home_is_a_shim_to_realpath_too(
    rocm6: Path, make_project: MakeProject, program: str
) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm6)), toolchain="rocm")
    project.write("blob/k.hip", "\n")
    shown = Path(project.interception.env["ROCM_PATH"])
    real = Path(project.ok("realpath", shown / program).strip())
    assert real.is_relative_to(shown)
    for path in (shown / program, real):
        project.ok(path, "-x", "hip", "-c", "blob/k.hip", "-o", "k.o")
        assert (project.last.action, project.last.tool) == ("defer", Path(program).name)
        call = project.compile("k.o").call
        assert call.toolchain == "rocm"
        assert call.argv[0] == str(rocm6 / program.replace("llvm/bin", "lib/llvm/bin").replace("lib/lib", "lib"))


def test_all_else_in_a_shim_home_is_the_real_one(rocm6: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm6)), toolchain="rocm")
    shown = Path(project.interception.env["ROCM_PATH"])
    for place in (
        "bin/rocminfo",
        "lib/llvm/bin/llvm-objcopy",
        "llvm/bin/llvm-objcopy",
        "lib/libamdhip64.so",
        "include",
    ):
        assert (shown / place).resolve() == (rocm6 / place).resolve()
    assert (shown / "llvm").readlink() == Path("lib/llvm")


def test_a_real_hipcc_below_its_shim_is_told_the_real_home(rocm6: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm6)), toolchain="rocm")
    shown = project.interception.env["ROCM_PATH"]
    assert project.ok(f"{shown}/bin/hipcc", "x") == f"{rocm6}/bin/hipcc|{rocm6}||\n"


def test_hip_path_may_name_a_part_of_rocm(rocm5: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(HIP_PATH=f"{rocm5}/hip"), toolchain="rocm")
    hip = Path(project.interception.env["HIP_PATH"])
    assert hip.name == "hip" and project.interception.home_map[str(hip.parent)] == str(rocm5)
    project.write("blob/k.cpp", "\n")
    for program in (hip / "bin/hipcc", hip.parent / "bin/hipcc", hip / "../bin/hipcc"):
        project.ok(program, "-c", "blob/k.cpp", "-o", "k.o")
        assert project.last.action == "defer"
    assert project.ok(hip / "bin/hipcc", "x").startswith(f"{rocm5}/hip/bin/hipcc||{rocm5}/hip|")


def test_home_variables_are_set_if_none_of_them_was(rocm6: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(PATH=f"{rocm6}/bin:{SYSTEM_PATH}"), toolchain="rocm")
    env = project.interception.env
    assert env["ROCM_PATH"] == env["ROCM_HOME"] == env["HIP_PATH"]
    assert project.interception.home_map[env["ROCM_PATH"]] == str(rocm6)
    assert project.ok("hipcc", "x") == f"{rocm6}/bin/hipcc|||\n"  # the real compiler sees none of these variables


def test_cmake_is_told_the_shim_of_rocm_s_clang(rocm6: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(PATH=f"{rocm6}/bin:{SYSTEM_PATH}"), toolchain="rocm")
    project.write("blob/k.hip", "\n")
    project.ok(project.interception.env["HIPCXX"], "-x", "hip", "-c", "blob/k.hip", "-o", "k.o")
    assert (project.last.action, project.last.tool) == ("defer", "clang++")


def test_hip_for_nvidia_gets_no_clang(rocm6: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(PATH=f"{rocm6}/bin:{SYSTEM_PATH}", HIP_PLATFORM="nvidia"), toolchain="rocm")
    assert "HIPCXX" not in project.interception.env


@pytest.mark.parametrize(
    ("platform", "reason"), [("nvidia", "hip-on-nvidia"), ("nvcc", "hip-on-nvidia"), ("amd", "blob")]
)
def test_a_hipcc_for_nvidia_is_passed_on(rocm6: Path, make_project: MakeProject, platform: str, reason: str) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm6)), toolchain="rocm")
    project.write("blob/k.hip", "\n")
    hipcc = f"{project.interception.env['ROCM_PATH']}/bin/hipcc"
    project.ok(hipcc, "-c", "blob/k.hip", "-o", "k.o", HIP_PLATFORM=platform)
    assert project.last.reason == reason


def test_a_home_in_the_system_s_directories_is_not_named(make_project: MakeProject) -> None:
    if not os.access("/usr/bin/hipcc", os.X_OK):
        pytest.skip("needs a hipcc in /usr/bin: apt-get install hipcc")
    project = make_project(clean_env(HIP_PLATFORM="amd"), toolchain="rocm")
    assert "ROCM_PATH" not in project.interception.env


def test_compilers_under_versioned_names_get_shims(tmp_path: Path, make_project: MakeProject) -> None:
    tools = tmp_path / "tools"
    target = f"{os.uname().machine}-linux-gnu-g++"
    for name in ("g++-99", "clang++-99.1", target, "clang++-tidy-99", "g++-99.cfg"):
        script(tools / name, "echo real\n")
    project: Project = make_project(clean_env(PATH=f"{tools}:{SYSTEM_PATH}"), toolchain="host")
    shims = set(os.listdir(project.interception.bin_dirs[0]))
    assert {"g++-99", "clang++-99.1", target} <= shims
    assert not {"clang++-tidy-99", "g++-99.cfg"} & shims  # test_launch has compilers for other machines
    project.write("blob/k.cpp", "\n")
    project.ok("g++-99", "-c", "blob/k.cpp", "-o", "k.o")
    assert (project.last.action, project.last.tool) == ("defer", "g++-99")
