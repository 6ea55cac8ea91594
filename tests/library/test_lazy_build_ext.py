"""Test projects whose setup.py takes build_ext from lazyck: for setuptools and for torch, and the
switch that turns lazyck off."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.cuda_machine import needs_nvcc
from support.torch_libraries import torch_libraries

from lazyck.setuptools import words
from lazyck.toolchains import CUDA

EXAMPLE = REPOSITORY / "examples" / "torch_cuda"

SETUP = """
from pathlib import Path
from setuptools import Extension, setup
from lazyck.setuptools import build_ext
sources = ["src/module.cpp", *sorted(map(str, Path("src/blob").glob("*.cpp")))]
extension = Extension("kernels._C", sources, include_dirs=[str(Path("src/include").absolute())])
setup(name="kernels", version="1.0", packages=["kernels"], ext_modules=[extension], cmdclass={"build_ext": build_ext})
"""
TORCH = """
from setuptools import setup
from torch.utils.cpp_extension import CppExtension as Extension
from lazyck.torch import BuildExtension as build_ext
"""
PYPROJECT_ALONE = """
[build-system]
requires = ["setuptools>=74.1", "lazyck"]
build-backend = "setuptools.build_meta"
[project]
name = "kernels"
version = "1.0"
[tool.setuptools]
packages = ["kernels"]
cmdclass = { build_ext = "lazyck.setuptools.build_ext" }
[[tool.setuptools.ext-modules]]
name = "kernels._C"
sources = ["src/module.cpp", "src/blob/scale_d32.cpp", "src/blob/scale_d64.cpp", "src/blob/scale_d128.cpp"]
include-dirs = ["src/include"]
"""
BUILD = (sys.executable, "setup.py", "-q", "build_ext", "--inplace")
CALL = "import kernels; print(kernels.scale(64, 2.0))"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Copy the package of tests/projects/pyext, with `SETUP` as its setup.py."""
    made = tmp_path / "my kernels"
    shutil.copytree(REPOSITORY / "tests/projects/pyext", made)
    (made / "setup.py").write_text(SETUP)
    return made


def run(*argv: str | Path, cwd: Path, status: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), "MAX_JOBS": "2", **env}
    done = subprocess.run([*map(str, argv)], cwd=cwd, env=full, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def is_lazy(project: Path, where: Path | None = None) -> bool:
    """Return whether a call of the built module compiles its blob."""
    argv = (sys.executable, "-c", CALL)
    called = run(*argv, cwd=project.parent, PYTHONPATH=str(where or project), LD_LIBRARY_PATH=torch_libraries())
    assert called.stdout == "128.5\n", called.stderr
    return "compiled scale_d64" in called.stderr


@pytest.mark.parametrize("kind", ["setuptools", pytest.param("torch", marks=needs_torch)])
def test_a_build_is_lazy_unless_a_variable_says_no(project: Path, kind: str) -> None:
    if kind == "torch":
        imports = "from setuptools import Extension, setup\nfrom lazyck.setuptools import build_ext\n"
        assert imports in SETUP
        (project / "setup.py").write_text(SETUP.replace(imports, TORCH))
    done = run(*BUILD, cwd=project)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in done.stderr, done.stderr
    assert bool(list(project.glob("build/temp.*/build.ninja"))) == (kind == "torch")
    assert is_lazy(project)
    if kind == "torch":
        shutil.rmtree(project / "build")  # ninja knows nothing of --force
    again = run(*BUILD, "--force", cwd=project, LAZYCK="0")
    assert "blobs" not in again.stderr
    assert not is_lazy(project)


CUDA_TORCH = f"""
import sys
sys.path.insert(0, {str(EXAMPLE)!r})
import as_cuda_torch
as_cuda_torch.pass_for_cuda()
from lazyck.torch import BuildExtension
"""


@needs_nvcc
@needs_torch
@pytest.mark.cuda
def test_torch_s_cuda_extension_is_lazy(tmp_path: Path, cuda_stand_ins: Path) -> None:
    project = Path(shutil.copytree(REPOSITORY / "tests/projects/torch_cuda_ext", tmp_path / "torch_cuda_ext"))
    text = (project / "setup.py").read_text()
    old = "from torch.utils.cpp_extension import BuildExtension, CUDAExtension\n"
    assert old in text
    (project / "setup.py").write_text(
        text.replace(old, f"{CUDA_TORCH}from torch.utils.cpp_extension import CUDAExtension\n")
    )
    (project / "how").write_text("no-ninja")
    found = CUDA.find(os.environ)
    assert found is not None
    words = (*BUILD, "-L", cuda_stand_ins)
    done = run(*words, cwd=project, CUDA_HOME=found.home, TORCH_CUDA_ARCH_LIST="8.0")
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in done.stderr, done.stderr
    libraries = os.pathsep.join(
        [str(cuda_stand_ins), torch_libraries(), *(f"{found.home}/{d}" for d in ("lib64", "lib"))]
    )
    call = "import torch_cuda_ext; print(torch_cuda_ext.fill(7))"
    called = run(sys.executable, "-c", call, cwd=project, LD_LIBRARY_PATH=libraries, LAZYCK_ARCHS="80")
    assert int(called.stdout) in (0, 35, 100), called  # success, no driver, or no device
    assert "compiled fill_7.host for 80" in called.stderr


def test_under_build_full_the_command_line_decides(project: Path, lazyck: Lazyck) -> None:
    options = ("--toolchain", "host", "--blobs", "*/scale_d64.cpp", "--tmp-dir", project.parent / "tmp")
    done = lazyck("build", "full", *options, "--", *BUILD, cwd=project, env={"LAZYCK": "0"})
    assert done.returncode == 0, done.stderr
    assert "1 blob deferred, 1 lazy with 1 symbol, 0 eager" in done.stderr, done.stderr
    assert not (project / ".lazyck-build").exists()


def test_an_editable_package_without_setup_py_is_lazy(project: Path) -> None:
    (project / "setup.py").unlink()
    (project / "pyproject.toml").write_text(PYPROJECT_ALONE)
    pip = (sys.executable, "-m", "pip", "-q", "install", "--no-build-isolation", "--no-deps", "--no-index")
    run(*pip, "--target", project.parent / "site", "--editable", ".", cwd=project)
    assert is_lazy(project)


def test_a_build_that_fails_says_so_without_a_traceback(project: Path) -> None:
    module = project / "src" / "module.cpp"
    module.write_text(module.read_text() + "no_such_type x;\n")
    done = run(*BUILD, cwd=project, status=1)
    assert "no_such_type" in done.stderr
    assert "error: lazyck build full ended with status 1 (LAZYCK=0 builds without lazyck)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_switch_that_makes_no_sense_is_an_error(project: Path) -> None:
    done = run(*BUILD, cwd=project, status=1, LAZYCK="lazy")
    assert "error: LAZYCK='lazy': neither 0 nor 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_the_command_reach_the_other_process() -> None:
    options = {"include_dirs": "a:b", "inplace": 1, "parallel": 1, "debug": None, "force": False, "define": "X=0"}
    expected = ["--include-dirs=a:b", "--inplace", "--parallel=1", "--define=X=0"]
    assert words(options, ["inplace", "debug", "force"]) == expected
