"""Test Python extension modules that setuptools and pip build under lazyck."""

import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.failed_calls import calls_of, check_failure

PROJECT = REPOSITORY / "tests" / "projects" / "pyext"
CLANG = next((c for c in ("clang++-19", "clang++") if shutil.which(c)), "")
BUILD_EXT = (sys.executable, "setup.py", "-q", "build_ext", "--inplace")
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
OFFLINE = ("--no-build-isolation", "--no-deps", "--no-index")

SETUPTOOLS = tuple(int(n) for n in version("setuptools").split(".")[:2])
makes_wheels = find_spec("pip") and (SETUPTOOLS >= (70, 1) or find_spec("wheel"))
needs_wheels = pytest.mark.skipif(not makes_wheels, reason="pip or setuptools>=70.1 is not installed")


@dataclass(frozen=True)
class Built:
    """Describes a copy of the project, with the temporary directory and report of its build."""

    project: Path
    tmp: Path
    report: str

    @property
    def package(self) -> Path:
        return next(self.project.glob("*/__init__.py")).parent

    @property
    def module(self) -> Path:
        return next(self.package.glob("_C.*.so"))

    def call(self, code: str, **env: str) -> subprocess.CompletedProcess[str]:
        return python(self.project, code, **env)


def python(where: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process of its own that imports from `where`."""
    full = {**os.environ, "PYTHONPATH": str(where), **env}
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(argv, env=full, cwd="/", capture_output=True, text=True, timeout=300)


def copy_project(where: Path, package: str = "kernels", offset: str = "0.5", dim: int = 32) -> Path:
    """Copy the project with another package name and other results."""
    project = where / f"{package} project"
    shutil.copytree(PROJECT, project)
    (project / "kernels").rename(project / package)
    change(project / "src" / "module.cpp", "return 0.5;", f"return {offset};")
    change(project / "src" / "blob" / "scale_d32.cpp", "x * Traits<32>::dim", f"x * {dim}")
    return project


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


Build = Callable[..., Built]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pyext")


@pytest.fixture
def built(build: Build, shared: Path) -> Built:
    """Build once for the tests that only look at the build or call it. Its blob of dimension 128
    does not compile, which the build does not notice."""
    done = shared / "report"
    if not done.exists():
        project = copy_project(shared)
        change(project / "src" / "blob" / "scale_d128.cpp", "return x", "return no_such_name")
        done.write_text(build(project, tmp=shared / "tmp").report)
    return Built(shared / "kernels project", shared / "tmp", done.read_text())


@pytest.fixture
def build(lazyck: Lazyck, tmp_path: Path) -> Build:
    def run(project: Path, *command: str, tmp: Path = tmp_path / "lazyck tmp", **env: str) -> Built:
        words = ("build", "full", "--toolchain", "host", "--tmp-dir", tmp, "--", *(command or BUILD_EXT))
        done = lazyck(*words, cwd=project, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return Built(project, tmp, done.stderr)

    return run


COMPILERS = [
    pytest.param(
        {"CC": CLANG.replace("++", ""), "CXX": CLANG},
        id="clang",
        marks=pytest.mark.skipif(not CLANG, reason="clang++ is not installed"),
    ),
    # The compilers come from PATH under the names that Debian's own Python has.
    pytest.param(
        {"CC": "x86_64-linux-gnu-gcc -pthread", "LDSHARED": "x86_64-linux-gnu-gcc -pthread -shared"},
        id="long-names",
        marks=pytest.mark.skipif(not shutil.which("x86_64-linux-gnu-gcc"), reason="no x86_64-linux-gnu-gcc on PATH"),
    ),
]


@pytest.mark.parametrize("env", COMPILERS)
def test_compilers_of_other_names_are_found(build: Build, tmp_path: Path, env: dict[str, str]) -> None:
    built = build(copy_project(tmp_path), **env)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in built.report, built.report
    done = built.call("import kernels; print(kernels.scale(64, 2.0))")
    assert done.stdout == "128.5\n", done.stderr
    assert "compiled scale_d64" in done.stderr


def test_extension_module_is_lazy_and_a_second_process_hits(built: Built, tmp_path: Path) -> None:
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in built.report, built.report
    first = built.call("import kernels; print(kernels.scale(32, 2.0), kernels.scale(64, 2.0))")
    assert first.stdout == "64.5 128.5\n", first.stderr
    assert "compiling scale_d64" in first.stderr
    second = built.call("import kernels; print(kernels.scale(64, 2.0))", PATH="/nonexistent")
    assert (second.stdout, second.stderr) == ("128.5\n", "")
    assert sorted(p.name.rpartition("-")[0] for p in (tmp_path / "lazyck-cache").rglob("*.so")) == [
        "scale_d32",
        "scale_d64",
    ]


def test_a_blob_that_does_not_compile_is_an_exception_in_python(built: Built) -> None:
    done = built.call("""
        import kernels
        try:
            kernels.scale(128, 1.0)
        except RuntimeError as e:
            print(e)
        print(kernels.scale(64, 1.0))
    """)
    assert done.returncode == 0, done.stderr
    assert "cannot compile blob 'scale_d128'" in done.stdout
    assert "no_such_name" in done.stdout
    assert done.stdout.endswith("64.5\n")


def by_setuptools(project: Path, build: Build) -> tuple[Path, str]:
    return project, build(project).report


def by_cmake(project: Path, build: Build) -> tuple[Path, str]:
    """Build as a project does that opts in, with the flags of a release: link-time optimisation,
    hidden symbols, stripped."""
    import pybind11

    where = {"lazyck_DIR": REPOSITORY / "lazyck/cmake", "pybind11_DIR": pybind11.get_cmake_dir()}
    where |= {"Python_EXECUTABLE": Path(sys.executable)}
    options = [f"-D{name}={value}" for name, value in where.items()]
    options += ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG"]  # -O3 takes longer
    argv = ["cmake", "-S", str(project), "-B", str(project / "out"), *options]
    subprocess.run(argv, check=True, capture_output=True)
    said = subprocess.run(["cmake", "--build", str(project / "out")], check=True, capture_output=True, text=True)
    return project / "out", said.stdout + said.stderr


@pytest.mark.skipif(find_spec("pybind11") is None, reason="pybind11 is not installed")
@pytest.mark.parametrize("build_by", [pytest.param(by_setuptools, marks=pytest.mark.slow), by_cmake])
def test_a_blob_that_does_not_compile_is_a_runtime_error_of_pybind11(
    build: Build, tmp_path: Path, build_by: Callable[[Path, Build], tuple[Path, str]]
) -> None:
    project = tmp_path / "pybind11 project"
    shutil.copytree(PROJECT.with_name("pybind11_ext"), project)
    change(project / "blob" / "scale_d64.cpp", "return x", "return no_such_name")
    where, report = build_by(project, build)
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in report, report
    code = calls_of(
        "pybind11_ext", bad="pybind11_ext.scale(64, 1.0)", blob="scale_d64", good="pybind11_ext.scale(32, 1.0)"
    )
    done = python(where, code, PYTHONPATH=f"{where}{os.pathsep}{REPOSITORY}")
    check_failure(done, "scale_d64", "no_such_name", good="32.0")


def test_two_packages_with_a_module_of_one_name_each_reach_their_own_blobs(build: Build, tmp_path: Path) -> None:
    # Both packages have equal symbols, and their blobs call back into the module.
    one = build(copy_project(tmp_path, "one", offset="0.25", dim=3), tmp=tmp_path / "tmp one")
    two = build(copy_project(tmp_path, "two", offset="0.75", dim=5), tmp=tmp_path / "tmp two")
    assert one.module.name == two.module.name
    code = "import {0}, {1}; print({0}.scale(32, 100), {1}.scale(32, 100), {0}.scale(64, 1), {1}.scale(64, 1))"
    expected = {"one": ("300.25", "64.25"), "two": ("500.75", "64.75")}
    for a, b in (("one", "two"), ("two", "one")):
        env = {"PYTHONPATH": f"{one.project}{os.pathsep}{two.project}"}
        for _ in range(2):
            done = python(tmp_path, code.format(a, b), **env)
            assert done.stdout.split() == [expected[a][0], expected[b][0], expected[a][1], expected[b][1]], done.stderr


def test_two_modules_of_one_soname_do_not_cross(build: Build, tmp_path: Path) -> None:
    one, two = (
        build(copy_project(tmp_path, name), tmp=tmp_path / name, LDFLAGS="-Wl,-soname,_same.so")
        for name in ("one", "two")
    )
    change(two.project / "src" / "module.cpp", "return 0.5;", "return 1.5;")
    two = build(two.project, tmp=tmp_path / "two", LDFLAGS="-Wl,-soname,_same.so")
    env = {"PYTHONPATH": f"{one.project}{os.pathsep}{two.project}"}
    done = python(tmp_path, "import one, two; print(one.scale(32, 1), two.scale(32, 1), one.scale(32, 1))", **env)
    assert done.stdout == "32.5 33.5 32.5\n", done.stderr


def test_entries_stay_when_other_blobs_and_the_module_change(build: Build, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    build(project).call("import kernels; kernels.scale(32, 1); kernels.scale(64, 1)")
    change(project / "src" / "blob" / "scale_d32.cpp", "offset()", "2 * offset()")
    change(project / "src" / "module.cpp", "return 0.5;", "return 1.5;")
    for file in ("src/blob/scale_d32.cpp", "src/module.cpp"):  # newer than the objects, even with a coarse clock
        later = (project / file).stat().st_mtime + 2
        os.utime(project / file, (later, later))
    done = build(project).call("import kernels; print(kernels.scale(32, 1), kernels.scale(64, 1))")
    assert done.stdout == "35.0 65.5\n", done.stderr
    assert "compiling scale_d32" in done.stderr
    assert "scale_d64" not in done.stderr


@pytest.mark.parametrize("by", ["module", "manifest"])
def test_prebuild_finds_the_module_by_its_file_name(built: Built, lazyck: Lazyck, by: str) -> None:
    manifest = next(built.tmp.glob("libs/*/bundle/*/manifest"))
    done = lazyck("prebuild", "build", "--manifest", built.module if by == "module" else manifest, "scale_d64")
    assert done.returncode == 0, done.stdout + done.stderr
    called = built.call("import kernels; print(kernels.scale(64, 1))", LAZYCK_JIT="off", PATH="/nonexistent")
    assert (called.stdout, called.stderr) == ("64.5\n", "")


@needs_wheels
def test_wheel_carries_its_bundle(build: Build, lazyck: Lazyck, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    site = tmp_path / "site"
    built = build(project, *PIP, "install", *OFFLINE, "--target", str(site), ".")
    (module,) = (site / "kernels").glob("_C.*.so")
    bundle = site / "kernels" / "lazyck" / module.name.removesuffix(".so")
    with tarfile.open(bundle / "sources.tar.gz") as sources:
        assert {Path(name).name for name in sources.getnames()} == {
            "scale.hpp", "scale_d32.cpp", "scale_d64.cpp", "scale_d128.cpp", "contents", "host.headers",
        }  # fmt: skip
    recorded = next(site.glob("*.dist-info/RECORD")).read_text()
    assert f"kernels/lazyck/{bundle.name}/manifest," in recorded
    # The module must prefer its own bundle to the one in the build directory, which may have
    # changed.
    change(project / "src" / "blob" / "scale_d32.cpp", "offset()", "100")
    build(project)
    done = python(site, "import kernels; print(kernels.scale(32, 1))")
    assert done.stdout == "32.5\n", done.stderr
    made = lazyck("prebuild", "build", "--manifest", bundle / "manifest", "scale_d64")
    assert made.returncode == 0, made.stdout + made.stderr
    hit = python(site, "import kernels; print(kernels.scale(64, 1))", LAZYCK_JIT="off")
    assert hit.stdout == "64.5\n", hit.stderr
    shutil.rmtree(project)
    shutil.rmtree(built.tmp)
    assert python(site, "import kernels; print(kernels.scale(128, 1))").stdout == "128.5\n"


@needs_wheels
def test_editable_install_uses_the_bundle_of_the_build(build: Build, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    words = ("install", *OFFLINE, "--target", str(tmp_path / "site"), "--editable", ".")
    built = build(project, *PIP, *words)
    done = built.call("import kernels; print(kernels.scale(64, 1))")
    assert done.stdout == "64.5\n", done.stderr


def test_sources_of_a_later_build_never_answer_for_an_older_module(build: Build, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    build(project)
    old = tmp_path / "old"
    shutil.copytree(project / "kernels", old / "kernels")
    change(project / "src" / "blob" / "scale_d32.cpp", "offset()", "100")
    shutil.rmtree(project / "build")
    built = build(project)
    refused = python(old, "import kernels; kernels.scale(32, 1)")
    assert "is of another build" in refused.stderr
    assert "LAZYCK_ROOT" in refused.stderr
    assert built.call("import kernels; print(kernels.scale(32, 1))").stdout == "132.0\n"
