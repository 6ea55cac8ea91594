"""Tests `lazyck-launch` with compilers that a build names by their paths."""

# ruff: noqa: F401, F811
import shutil
import subprocess
from pathlib import Path

import pytest
from support.shim_project import (
    SYSTEM_PATH,
    MakeProject,
    Project,
    built_shim,
    clean_env,
    fake,
    host,
    make_project,
    script,
)

from lazyck.interceptor.shims import launcher_variables


def launcher(project: Project) -> Path:
    return Path(project.interception.bin_dirs[0]) / "lazyck-launch"


def tool(project: Project, name: str) -> Path:
    """Make a compiler that no variable and no PATH names."""
    where = project.dir.parent / "elsewhere" / name
    if not where.exists():
        script(where, f'echo "REAL {name}"; printf "%s\\n" "$@"\n')
    return where


@pytest.mark.parametrize(
    ("name", "toolchain"),
    [("g++", "host"), ("g++-12", "host"), ("clang++-19", "host"), ("c++", "host"), ("amdclang++", "host"),
     ("x86_64-conda-linux-gnu-g++", "host"), ("x86_64-linux-gnu-gcc-12", "host"), ("hipcc", "rocm"), ("nvcc", "cuda")],
)  # fmt: skip
def test_a_compiler_by_its_path_defers_as_its_shim_would(fake: Project, name: str, toolchain: str) -> None:
    if name.startswith("x86_64") and Path("/lib/ld-linux-aarch64.so.1").exists():
        pytest.skip("names of x86-64 compilers")
    real = tool(fake, name)
    source = "blob/k.cu" if toolchain == "cuda" else "blob/k.cpp"
    assert fake.ok(launcher(fake), real, "-O2", "-c", source, "-o", "k.o") == ""
    call = fake.compile("k.o").call
    assert (call.tool, call.toolchain, call.argv[:2], call.prefix) == (name, toolchain, (str(real), "-O2"), 1)
    assert fake.ok(launcher(fake), real, "-shared", "k.o", "-o", "k.so").startswith("POST ")


def test_what_is_passed_on_runs_in_the_environment_without_the_shims(fake: Project) -> None:
    real = script(fake.dir.parent / "elsewhere/g++", 'echo "$PATH|$CMAKE_CXX_COMPILER_LAUNCHER|$*"\n')
    said = fake.ok(launcher(fake), real, "-c", "src/m.cpp", "-o", "a b")
    assert said == f"{fake.dir.parent}/fake/bin:{SYSTEM_PATH}||-c src/m.cpp -o a b\n"
    assert (fake.last.action, fake.last.reason) == ("pass", "not-a-blob")


def test_a_shim_behind_the_launcher_is_that_shim(fake: Project) -> None:
    for path in (fake.interception.env["CXX"], f"{fake.interception.bin_dirs[0]}/c++", "c++"):
        fake.ok(launcher(fake), path, "-c", "blob/k.cpp", "-o", "k.o")
        assert fake.last.action == "defer"
        assert fake.compile("k.o").call.argv[0] == f"{fake.dir.parent}/fake/bin/c++"
    fake.ok(launcher(fake), launcher(fake), "c++", "-c", "blob/k.cpp", "-o", "k.o")
    assert fake.last.action == "defer"


@pytest.mark.parametrize("name", ["icpx", "nvc++", "ar", "g++-wrapper", "aarch64-linux-gnu-g++x"])
def test_other_programs_run_as_they_are(fake: Project, name: str) -> None:
    real = tool(fake, name)
    assert fake.ok(launcher(fake), real, "-c", "blob/k.cpp").splitlines() == [f"REAL {name}", "-c", "blob/k.cpp"]
    assert (fake.last.action, fake.last.reason) == ("pass", "unknown-compiler")
    assert fake.run(launcher(fake), fake.dir / "gone", "-c").returncode == 127
    assert fake.run(launcher(fake)).returncode == 2


@pytest.mark.parametrize("name", ["s390x-linux-gnu-g++", "x86_64-w64-mingw32-g++", "x86_64-linux-gnux32-gcc-12"])
def test_compilers_for_other_machines_are_not_deferred(fake: Project, name: str) -> None:
    real = tool(fake, name)
    assert fake.ok(launcher(fake), real, "-c", "blob/k.cpp", "-o", "k.o").startswith(f"REAL {name}")
    assert (fake.last.reason, fake.last.blobs) == ("other-machine", 1)


def test_a_compiler_cache_before_the_compiler_sees_real_compiles_only(fake: Project) -> None:
    cache = script(fake.dir.parent / "caches/ccache", 'echo "CACHE $CCACHE_DISABLE"; exec "$@"\n')
    real = tool(fake, "g++")
    assert fake.ok(launcher(fake), cache, real, "-c", "blob/k.cpp", "-o", "k.o") == ""
    assert fake.compile("k.o").call.argv[0] == str(real)
    assert fake.ok(launcher(fake), cache, real, "-c", "src/m.cpp").startswith("CACHE \nREAL g++\n")


def test_a_compiler_cache_that_goes_by_the_compiler_s_name_is_left_out_of_records(fake: Project) -> None:
    cache = script(fake.dir.parent / "caches/ccache", 'echo "CACHE"\n')
    (cache.parent / "g++").symlink_to("ccache")
    assert fake.ok(launcher(fake), cache.parent / "g++", "-c", "blob/k.cpp", "-o", "k.o") == ""
    assert fake.compile("k.o").call.argv[0] == f"{fake.dir.parent}/fake/bin/g++"
    assert fake.ok(launcher(fake), cache.parent / "g++", "-c", "src/m.cpp") == "CACHE\n"


def test_cuda_by_a_host_compiler_of_its_own_path_is_deferred_only_if_links_come_by(fake: Project) -> None:
    nvcc, host_compiler = tool(fake, "nvcc"), tool(fake, "g++")
    words = (f"-ccbin={host_compiler}", "-c", "blob/k.cu", "-o", "k.o")
    assert fake.ok(launcher(fake), nvcc, *words).startswith("REAL nvcc")
    assert (fake.last.reason, fake.last.blobs) == ("unseen-link", 1)
    assert fake.ok(launcher(fake), "--links", nvcc, *words) == ""
    assert fake.ok("nvcc", *words) == ""  # nvcc is called by name, so its link may be as well
    shim = f"{fake.interception.bin_dirs[0]}/g++"
    assert fake.ok(launcher(fake), nvcc, f"-ccbin={shim}", *words[1:]) == ""


def test_cmake_hears_of_shims_for_the_host_compilers_of_nvcc(fake: Project, make_project: MakeProject) -> None:
    real, compilers = tool(fake, "g++"), fake.dir.parent / "fake/bin"
    said = f"""'#$ PATH=/x' '#$ "{real.parent}"/g++ -c "a b"' '#$ g++ -o x' '#$ "{compilers}/cudafe++" y' 'g++: note'"""
    script(compilers / "nvcc", f"printf '%s\\n' {said} >&2; echo '#$ g++'; exit 3\n")
    script(compilers / "cudafe++", "")
    asking = fake.write("CMakeFiles/3.25/CompilerIdCUDA/CMakeCUDACompilerId.cu", "").parent
    env = fake.interception.env
    done = subprocess.run(["nvcc", "-v", "x.cu"], cwd=asking, env=env, capture_output=True, text=True)
    tmp = Path(fake.interception.bin_dirs[0]).parent
    shim = f"{tmp}/by-path{real}"
    assert done.stderr.splitlines() == [
        "#$ PATH=/x",
        f'#$ "{shim}" -c "a b"',
        f'#$ "{tmp}/by-path{compilers}/g++" -o x',
        f'#$ "{compilers}/cudafe++" y',
        "g++: note",
    ]
    assert (done.returncode, done.stdout) == (3, "#$ g++\n")
    asked = ["env", "--ignore-signal=CHLD", "nvcc"]  # a build tool may ignore the end of its children
    heedless = subprocess.run(asked, cwd=asking, env=env, capture_output=True, text=True)
    assert (heedless.returncode, heedless.stderr) == (3, done.stderr)
    elsewhere = subprocess.run(["nvcc", "-v", "x.cu"], cwd=fake.dir, env=env, capture_output=True, text=True)
    assert f'#$ "{real.parent}"/g++' in elsewhere.stderr

    def is_a_compiler() -> None:
        assert fake.ok(shim, "-c", "blob/k.cpp", "-o", "k.o") == ""
        assert fake.compile("k.o").call.argv[0] == str(real)
        assert fake.ok(shim, "-shared", "k.o", "-o", "k.so").startswith("POST ")
        assert fake.ok(shim, "-c", "src/m.cpp").startswith("REAL g++")

    is_a_compiler()
    # A build tree that was configured before names the shim, which may be an older lazyck's.
    Path(shim).unlink()
    script(Path(shim), "exit 1\n")
    make_project(clean_env(PATH=f"{compilers}:{SYSTEM_PATH}"), python=str(fake.dir.parent / "python"))
    is_a_compiler()


@pytest.mark.parametrize("variable", ["NVCC_CCBIN", "NVCC_PREPEND_FLAGS"])
def test_cuda_by_a_host_compiler_that_a_variable_names_is_not_deferred_behind_the_launcher(
    fake: Project, variable: str
) -> None:
    nvcc, host_compiler = tool(fake, "nvcc"), tool(fake, "g++")
    value = str(host_compiler) if variable == "NVCC_CCBIN" else f"-ccbin={host_compiler}"
    fake.ok(launcher(fake), nvcc, "-c", "blob/k.cu", "-o", "k.o", **{variable: value})
    assert (fake.last.reason, fake.last.blobs) == ("unseen-link", 1)


def test_the_user_s_own_launcher_stays_behind_ours(tmp_path: Path, make_project: MakeProject) -> None:
    env = clean_env(CMAKE_CXX_COMPILER_LAUNCHER="ccache", CMAKE_CUDA_COMPILER_LAUNCHER="env;A=b;sccache")
    project = make_project(env, toolchain="host")
    ours = str(launcher(project))
    assert project.interception.env["CMAKE_CXX_COMPILER_LAUNCHER"] == f"{ours};ccache"
    assert project.interception.env["CMAKE_CUDA_COMPILER_LAUNCHER"] == f"{ours};env;A=b;sccache"
    assert project.interception.env["CMAKE_C_LINKER_LAUNCHER"] == ours
    # A set-up inside a set-up replaces the launcher of the outer one.
    assert launcher_variables(Path("/new/bin"), project.interception.env)["CMAKE_CXX_COMPILER_LAUNCHER"] == (
        "/new/bin/lazyck-launch;ccache"
    )
    assert launcher_variables(Path("/a;b"), {}) == {}


def test_versioned_and_prefixed_names_on_path_are_shims(tmp_path: Path, make_project: MakeProject) -> None:
    own = ["g++-99", "gcc-99", "clang++-98.1", "c++-97", "amdclang++"]
    foreign = ["loongarch64-linux-gnu-g++", "arm-none-eabi-gcc-10"]
    other = ["gcc-ar-99", "clang-format-99", "c++filt", "afl-g++", "g++.old", "ld"]
    for name in (*own, *foreign, *other):
        script(tmp_path / "bin" / name, f'echo "REAL {name}"\n')
    project = make_project(clean_env(PATH=f"{tmp_path}/bin:{SYSTEM_PATH}"), toolchain="host")
    shims = {p.name for p in Path(project.interception.bin_dirs[0]).iterdir() if p.is_file()}
    assert shims >= {*own, *foreign} and not shims & {*other}
    project.write("blob/k.cpp", "\n")
    for name in own:
        project.ok(name, "-c", "blob/k.cpp", "-o", "k.o")
        assert (project.last.action, project.compile("k.o").call.argv[0]) == ("defer", f"{tmp_path}/bin/{name}")
    for name in foreign:
        assert project.ok(name, "-c", "blob/k.cpp", "-o", "k.o") == f"REAL {name}\n"


def test_a_versioned_compiler_inside_a_makefile(host: Project) -> None:
    names = [p.name for p in Path("/usr/bin").glob("g++-*") if p.name[4:].isdigit()]
    if not names or not shutil.which("make"):
        pytest.skip("needs make and a versioned g++")
    host.write("Makefile", f"CXX = {names[0]}\nk.o: blob/k.cpp\n\t$(CXX) -c $< -o $@\n")
    host.ok("make")
    assert (host.last.action, host.last.tool) == ("defer", names[0])
