"""The recipes of docs/python.md: packages whose own build makes them lazy, with nothing wrapped around pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY

RECIPES = REPOSITORY / "tests" / "projects" / "recipes"
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
OFFLINE = ("--no-build-isolation", "--no-deps", "--no-index")

needs_skbuild = pytest.mark.skipif(
    find_spec("scikit_build_core") is None or not shutil.which("cmake"),
    reason="scikit-build-core or cmake is not installed",
)
BACK_ENDS = [pytest.param("scikit_build_core", marks=needs_skbuild), "setuptools"]


def project(where: Path, recipe: str) -> Path:
    """The package of tests/projects/pyext, built by the recipe."""
    made = where / "my kernels"
    shutil.copytree(REPOSITORY / "tests/projects/pyext", made)
    (made / "setup.py").unlink()
    shutil.copytree(RECIPES / recipe, made, dirs_exist_ok=True)
    return made


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=full, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("recipe", BACK_ENDS)
def test_a_wheel_is_lazy_and_carries_its_bundle(recipe: str, tmp_path: Path) -> None:
    made = project(tmp_path, recipe)
    run(*PIP, "wheel", *OFFLINE, "-w", tmp_path / "dist", ".", cwd=made)
    (wheel,) = (tmp_path / "dist").glob("kernels-1.0-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    (sources,) = (n for n in names if n.endswith("/sources.tar.gz"))
    with zipfile.ZipFile(wheel).open(sources) as f, tarfile.open(fileobj=f) as archive:
        shipped = archive.getnames()
    assert sorted(Path(n).name for n in shipped if n.endswith(".cpp")) == [
        "scale_d128.cpp",
        "scale_d32.cpp",
        "scale_d64.cpp",
    ]
    assert [n for n in names if n.endswith("/manifest")]
    shutil.rmtree(made)
    site = tmp_path / "site"
    run(*PIP, "install", *OFFLINE, "--target", site, wheel, cwd=tmp_path)
    code = "import kernels; print(kernels.scale(64, 2.0))"
    first = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    assert first.stdout == "128.5\n"
    assert [line.split()[1:3] for line in first.stderr.splitlines()] == [
        ["compiling", "scale_d64"],
        ["compiled", "scale_d64"],
    ]
    second = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site), PATH="/nonexistent")
    assert (second.stdout, second.stderr) == ("128.5\n", "")


@pytest.mark.parametrize("recipe", BACK_ENDS)
def test_a_switch_builds_ahead_of_time(recipe: str, tmp_path: Path) -> None:
    made = project(tmp_path, recipe)
    by_cmake = ("--config-settings=cmake.define.LAZYCK_ENABLE=OFF",) if recipe == "scikit_build_core" else ()
    site = tmp_path / "site"
    run(*PIP, "install", *OFFLINE, "--target", site, *by_cmake, ".", cwd=made, LAZYCK="0")
    code = "import kernels; print(kernels.scale(64, 2.0))"
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site), PATH="/nonexistent")
    assert (done.stdout, done.stderr) == ("128.5\n", "")
    assert not (site / "kernels" / "lazyck").exists()


def test_the_docs_have_the_recipes_word_for_word() -> None:
    text = (REPOSITORY / "docs" / "python.md").read_text()
    files = [p for p in RECIPES.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert len(files) == 4
    for file in files:
        assert file.read_text() in text, file
