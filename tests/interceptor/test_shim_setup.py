"""Tests the set-up: which compilers stand behind the shims, and what a build's environment then
says."""

# ruff: noqa: F401, F811
import os
from pathlib import Path

import pytest
from setuptools import find_namespace_packages
from support.shim_project import SYSTEM_PATH, MakeProject, Project, built_shim, clean_env, make_project, script

from lazyck.errors import ToolchainError, UsageError
from lazyck.interceptor.log import passed_reasons, read_log
from lazyck.interceptor.setup import find_toolchains

SHOW = 'echo "$0|$ROCM_PATH|$PATH|$CXX|$CCACHE_DISABLE"\n'


@pytest.fixture
def rocm(tmp_path: Path) -> Path:
    home = tmp_path / "opt/rocm"
    script(home / "bin/hipcc", SHOW)
    script(home / "bin/rocminfo", "echo info\n")
    (home / "include/hip").mkdir(parents=True)
    (home / "include/hip/hip_runtime.h").write_text("\n")
    (home / "lib").mkdir()
    return home


def test_a_named_home_becomes_a_shim_home_that_links_to_it(rocm: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm)), toolchain="rocm")
    home = Path(project.interception.env["ROCM_PATH"])
    assert home != rocm and project.interception.home_map[str(home)] == str(rocm)
    assert not (home / "bin/hipcc").is_symlink() and (home / "bin/hipcc").resolve() == home / "bin/hipcc"
    assert (home / "bin/rocminfo").readlink() == rocm / "bin/rocminfo"
    assert (home / "include").readlink() == rocm / "include"
    assert "ROCM_HOME" not in project.interception.env and "HIPCC" not in project.interception.env


def test_the_real_compiler_sees_the_environment_as_it_was(rocm: Path, make_project: MakeProject) -> None:
    path = f"{rocm}/bin:{SYSTEM_PATH}"
    project = make_project(clean_env(ROCM_PATH=str(rocm), PATH=path), toolchain="rocm")
    said = project.ok(Path(project.interception.env["ROCM_PATH"]) / "bin/hipcc", "x").strip()
    assert said == f"{rocm}/bin/hipcc|{rocm}|{path}||"


def test_paths_below_a_shim_home_are_recorded_as_the_real_ones(rocm: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(ROCM_PATH=str(rocm)), toolchain="rocm")
    project.write("blob/k.cpp", "\n")
    home = project.interception.env["ROCM_PATH"]
    bin_dir = project.interception.bin_dirs[0]
    options = (f"-I{home}/include", f"--rocm-path={home}", f"-DX={home}x", "-gcc-toolchain", f"{bin_dir}/g++")
    output = ("-c", "blob/k.cpp", "-o", "k.o")
    project.ok(f"{home}/bin/hipcc", *options, *output, CPATH=f"{home}/include:/x")
    call = project.compile("k.o").call
    assert call.argv[:4] == (f"{rocm}/bin/hipcc", f"-I{rocm}/include", f"--rocm-path={rocm}", f"-DX={home}x")
    assert call.argv[5] == "/usr/bin/g++"
    assert call.env[:-1] == (("CPATH", f"{rocm}/include:/x"), ("ROCM_PATH", str(rocm)))


def test_a_compiler_found_on_path_has_its_home_above_it(rocm: Path, make_project: MakeProject) -> None:
    project = make_project(clean_env(PATH=f"{rocm}/bin:{SYSTEM_PATH}"), toolchain="rocm")
    program = Path(project.ok("sh", "-c", "command -v hipcc").strip())
    assert program.is_file() and not program.is_symlink()
    assert (program.parent.parent / "include/hip/hip_runtime.h").exists()
    assert (program.parent / "rocminfo").exists()


def test_a_shim_home_on_path_hides_nothing(rocm: Path, tmp_path: Path, make_project: MakeProject) -> None:
    mine = script(tmp_path / "mine/rocminfo", "echo mine\n")
    project = make_project(clean_env(PATH=f"{mine.parent}:{rocm}/bin:{SYSTEM_PATH}"), toolchain="rocm")
    assert project.ok("rocminfo") == "mine\n"
    assert project.ok("hipcc").startswith(f"{rocm}/bin/hipcc|")


def test_tools_that_search_a_project_for_packages_pass_shim_homes_by(rocm: Path, make_project: MakeProject) -> None:
    named = make_project(clean_env(ROCM_PATH=str(rocm)), toolchain="rocm")
    homes = [Path(home) for home in named.interception.home_map]
    assert homes
    tmp = homes[0].parent
    found = find_namespace_packages(str(tmp.parent))
    assert not [name for name in found if "home" in name or "path" in name], found


def test_variables_that_name_compilers_name_shims(rocm: Path, make_project: MakeProject) -> None:
    env = clean_env(HIPCC=f"{rocm}/bin/hipcc", CC="gcc", CXX="g++")
    project = make_project(env, toolchain="rocm")
    project.write("blob/k.cpp", "\n")
    for variable, tool in (("HIPCC", "hipcc"), ("CC", "gcc"), ("CXX", "g++")):
        assert Path(project.interception.env[variable]).name == tool
        project.ok("sh", "-c", f'"${variable}" -c blob/k.cpp -o k.o')
        assert (project.last.action, project.last.tool) == ("defer", tool)
    assert "CUDACXX" not in project.interception.env


def test_cxx_is_always_set_because_builds_link_by_it(make_project: MakeProject) -> None:
    project = make_project(toolchain="host")
    assert project.ok("sh", "-c", '"$CXX" -dumpmachine').strip() == project.ok("g++", "-dumpmachine").strip()


def test_a_compiler_that_is_not_there_stays_the_build_s_problem(make_project: MakeProject) -> None:
    project = make_project(clean_env(CXX="/no/such/g++"), toolchain="host")
    assert project.interception.env["CXX"] == "/no/such/g++"


def test_set_up_inside_a_set_up_finds_the_real_compilers(make_project: MakeProject) -> None:
    outer = make_project(toolchain="host").interception.env
    found = find_toolchains("host", outer)
    assert found[0].compiler == ("/usr/bin/c++",)


def test_only_names_that_exist_get_a_shim(tmp_path: Path, make_project: MakeProject) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("g++", "gcc", "as", "ld"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    project = make_project(clean_env(PATH=str(tmp_path / "bin")), toolchain="host")
    names = {p.name for p in Path(project.interception.bin_dirs[0]).iterdir() if p.is_file()}
    assert names == {"g++", "gcc", "lazyck-launch"}


def test_a_missing_toolchain_is_an_error_that_says_where_it_was_looked_for() -> None:
    if Path("/opt/rocm/bin/hipcc").exists():
        pytest.skip("this machine has ROCm")
    with pytest.raises(ToolchainError) as caught:
        find_toolchains("rocm", {"PATH": "/bin-without-anything"})
    assert "ROCM_PATH" in caught.value.render() and "/opt/rocm" in caught.value.render()
    with pytest.raises(UsageError):
        find_toolchains("metal", {})


def test_a_home_is_followed_through_a_wrapper_script(tmp_path: Path) -> None:
    script(tmp_path / "cuda-99/bin/nvcc", f'echo "#\\$ TOP={tmp_path}/cuda-99/bin/.." >&2\n')
    script(tmp_path / "bin/nvcc", f'exec "{tmp_path}/cuda-99/bin/nvcc" "$@"\n')
    found = {f.toolchain.name: f for f in find_toolchains("auto", clean_env(PATH=f"{tmp_path}/bin:{SYSTEM_PATH}"))}
    assert found["cuda"].home == str(tmp_path / "cuda-99")
    assert found["cuda"].compiler == (str(tmp_path / "bin/nvcc"),)


def test_a_tmp_dir_that_cannot_be_on_path_is_refused(tmp_path: Path) -> None:
    from lazyck.interceptor.setup import set_up

    with pytest.raises(UsageError, match="cannot be on PATH"):
        set_up(tmp_path / "a:b", "host", ["*"], clean_env(), python="python3", verbose=False)


def test_the_log_counts_by_action_and_reason(make_project: MakeProject) -> None:
    project: Project = make_project(toolchain="host")
    project.write("blob/tab\there\nand \\t.cpp", "\n")
    project.ok("g++", "-c", "blob/tab\there\nand \\t.cpp", "-o", "k.o")
    project.ok("g++", "--version")
    project.ok("g++", "-E", "/dev/null")
    project.ok("g++", "-dumpversion")
    with project.interception.log.open("a") as f:
        f.write("defer\tblob\tg++")  # this line is cut short
    lines = read_log(project.interception.log)
    assert lines[0].source == f"{project.dir}/blob/tab\there\nand \\t.cpp"
    assert [line.action for line in lines].count("defer") == 1
    assert passed_reasons(lines) == [("query", 2), ("preprocess", 1)]
    assert read_log(Path(os.devnull + "-missing")) == []
