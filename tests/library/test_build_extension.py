"""Test torch's BuildExtension under lazyck: with ninja and without, its JIT loader, and CUDA
extensions."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.failed_calls import calls_of, check_failure
from support.torch_libraries import has_cuda_torch, torch_libraries

from lazyck.toolchains import CUDA

PROJECTS = REPOSITORY / "tests" / "projects"
EXAMPLE = REPOSITORY / "examples" / "torch_cuda"

pytestmark = [
    pytest.mark.skipif(
        find_spec("torch") is None, reason="torch is not installed (LAZYCK_TEST_TORCH=1 scripts/test --all)"
    ),
    pytest.mark.skipif(find_spec("setuptools") is None, reason="setuptools is not installed"),
]
needs_nvcc = pytest.mark.skipif(CUDA.find(os.environ) is None, reason="nvcc is not installed")

Build = Callable[..., str]


def copy_project(name: str, where: Path) -> Path:
    return Path(shutil.copytree(PROJECTS / name, where / name))


@pytest.fixture
def build(lazyck: Lazyck, tmp_path: Path) -> Build:
    """Return a function that runs a project's Python script under lazyck and returns lazyck's
    report."""

    def run(
        project: Path, *words: str | Path, toolchain: str = "host", tmp: Path = tmp_path / "tmp", **env: str
    ) -> str:
        options = ("--toolchain", toolchain, "--tmp-dir", tmp)
        command = ("build", "full", *options, "--", sys.executable, *words)
        done = lazyck(*command, cwd=project, env={"MAX_JOBS": "2", **env})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    return run


def python(where: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a process of its own that imports from `where`."""
    full = {**os.environ, "PYTHONPATH": str(where), **env}
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(argv, env=full, cwd="/", capture_output=True, text=True, timeout=300)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("[lazyck]")]


def compiled(done: subprocess.CompletedProcess[str]) -> int:
    """Return how many blobs the process compiled. Lines that announce a compile or report its
    progress do not count."""
    return sum(line.startswith("[lazyck] compiled ") for line in said(done))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch")


@pytest.fixture
def torch_ext(build: Build, place: Path) -> Path:
    """Build the project once for this module. Its blob for doubles does not compile, which the
    build does not notice."""
    project = place / "torch_ext"
    if not (place / "report").exists():
        copy_project("torch_ext", place)
        blob = project / "blob" / "scale_double.cpp"
        blob.write_text(blob.read_text().replace("return x.", "return no_such_name."))
        (place / "report").write_text(build(project, "setup.py", "-q", "build_ext", "--inplace", tmp=place / "tmp"))
    return project


@pytest.mark.xdist_group("torch_ext")
def test_cpp_extension_by_ninja_is_lazy(torch_ext: Path) -> None:
    report = (torch_ext.parent / "report").read_text()
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in report, report
    assert list((torch_ext / "build").glob("temp.*/build.ninja"))
    code = """
        import torch, torch_ext
        print(torch_ext.scale(torch.ones(2)).tolist())
        try:
            torch_ext.scale(torch.ones(0))
        except RuntimeError as e:
            print(str(e).splitlines()[0])
    """
    first = python(torch_ext, code)
    assert first.stdout == "[4.0, 4.0]\nnothing to scale\n", first.stderr
    assert compiled(first) == 1
    second = python(torch_ext, code, PATH="/nonexistent")
    assert (second.stdout, said(second)) == (first.stdout, []), second.stderr


@pytest.mark.xdist_group("torch_ext")
def test_a_blob_that_does_not_compile_is_a_runtime_error_of_torch(torch_ext: Path) -> None:
    bad, good = (f"torch_ext.scale(torch.ones(2, dtype=torch.{t})).tolist()" for t in ("double", "float"))
    code = calls_of("torch_ext", bad=bad, blob="scale_double", good=good, before="import torch")
    done = python(torch_ext, code, PYTHONPATH=f"{torch_ext}{os.pathsep}{REPOSITORY}")
    check_failure(done, "scale_double", "no_such_name", good="[4.0, 4.0]")


PLAIN = """
from pathlib import Path
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
sources = ["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))]
setup(
    name="kernels",
    version="1.0",
    packages=["kernels"],
    ext_modules=[CppExtension("kernels._C", sources, include_dirs=[str(Path("src/include").absolute())])],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
"""


def test_cpp_extension_without_ninja_is_lazy(build: Build, tmp_path: Path) -> None:
    project = copy_project("pyext", tmp_path)
    (project / "setup.py").write_text(PLAIN)
    report = build(project, "setup.py", "-q", "build_ext", "--inplace")
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in report, report
    done = python(project, "import kernels; print(kernels.scale(64, 1.0))", LD_LIBRARY_PATH=torch_libraries())
    assert done.stdout == "64.5\n", done.stderr
    assert compiled(done) == 1


LOAD = """
import sys
from pathlib import Path
from torch.utils.cpp_extension import load
sources = ["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))]
load("_C", sources, extra_include_paths=[str(Path("src/include").absolute())], build_directory=sys.argv[1])
"""


def test_module_of_the_jit_loader_is_lazy(build: Build, tmp_path: Path) -> None:
    project = copy_project("pyext", tmp_path)
    (project / "jit.py").write_text(LOAD)
    out = tmp_path / "extensions" / "_C"
    out.mkdir(parents=True)
    report = build(project, "jit.py", out)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in report, report
    done = python(out, "import _C; print(_C.scale(32, 1.0))", LD_LIBRARY_PATH=torch_libraries())
    assert done.stdout == "32.5\n", done.stderr
    assert compiled(done) == 1


@needs_nvcc
@pytest.mark.cuda
@pytest.mark.parametrize("how", ["PYTORCH_NVCC", pytest.param("no-ninja", marks=pytest.mark.slow)])
def test_cuda_extension_is_lazy_and_calls_reach_the_launcher(
    build: Build, tmp_path: Path, cuda_stand_ins: Path, how: str
) -> None:
    project = copy_project("torch_cuda_ext", tmp_path)
    (project / "how").write_text(how)
    found = CUDA.find(os.environ)
    assert found is not None
    env = {"CUDA_HOME": found.home, "TORCH_CUDA_ARCH_LIST": "8.0"}
    if how == "PYTORCH_NVCC":
        env["PYTORCH_NVCC"] = found.compiler[0]
    words: list[str | Path] = ["setup.py", "-q", "build_ext", "--inplace"]
    libraries = [torch_libraries(), *(f"{found.home}/{d}" for d in ("lib64", "lib"))]
    if not has_cuda_torch():
        libraries.insert(0, str(cuda_stand_ins))
        words = [EXAMPLE / "as_cuda_torch.py", *words, "-L", cuda_stand_ins]
    report = build(project, *words, toolchain="cuda", **env)
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in report, report
    run = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "LAZYCK_ARCHS": "80"}
    code = "import torch_cuda_ext; print(torch_cuda_ext.fill(7))"
    first = python(project, code, **run)
    assert int(first.stdout) in (0, 35, 100), first.stderr  # success, no driver, or no device
    assert "compiled fill_7.host for 80" in first.stderr
    second = python(project, code, PATH="/nonexistent", **run)
    assert (second.stdout, said(second)) == (first.stdout, []), second.stderr
