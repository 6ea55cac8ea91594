"""Tests wheels that ship the compiled runtime: for which machines and compilers its objects are
used."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from support import AARCH64, HERE, REPOSITORY

from lazyck.errors import ToolchainError
from lazyck.files import private_directory
from lazyck.runtime import shipped
from lazyck.runtime.builder import OBJECTS, build_tool, compile_objects
from lazyck.runtime.tool import tool
from lazyck.settings.environment import tools_dir
from lazyck.units import program as units

CLANG = next(filter(shutil.which, ("clang++", "clang++-19", "clang++-14")), None)
COMPILERS = ["g++", pytest.param(CLANG or "", marks=pytest.mark.skipif(not CLANG, reason="no clang++ here"))]
abi_of = shipped.abi_of  # what this process's compilers answer is remembered for all tests
KERNEL = "int kernel(int x) { return x + 1; }\n"
CALLER = 'int kernel(int x);\nextern "C" int call(int x) { return kernel(x); }\n'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the pure wheel and the wheel of this machine."""
    out = tmp_path_factory.mktemp("wheels")
    store = private_directory(tools_dir(os.environ))
    words = [REPOSITORY / "scripts" / "wheels.py", out, "--compiler", HERE.cxx, "--store", store]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def tree(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the machine's wheel, and return its root."""
    where = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheels[1]).extractall(where)
    return where


@lru_cache
def known_abi(compiler: tuple[str, ...]) -> shipped.Abi:
    return abi_of(compiler)


@pytest.fixture
def brought(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copy what the wheel ships for this machine to a place where this process finds it."""
    shutil.copytree(tree / "lazyck" / "shipped", tmp_path / "shipped")
    monkeypatch.setattr(shipped, "DIRECTORY", tmp_path / "shipped")
    monkeypatch.setattr(shipped, "abi_of", lambda compiler: known_abi(tuple(compiler)))
    yield tmp_path / "shipped" / HERE.name
    shipped._fitting.cache_clear()


def test_a_machine_without_a_compiler_runs_the_wheels_program(
    brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    program = tool(env)
    assert program.is_relative_to(tmp_path / ".cache" / "lazyck-tools")
    assert subprocess.run([program], env=env, capture_output=True, text=True).stderr.startswith("usage: lazyck-rt")
    # One of another lazyck is not run.
    about = json.loads((brought / "about.json").read_bytes())
    about["keys"]["lazyck-rt"] = "another"
    (brought / "about.json").write_text(json.dumps(about))
    with pytest.raises(ToolchainError):
        tool(env)


@lru_cache
def unit_key() -> str:
    """Return the key of lazyck-unit's object, which the wheels' store has."""
    return units.build_object(private_directory(tools_dir(os.environ)) / OBJECTS, [HERE.cxx]).parent.name


def found(*compiler: str) -> Path | None:
    return shipped.find(compiler or (HERE.cxx,), units.OBJECT, unit_key())


def test_the_machines_wheel_has_the_pure_ones_files_and_objects(wheels: list[Path]) -> None:
    pure, own = (zipfile.ZipFile(w) for w in wheels)
    more = {name for name in set(own.namelist()) - set(pure.namelist()) if "dist-info" not in name}
    names = {*shipped.TOOL, shipped.PROGRAM, units.OBJECT, f"stub_{HERE.name}.o", "about.json"}
    assert more == {f"lazyck/shipped/{HERE.name}/{name}" for name in names}
    assert wheels[0].name.endswith("-py3-none-any.whl")
    abi = shipped.abi_of([HERE.cxx])
    tag = f"py3-none-manylinux_{abi.least[1]}_{abi.least[2]}_{HERE.name}"
    assert wheels[1].name == wheels[0].name.replace("py3-none-any", tag)
    (about,) = (own.read(n).decode() for n in own.namelist() if n.endswith("dist-info/WHEEL"))
    assert f"Tag: {tag}\n" in about and "Root-Is-Purelib: false" in about
    (record,) = (own.read(n).decode() for n in own.namelist() if n.endswith("dist-info/RECORD"))
    assert all(f"lazyck/shipped/{HERE.name}/{name}," in record for name in names)


@pytest.mark.parametrize("cxx", COMPILERS)
def test_a_first_library_is_built_without_compiling_the_runtime(tree: Path, tmp_path: Path, cxx: str) -> None:
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    (tmp_path / "caller.cpp").write_text(CALLER)
    build = f"for f in kernel caller; do {cxx} -fPIC -c $f.cpp -o $f.o; done; {cxx} -shared *.o -o libx.so"
    env = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": cxx}
    shims = tools_dir(env) / "shim"  # the shim is there already; it would be compiled, too
    shims.parent.mkdir(mode=0o700, parents=True)
    if (ours := tools_dir(os.environ) / "shim").is_dir():
        shutil.copytree(ours, shims)
    words = ["build", "full", "--blobs", "*/kernel.cpp", "--", "sh", "-c", build]
    argv = [sys.executable, "-m", "lazyck", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 lazy" in done.stdout + done.stderr
    made = {p.name: p for p in (tmp_path / "cache" / "lazyck-tools").rglob("*.o")}
    for name in ("runtime.o", "digests.o"):
        assert made[name].read_bytes() == (tree / "lazyck" / "shipped" / HERE.name / name).read_bytes()
    assert not list((tmp_path / "cache" / "lazyck-tools" / "objects").rglob("*.cpp"))  # nothing was compiled
    code = "import ctypes; print(ctypes.CDLL('./libx.so').call(4))"
    called = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert called.stdout == "5\n", called.stderr


def test_tools_are_linked_of_what_the_wheel_brings(brought: Path, tmp_path: Path) -> None:
    program = units.build_program(tmp_path / "store", [HERE.cxx])
    assert subprocess.run([program], capture_output=True, text=True).stderr.startswith("usage: lazyck-unit")
    tool = build_tool(tmp_path / "store", [HERE.cxx])
    assert subprocess.run([tool], capture_output=True, text=True).stderr.startswith("usage: lazyck-rt")
    assert not list((tmp_path / "store").rglob("*.cpp"))


@pytest.mark.parametrize(
    "flag", ["-D_GLIBCXX_USE_CXX11_ABI=0", "-fno-exceptions", "-funsigned-char", "-D_GLIBCXX_DEBUG"]
)
def test_a_compiler_with_another_abi_is_not_served(brought: Path, flag: str) -> None:
    assert found() is not None
    assert found(HERE.cxx, flag) is None


@pytest.mark.parametrize("number", range(3))
def test_older_libraries_than_the_objects_are_not_served(brought: Path, number: int) -> None:
    about = json.loads((brought / "about.json").read_text())
    about["abi"]["least"][number] += 1
    (brought / "about.json").write_text(json.dumps(about))
    assert found() is None


def test_newer_libraries_than_the_objects_are_served(brought: Path) -> None:
    about = json.loads((brought / "about.json").read_text())
    about["abi"]["least"][0] -= 1
    about["abi"]["least"][2] -= 1
    (brought / "about.json").write_text(json.dumps(about))
    assert found() is not None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"abi": {"same": [1], "least": [1, 2, 3]}, "keys": {}}', b"[]"])
def test_what_says_nothing_of_itself_is_not_used(brought: Path, damage: bytes) -> None:
    (brought / "about.json").write_bytes(damage)
    assert found() is None


@pytest.mark.parametrize("name", [*shipped.TOOL, units.OBJECT])
def test_what_does_not_make_a_program_is_not_used(brought: Path, name: str) -> None:
    (brought / name).write_bytes((brought / name).read_bytes()[:1000])
    assert found() is None


def test_a_program_that_does_not_run_is_not_trusted(brought: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int main() { return 0; }\n")
    subprocess.run([HERE.cxx, "-c", tmp_path / "main.cpp", "-o", brought / "tool.o"], check=True)
    assert found() is None


def test_objects_of_other_sources_are_not_used(brought: Path) -> None:
    assert shipped.find([HERE.cxx], units.OBJECT, "0" * 16) is None


def test_a_program_whose_object_does_not_link_is_compiled(brought: Path, tmp_path: Path) -> None:
    (brought / units.OBJECT).write_bytes(b"")
    program = units.build_program(tmp_path / "store", [HERE.cxx])
    assert subprocess.run([program], capture_output=True, text=True).stderr.startswith("usage: lazyck-unit")
    assert list((tmp_path / "store").rglob("lazyck-unit.cpp"))


@pytest.mark.skipif(bool(AARCH64.missing) or HERE.name == AARCH64.name, reason=AARCH64.missing or "it is this machine")
def test_another_machine_has_its_own(brought: Path) -> None:
    assert found(AARCH64.cxx) is None
    shutil.copytree(brought, brought.parent / AARCH64.name)  # as if the objects were for that machine
    assert found(AARCH64.cxx) is None


def test_objects_with_flags_of_ones_own_are_compiled(brought: Path, tmp_path: Path) -> None:
    broken = ["-include", str(tmp_path / "missing.h")]
    with pytest.raises(Exception, match=r"missing\.h"):
        compile_objects(tmp_path / "store", [HERE.cxx], extra_flags=broken)
