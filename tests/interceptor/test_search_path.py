"""Tests that lazyck never finds its own programs through a relative part of PATH, while the
project's own build finds what it finds without lazyck."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import HERE, Lazyck
from support.bundles import build, make_bundle

from lazyck import proc
from lazyck.errors import ToolchainError
from lazyck.toolchains import lookup

TOOLS = (
    "ar", "as", "c++", "c++filt", "cc", "clang", "clang++", "clang-99", "collect2", "g++", "g++-99", "gcc", "git",
    "gzip", "hipcc", "ld", "ldd", "lazyck-rt", "make", "ninja", "nm", "nvcc", "nvidia-smi", "sh", "tar", "xz",
)  # fmt: skip
RELATIVE = ["", ".", "./", "bin", "../here", "bin/."]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Make a directory that a stranger has filled. It and its `bin` have programs that record that
    they ran."""
    where = tmp_path / "here"
    for directory in (where, where / "bin"):
        directory.mkdir()
        for tool in TOOLS:
            (directory / tool).write_text(f"#!/bin/sh\necho {tool} >> {shlex.quote(str(tmp_path))}/ran\nexit 1\n")
            (directory / tool).chmod(0o755)
    return where


def with_relative(path: str) -> str:
    return os.pathsep.join([*RELATIVE, path])


@pytest.mark.parametrize("path", RELATIVE)
def test_a_relative_part_of_path_is_not_searched(here: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(here)
    env = {"PATH": path}
    assert proc.find_program("tar", env) is None
    assert lookup.which("g++", env) is None
    assert lookup.with_versions(["clang"], env) == ["clang"]
    assert lookup.host_names(env) == []
    assert proc.find_program("tar", {"PATH": f"{path}:{here}/bin"}) == f"{here}/bin/tar"
    with pytest.raises(ToolchainError, match="cannot start 'lazyck-rt': No such file or directory"):
        proc.run(["lazyck-rt"], env=env)
    with pytest.raises(ToolchainError, match="cannot start 'lazyck-rt'"):
        proc.Commands().run(["lazyck-rt"], env=env)


def test_what_we_start_gets_a_path_without_relative_parts(here: Path, tmp_path: Path) -> None:
    shell = shutil.which("sh") or ""
    real = os.environ["PATH"]
    assert proc.run([shell, "-c", "echo $PATH"], env={"PATH": with_relative(real)}).stdout == f"{real}\n"
    # No part is left, and a shell would take an empty PATH for the working directory.
    assert proc.run([shell, "-c", "echo $PATH"], env={"PATH": ".:bin"}).stdout == f"{os.defpath}\n"
    proc.run([shell, "-c", "xz; tar"], cwd=here, env={"PATH": ":."})
    assert not (tmp_path / "ran").exists()


def test_a_repeated_command_of_the_build_finds_what_the_build_found(here: Path) -> None:
    env = proc.anchored({"PATH": ":bin:/usr/bin", "A": "b"}, here)
    assert env == {"PATH": f"{here}/:{here}/bin:/usr/bin", "A": "b"}
    assert proc.anchored({"A": "b"}) == {"A": "b"}


def test_no_program_of_the_working_directory_runs_in_a_prebuild(lazyck: Lazyck, here: Path, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", ["one"], archs=["gfx942"])
    env = {"PATH": with_relative(os.environ["PATH"])}

    def here_too(*words: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return lazyck(*words, cwd=here, env=env)

    assert build(here_too, bundle, "--all", env=env)["status"] == 0
    for words in (
        ("doctor",), ("inspect", bundle.file), ("cache", "verify"), ("cache", "trim", "--max-size", "1G"),
        ("prebuild", "list", "--manifest", bundle.file), ("prebuild", "clean", "--manifest", bundle.file, "--all"),
    ):  # fmt: skip
        done = lazyck(*words, cwd=here, env=env)
        assert done.returncode in (0, 1), done
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


def test_the_build_takes_the_compiler_that_the_build_would_have_found(lazyck: Lazyck, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "g++").write_text(f'#!/bin/sh\necho "$0" >> {tmp_path}/ran\nexec {HERE.cxx} "$@"\n')
    (project / "g++").chmod(0o755)
    (project / "blob.cpp").write_text("int blob() { return 4; }\n")
    (project / "main.cpp").write_text("int blob();\nint twice() { return 2 * blob(); }\n")
    (project / "build.sh").write_text(
        "#!/bin/sh\nset -e\nfor f in blob main; do g++ -O1 -fPIC -c $f.cpp -o $f.o; done\n"
        "g++ -shared -o libtwo.so blob.o main.o\n"
    )
    (project / "build.sh").chmod(0o755)
    done = lazyck(
        "build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--blobs", "blob.cpp", "--",
        "./build.sh",
        cwd=project, env={"PATH": f".:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ran").read_text().count(f"{project}/g++") >= 3
    call = f"import ctypes; print(ctypes.CDLL({str(project / 'libtwo.so')!r})._Z5twicev())"
    assert proc.run([sys.executable, "-c", call]).stdout == "8\n"
