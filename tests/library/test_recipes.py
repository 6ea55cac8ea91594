"""Test the recipes of docs/python.md: packages whose own build makes them lazy, and one whose build
is wrapped."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import REPOSITORY

RECIPES = REPOSITORY / "tests" / "projects" / "recipes"
PIP = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check")
OFFLINE = ("--no-build-isolation", "--no-deps", "--no-index")

needs_skbuild = pytest.mark.skipif(
    find_spec("scikit_build_core") is None or not shutil.which("cmake"),
    reason="scikit-build-core or cmake is not installed",
)
needs_mesonpy = pytest.mark.skipif(find_spec("mesonpy") is None, reason="meson-python is not installed")
BACK_ENDS = [
    pytest.param("scikit_build_core", marks=needs_skbuild),
    "setuptools",
    pytest.param("meson", marks=needs_mesonpy),
]
LAZYCK = (sys.executable, "-m", "lazyck", "build", "full", "--")
# These are the words that a recipe's command has before pip, and the options that it adds.
WRAPPERS = {"meson": LAZYCK}
OPTIONS = {"meson": ("--config-settings=build-dir=build",)}
AHEAD = {"scikit_build_core": ("--config-settings=cmake.define.LAZYCK_ENABLE=OFF",)}


def project(where: Path, recipe: str) -> Path:
    """Copy the package of tests/projects/pyext, with the recipe's build files."""
    made = where / "my kernels"
    shutil.copytree(REPOSITORY / "tests/projects/pyext", made)
    (made / "setup.py").unlink()
    shutil.copytree(RECIPES / recipe, made, dirs_exist_ok=True)
    return made


def run(*words: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for `meson`
    full = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PATH": path, **env}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=full, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("recipe", BACK_ENDS)
def test_a_wheel_is_lazy_and_carries_its_bundle(recipe: str, tmp_path: Path) -> None:
    made = project(tmp_path, recipe)
    wheel_of = (*WRAPPERS.get(recipe, ()), *PIP, "wheel", *OFFLINE, *OPTIONS.get(recipe, ()))
    run(*wheel_of, "-w", tmp_path / "dist", ".", cwd=made)
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
    zipfile.ZipFile(wheel).extractall(site)
    check_lazy(site)


def check_lazy(site: Path) -> None:
    """Check that the package in `site` compiles what is called, and takes it from the cache in the
    next process."""
    code = "import kernels; print(kernels.scale(64, 2.0))"
    first = run(sys.executable, "-c", code, cwd=site, PYTHONPATH=str(site))
    assert first.stdout == "128.5\n"
    assert [line.split()[1:3] for line in first.stderr.splitlines()] == [
        ["compiling", "scale_d64"],
        ["compiled", "scale_d64"],
    ]
    second = run(sys.executable, "-c", code, cwd=site, PYTHONPATH=str(site), PATH="/nonexistent")
    assert (second.stdout, second.stderr) == ("128.5\n", "")


@pytest.mark.parametrize("recipe", BACK_ENDS)
def test_a_switch_builds_ahead_of_time(recipe: str, tmp_path: Path) -> None:
    made = project(tmp_path, recipe)
    site = tmp_path / "site"
    run(*PIP, "install", *OFFLINE, "--target", site, *AHEAD.get(recipe, ()), ".", cwd=made, LAZYCK="0")
    code = "import kernels; print(kernels.scale(64, 2.0))"
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(site), PATH="/nonexistent")
    assert (done.stdout, done.stderr) == ("128.5\n", "")
    assert not (site / "kernels" / "lazyck").exists()


@pytest.mark.skipif(find_spec("mesonbuild") is None, reason="meson is not installed")
def test_what_meson_installs_is_lazy_and_so_are_later_builds(tmp_path: Path) -> None:
    made = project(tmp_path, "meson")
    done = run(*LAZYCK, "sh", "-c", "meson setup build && meson compile -C build", cwd=made)
    assert "3 blobs deferred, 3 lazy with 3 symbols, 0 eager" in done.stderr
    blob = made / "src" / "blob" / "scale_d64.cpp"
    blob.write_text(blob.read_text() + "// changed\n")
    again = run(*LAZYCK, "meson", "compile", "-C", "build", cwd=made)
    assert "3 lazy" in again.stderr, again.stderr
    run("meson", "install", "-C", "build", "--no-rebuild", cwd=made, DESTDIR=str(tmp_path / "root"))
    (package,) = (tmp_path / "root").rglob("kernels/__init__.py")
    shutil.rmtree(made)
    check_lazy(package.parent.parent)


def test_a_recipe_builds_in_isolation_without_an_index(tmp_path: Path) -> None:
    checkout, wheels, site = tmp_path / "lazyck", tmp_path / "wheels", tmp_path / "site"
    shutil.copytree(REPOSITORY / "lazyck", checkout / "lazyck", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy2(REPOSITORY / name, checkout)
    run(*PIP, "wheel", *OFFLINE, "-w", wheels, checkout, cwd=tmp_path)
    text = (checkout / "pyproject.toml").read_text()
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    for requirement in map(Requirement, ("setuptools", *re.findall(r'^ +"(.*)",$', listed, re.MULTILINE))):
        if requirement.marker is None or requirement.marker.evaluate():
            pack(requirement.name, wheels)
    options = ("--no-index", "--find-links", wheels, "--no-deps", "--target", site)
    run(*PIP, "install", *options, ".", cwd=project(tmp_path, "setuptools"), PYTHONPATH="")
    check_lazy(site)


def pack(name: str, wheels: Path) -> None:
    """Make a wheel of an installed package, without its programs, as if `pip wheel` had fetched it
    from an index."""
    found = distribution(name)
    with zipfile.ZipFile(wheels / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl", "w") as wheel:
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                wheel.write(str(found.locate_file(file)), file.as_posix())


def test_the_docs_have_the_recipes_word_for_word() -> None:
    text = (REPOSITORY / "docs" / "python.md").read_text()
    files = [p for p in RECIPES.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert len(files) == 6
    for file in files:
        assert file.read_text() in text, file
