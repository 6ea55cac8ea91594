"""Tests that real compilers and build tools behind the shims do not notice them."""

# ruff: noqa: F401, F811
import shutil
import signal
import socket
from pathlib import Path

import pytest
from support.shim_project import SYSTEM_PATH, MakeProject, Project, built_shim, clean_env, host, make_project, script

CCACHE = Path("/usr/lib/ccache")
needs_ccache = pytest.mark.skipif(not (CCACHE / "g++").exists(), reason="ccache is not installed")
needs_cmake = pytest.mark.skipif(shutil.which("cmake", path=SYSTEM_PATH) is None, reason="cmake is not installed")


def test_feature_probes_get_the_compiler_s_own_answer(host: Project) -> None:
    assert "Free Software" in host.ok("g++", "--version")
    assert "__cplusplus" in host.ok("g++", "-E", "-dM", "-x", "c++", "/dev/null")
    assert host.run("g++", "-###", "-c", "blob/k.cpp", "-o", "k.o").stderr.count("cc1plus") == 1
    assert not (host.dir / "k.o").exists()


def test_a_kernel_on_stdin_decides_by_exit_status(host: Project) -> None:
    line = ("g++", "-x", "c++", "-c", "-o", "probe.o", "-")
    assert host.run(*line, stdin="int f() { return 1; }").returncode == 0
    assert host.run(*line, stdin="int f() { return x; }").returncode == 1


def test_a_missing_source_gives_the_compiler_s_error_and_status(host: Project) -> None:
    done = host.run("g++", "-c", "blob/gone.cpp", "-o", "gone.o")
    assert done.returncode == 1 and "No such file or directory" in done.stderr


def test_a_compiler_killed_by_a_signal_is_seen_as_such(tmp_path: Path, make_project: MakeProject) -> None:
    script(tmp_path / "bin/g++", "kill -9 $$\n")
    project = make_project(clean_env(PATH=f"{tmp_path}/bin:{SYSTEM_PATH}"), toolchain="host")
    assert project.run("g++", "x.cpp").returncode == -signal.SIGKILL


@needs_cmake
def test_cmake_configures_and_builds(host: Project) -> None:
    host.write("main.cpp", "int main() { return 0; }\n")
    host.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\ninclude(CheckCXXSourceCompiles)\n"
        'check_cxx_source_compiles("int main() { return __builtin_popcount(3) - 2; }" GOOD)\n'
        'check_cxx_source_compiles("int main() { return nonsense; }" BAD)\n'
        'if(NOT GOOD OR BAD)\n  message(FATAL_ERROR "wrong: ${GOOD} ${BAD}")\nendif()\n'
        "add_library(blobs STATIC blob/k.cpp)\nadd_executable(app main.cpp)\n",
    )
    # This also holds where the whole build lies below a directory that matches the globs.
    for build in ("build", "blob/build"):
        host.ok("cmake", "-G", "Ninja", "-S", ".", "-B", build)
        host.ok("cmake", "--build", build)
        assert "app" in host.ok("sh", "-c", f"cd {build} && ./app && echo app")
        reasons = {line.reason for line in host.log}
        assert {"blob", "query", "link-without-blobs"} <= reasons
        assert "no work to do" in host.ok("cmake", "--build", build)


def test_make_follows_the_depfile(host: Project) -> None:
    host.write("Makefile", "k.o: blob/k.cpp\n\t$(CXX) -MMD -MP -c $< -o $@\n-include k.d\n")
    host.ok("make")
    assert "up to date" in host.ok("make")
    assert host.last.action == "defer"


@needs_ccache
def test_a_masquerading_ccache_on_path_does_not_loop(make_project: MakeProject, tmp_path: Path) -> None:
    project = make_project(clean_env(PATH=f"{CCACHE}:{SYSTEM_PATH}", CCACHE_DIR=str(tmp_path / "cc")))
    project.write("a.cpp", "int a() { return 1; }\n")
    project.write("blob/k.cpp", "int k() { return 1; }\n")
    project.ok("g++", "-c", "a.cpp", "-o", "a.o")
    project.ok("g++", "-c", "blob/k.cpp", "-o", "k.o")
    assert [line.action for line in project.log] == ["pass", "defer"]
    assert project.compile("k.o").call.argv[0] == "/usr/bin/g++"


@needs_ccache
def test_ccache_in_cxx_stays_for_real_compiles_and_leaves_records(make_project: MakeProject, tmp_path: Path) -> None:
    env = clean_env(CXX="ccache g++ -m64 -DX", CCACHE_DIR=str(tmp_path / "cc"))
    project = make_project(env, toolchain="host")
    project.write("a.cpp", "#ifndef X\n#error X\n#endif\nint a() { return 1; }\n")
    project.write("blob/k.cpp", "int k() { return 1; }\n")
    for _ in range(2):
        project.ok("sh", "-c", '"$CXX" -c a.cpp -o a.o')
    statistics = project.ok("env", "-u", "CCACHE_DISABLE", "ccache", "--print-stats")
    assert "preprocessed_cache_hit\t1" in statistics or "direct_cache_hit\t1" in statistics
    project.ok("sh", "-c", '"$CXX" -c blob/k.cpp -o k.o')
    call = project.compile("k.o").call
    assert call.argv == ("/usr/bin/g++", "-m64", "-DX", "-c", "blob/k.cpp", "-o", "k.o") and call.prefix == 1


@needs_ccache
def test_ccache_before_a_shim_keeps_no_deferred_object(make_project: MakeProject, tmp_path: Path) -> None:
    env = clean_env(CCACHE_DIR=str(tmp_path / "cc"), CCACHE_COMPILERCHECK="none")
    project = make_project(env, toolchain="host")
    project.write("blob/k.cpp", "int k() { return 1; }\n")
    project.ok("ccache", "g++", "-c", "blob/k.cpp", "-o", "k.o")
    assert project.last.action == "defer"
    real = {**env, "PATH": SYSTEM_PATH}
    project.ok("env", "-i", *(f"{k}={v}" for k, v in real.items()), "ccache", "g++", "-c", "blob/k.cpp", "-o", "r.o")
    assert "k()" in project.ok("nm", "-C", "r.o")


@pytest.mark.skipif(not shutil.which("sccache"), reason="sccache is not installed")
def test_sccache_before_a_shim_keeps_no_deferred_object(make_project: MakeProject, tmp_path: Path) -> None:
    sccache = Path(shutil.which("sccache") or "")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = clean_env(SCCACHE_DIR=str(tmp_path / "sc"), SCCACHE_SERVER_PORT=str(port))
    project = make_project(env, toolchain="host")
    project.write("blob/k.cpp", "int k() { return 1; }\n")
    try:
        for _ in range(2):
            project.ok(sccache, "g++", "-c", "blob/k.cpp", "-o", "k.o")
            assert project.last.action == "defer"
            project.compile("k.o")
        real = {**env, "PATH": SYSTEM_PATH}
        words = (f"{k}={v}" for k, v in real.items())
        project.ok("env", "-i", *words, sccache, "g++", "-c", "blob/k.cpp", "-o", "r.o")
        assert "k()" in project.ok("nm", "-C", "r.o")
    finally:
        project.run(sccache, "--stop-server")


def test_a_real_compiler_that_leads_back_to_the_shim_is_named(tmp_path: Path, make_project: MakeProject) -> None:
    loop = script(tmp_path / "bin/g++", 'exec "$LOOP" "$@"\n')
    project = make_project(clean_env(PATH=f"{tmp_path}/bin:{SYSTEM_PATH}"), toolchain="host")
    done = project.run("g++", "x.cpp", LOOP=f"{project.interception.bin_dirs[0]}/g++")
    assert done.returncode == 1
    assert "leads back to it" in done.stderr and str(loop) in done.stderr


def test_the_shim_works_by_link_by_path_and_by_realpath(host: Project) -> None:
    shim = Path(host.interception.bin_dirs[0]) / "g++"
    assert shim.resolve() == shim
    (host.dir / "my-compiler").symlink_to(shim)
    for program in (shim, host.dir / "my-compiler", host.interception.env["CXX"]):
        host.ok(program, "-c", "blob/k.cpp", "-o", "k.o")
        assert host.last.action == "defer"
    assert "Free Software" in host.ok(host.dir / "my-compiler", "--version")


def test_a_shim_without_its_configuration_says_what_it_is(host: Project, tmp_path: Path) -> None:
    copy = shutil.copy(Path(host.interception.bin_dirs[0]) / "g++", tmp_path / "g++")
    done = host.run(copy, "--version")
    assert done.returncode == 1 and "shim without its configuration" in done.stderr
