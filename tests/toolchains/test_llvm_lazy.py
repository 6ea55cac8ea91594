"""Test a library whose blobs are LLVM IR, text and bitcode, built lazily with each compiler of
IR."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, Lazyck
from support.llvm_tools import CLANG, COMPILERS, compiler, irc, needs_clang, needs_llvmlite
from support.ops_library import inspect

from lazyck import abi
from lazyck.interceptor.log import read_log
from lazyck.toolchains import HOST, LLVM, lookup

PROJECT = REPOSITORY / "tests" / "projects" / "ir"
CALL = "import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); print(*(l.call(n.encode(), 5) for n in sys.argv[2:]))"


@pytest.fixture(autouse=True)
def unrestricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lazyck-irc read the checkout, in which an editable install has lazyck."""
    monkeypatch.setenv(abi.TEST_UNRESTRICTED, "1")


def call(library: Path, *names: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", CALL, str(library), *names]
    return subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)


def to_bitcode(kind: str, project: Path) -> None:
    """Replace every module of the project by its bitcode."""
    for source in (project / "blob").iterdir():
        made = source.with_suffix(".bc")
        subprocess.run([compiler(kind, project.parent), "-w", "-emit-llvm", "-c", source, "-o", made], check=True)
        source.unlink()


@pytest.mark.parametrize("form", [".ll", ".bc"])
@pytest.mark.parametrize("kind", COMPILERS)
def test_a_library_of_ir_is_lazy(kind: str, form: str, lazyck: Lazyck, tmp_path: Path) -> None:
    project = tmp_path / "my project"
    shutil.copytree(PROJECT, project)
    if form == ".bc":
        to_bitcode(kind, project)
    program = compiler(kind, tmp_path)
    env = {"IR_COMPILER": Path(program).name, "PATH": f"{Path(program).parent}:{os.environ['PATH']}"}
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 blobs deferred, 4 lazy with 4 symbols, 3 eager" in done.stderr
    library = project / "build" / "libir.so"
    shown = inspect(lazyck, library)
    assert {Path(e["source"]).stem: [(r["kind"], r["about"]) for r in e["reasons"]] for e in shown["eager"]} == {
        "ctor": [("INITIALIZER", "init")],
        "data": [("DATA", "answer")],
        "hidden": [("IR_UNREACHABLE", "quiet")],
    }
    assert [r["toolchain"] for r in shown["recipes"]] == ["llvm"]
    first = call(library, "add3", "data", "initialized", "quiet")
    assert first.stdout == "8 42 12 8\n", first.stderr

    def cached() -> list[str]:
        return sorted(p.stem.split("-")[0] for p in (tmp_path / "lazyck-cache").rglob("*.so"))

    assert cached() == ["add3"]
    # The blob calls other blobs, and these call the library.
    assert call(library, "chain", "other_name").stdout == "1600 10\n"
    assert cached() == ["add3", "alias", "chain", "twice"]
    again = call(library, "chain", "other_name", PATH="/nonexistent")
    assert (again.stdout, again.stderr) == ("1600 10\n", "")


@needs_llvmlite
def test_a_compiler_that_is_gone_is_named(lazyck: Lazyck, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    program = irc(tmp_path)
    done = lazyck(
        "build", "full", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh", env={"IR_COMPILER": str(program)}
    )
    # The compiler is called by its path, so that no shim stands in its way.
    assert "no compile matched" in done.stderr or "called no compiler" in done.stderr, done.stderr
    env = {"IR_COMPILER": "lazyck-irc", "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh", env=env)
    assert done.returncode == 0, done.stderr
    program.unlink()
    failed = call(project / "build" / "libir.so", "add3")
    assert f"cannot start '{program}'" in failed.stderr and "lazyck prebuild build" in failed.stderr


@needs_clang
def test_flags_are_part_of_the_key(lazyck: Lazyck, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    digests = []
    for flags in ("", " -O1", ""):
        script = (PROJECT / "build.sh").read_text().replace("-O2 -fPIC -w", f"-O2{flags} -fPIC -w")
        (project / "build.sh").write_text(script)
        done = lazyck(
            "build", "full", "--tmp-dir", tmp_path / "tmp", "--toolchain", "llvm", "--", project / "build.sh",
            env={"IR_COMPILER": Path(CLANG or "").name},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        digests.append({b["name"]: b["digest"] for b in inspect(lazyck, project / "build" / "libir.so")["blobs"]})
    assert digests[0] == digests[2]
    assert all(digests[0][name] != digests[1][name] for name in digests[0])


@needs_clang
def test_only_compilers_that_know_ir_defer_it(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    shutil.copy(PROJECT / "blob" / "add3.ll", tmp_path / "blob" / "add3.ll")
    clang = Path(CLANG or "").name
    shutil.copy(PROJECT / "blob" / "add3.ll", tmp_path / "blob" / "text")
    (tmp_path / "build.sh").write_text(
        f"{clang} -w -c blob/add3.ll -o a.o\n"
        f"{clang} -w -x ir -c blob/text -o b.o\n"
        "$CLANG -w -c blob/add3.ll -o c.o\n"
        f"{clang} -w --target=powerpc64le-linux-gnu -c blob/add3.ll -o d.o\n"
        f"{clang} -w -S -emit-llvm blob/add3.ll -o e.ll\n"
        "gcc -c blob/add3.ll -o f.o\n"
        "gcc -x ir -c blob/text -o g.o\n"
        "true\n"
    )
    done = lazyck(
        "build", "full", "--tmp-dir", tmp_path / "tmp", "--", "sh", "build.sh", cwd=tmp_path, env={"CLANG": clang}
    )
    assert done.returncode == 0, done.stderr
    lines = read_log(tmp_path / "tmp" / "intercept.log")
    assert [(x.action, x.reason) for x in lines] == [
        ("defer", "blob"), ("defer", "blob"), ("defer", "blob"), ("pass", "other-machine"), ("pass", "assembly"),
        ("pass", "no-source"), ("pass", "language"),
    ]  # fmt: skip
    powerpc = 21
    assert int.from_bytes((tmp_path / "d.o").read_bytes()[18:20], "little") == powerpc


def test_versioned_names_are_found_newest_first(tmp_path: Path) -> None:
    for name in ("clang-9", "clang-19", "clang-tidy-19", "clang++-19", "clang-19.bak"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/nonexistent"}
    assert lookup.with_versions(("clang", "clang++"), env) == ["clang", "clang++", "clang++-19", "clang-19", "clang-9"]
    found = LLVM.find(env)
    assert found is not None and found.compiler == (str(tmp_path / "clang-19"),)
    assert HOST.understands((str(tmp_path / "clang-9"),), ".cpp")


@needs_llvmlite
def test_doctor_says_which_compiler_of_ir_works(lazyck: Lazyck, tmp_path: Path) -> None:
    program = irc(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("cc", "c++", "as", "ld"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")

    def asked(path: str) -> dict[str, Any]:
        report = json.loads(lazyck("doctor", "--json", env={"PATH": path}).stdout)
        return next(t for t in report["toolchains"] if t["name"] == "llvm")

    without_clang = asked(f"{tmp_path}/bin:{program.parent}")
    assert without_clang["usable"] and without_clang["compiler"] == [str(program)]
    assert without_clang["identity"].startswith("llvm")
    assert [c["state"] for c in without_clang["checks"]] == ["ok", "ok"]
    (tmp_path / "bin" / "clang-99").symlink_to("/bin/false")
    broken = asked(f"{tmp_path}/bin:{program.parent}")
    assert not broken["usable"] and "lazyck[llvm]" in broken["checks"][0]["install"]


@needs_clang
def test_a_module_finds_what_an_object_of_its_library_hides(lazyck: Lazyck, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    text = (project / "main.c").read_text().replace("int helper(", '__attribute__((visibility("hidden"))) int helper(')
    (project / "main.c").write_text(text)
    done = lazyck(
        "build", "full", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh",
        env={"IR_COMPILER": Path(CLANG or "").name},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    library = project / "build" / "libir.so"
    eager = {Path(e["source"]).stem for e in inspect(lazyck, library)["eager"]}
    assert not eager & {"twice", "chain"}
    assert call(library, "chain").stdout == "1600\n"
