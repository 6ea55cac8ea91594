"""Tests `find_package(lazyck)`: `lazyck_library` makes the listed sources of one target lazy, and
nothing else."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.version import Version
from support import REPOSITORY, Lazyck

from lazyck import __version__
from lazyck.interceptor.log import read_log

NVCC = next((p for p in ("/usr/local/cuda/bin/nvcc", shutil.which("nvcc")) if p and Path(p).exists()), "")
pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")

LISTS = """cmake_minimum_required(VERSION 3.18)
project(attn LANGUAGES CXX)
find_package(lazyck REQUIRED)
add_library(attn SHARED dispatch.cpp blob/plain.cpp)
target_include_directories(attn PRIVATE inc)
target_link_libraries(attn PRIVATE lazyck::headers)
set_target_properties(attn PROPERTIES OUTPUT_NAME attn.solver VERSION 1.2.3 SOVERSION 1)
add_custom_command(OUTPUT gen/four.cpp COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/four.in gen/four.cpp
                   DEPENDS four.in)
lazyck_library(attn BLOBS one.cpp "odd [name].cpp" gen/four.cpp INSTALL_DIR lib COMPONENT libraries)
install(TARGETS attn LIBRARY DESTINATION lib COMPONENT libraries)
"""
FILES = {
    "CMakeLists.txt": LISTS,
    "inc/times.h": "#pragma once\ntemplate <int N> int times(int x);\n",
    "inc/bias.h": "#pragma once\nconstexpr int k_bias = 0;\n",
    "dispatch.cpp": """#include <lazyck.h>
#include <lazyck.h>
#include "times.h"
int plain(int);
extern "C" int run(int n, int x) {
    return n == 1 ? times<1>(x) : n == 2 ? times<2>(x) : n == 4 ? times<4>(x) : plain(x);
}
""",
    "blob/plain.cpp": "int plain(int x) { return x; }\n",  # `lazyck build full` would take it for a blob by its path
    "one.cpp": '#include "times.h"\ntemplate <> int times<1>(int x) { return x; }\n',
    "odd [name].cpp": '#include "bias.h"\n#include "times.h"\n'
    "template <> int times<2>(int x) { return 2 * x + k_bias; }\n",
    "four.in": '#include "times.h"\ntemplate <> int times<4>(int x) { return 4 * x; }\n',
}
ODD = "odd [name].cpp"


def run(*words: str | Path, env: dict[str, str] | None = None, status: int = 0) -> str:
    """Run a command and return its output. Its exit status must be `status`."""
    argv, full = [str(w) for w in words], {**os.environ, "CLICOLOR": "0", **(env or {})}
    done = subprocess.run(argv, env=full, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Project:
    """A CMake project, and its build directory."""

    where: Path
    generator: str = "Ninja"

    @property
    def out(self) -> Path:
        return self.where / "out"

    @property
    def library(self) -> Path:
        return next(self.out.glob("libattn*.so"))

    def write(self, files: dict[str, str]) -> "Project":
        for name, text in files.items():
            (self.where / name).parent.mkdir(parents=True, exist_ok=True)
            (self.where / name).write_text(text)
        return self

    def change(self, name: str, old: str, new: str) -> None:
        """Replace `old` by `new` in a file."""
        file = self.where / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def configure(self, *options: str, status: int = 0) -> str:
        words = [f"-DLAZYCK_PYTHON={sys.executable}", f"-Dlazyck_DIR={REPOSITORY / 'lazyck/cmake'}", *options]
        return run("cmake", "-G", self.generator, "-S", self.where, "-B", self.out, *words, status=status)

    def build(self) -> str:
        """Build, and return the output of the build tool and lazyck."""
        for log in self.out.glob(".lazyck-build/*/intercept.log"):
            log.unlink()
        return run("cmake", "--build", self.out)

    def compiled(self, action: str, target: str = "attn") -> list[str]:
        """Return the sources that the last build deferred, or passed to the compiler, as `action`
        says."""
        lines = read_log(self.out / ".lazyck-build" / target / "intercept.log")
        return sorted(Path(line.source).name for line in lines if line.action == action and line.source)


def call(library: Path, n: int, x: int = 21, **env: str) -> tuple[str, str]:
    """Call `run(n, x)` in a new process. Return its result and lazyck's messages."""
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).run({n}, {x}))"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)
    return done.stdout.strip(), done.stderr


def results(library: Path, **env: str) -> tuple[list[str], str]:
    """Call `run` for 1, 2, 3 and 4 in a new process. Return the results and lazyck's messages."""
    code = f"import ctypes; run = ctypes.CDLL({str(library)!r}).run; print(*(run(n, 21) for n in (1, 2, 3, 4)))"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)
    return done.stdout.split(), done.stderr


GENERATORS = [
    pytest.param(
        g, marks=[pytest.mark.xdist_group(f"cmake {g}"), pytest.mark.skipif(not shutil.which(tool), reason=tool)]
    )
    for g, tool in (("Ninja", "ninja"), ("Unix Makefiles", "make"))
]


@pytest.fixture(scope="module", params=GENERATORS)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return the project, configured and built. All tests with this generator share it and leave it
    unchanged."""
    made = Project(tmp_path_factory.mktemp("cmake") / "my attn", request.param).write(FILES)
    made.configure()
    (made.where / "said").write_text(made.build())
    return made


def test_listed_sources_are_lazy_and_no_others(project: Project, lazyck: Lazyck, tmp_path: Path) -> None:
    assert project.compiled("defer") == ["four.cpp", ODD, "one.cpp"]
    assert project.compiled("pass") == ["dispatch.cpp", "plain.cpp"]
    assert "lazyck: libattn: 3 blobs deferred, 3 lazy with 3 symbols, 0 eager\n" in (project.where / "said").read_text()
    assert call(project.library, 3, PATH="/nonexistent") == ("21", "")
    result, said = call(project.library, 2)
    assert result == "42"
    assert "compiled odd [name]" in said
    assert call(project.library, 2, PATH="/nonexistent") == ("42", "")
    shown = lazyck("prebuild", "list", "--manifest", project.library).stdout.splitlines()
    assert sorted(shown) == ["four\t-", f"odd [name]\t{platform.machine()}", "one\t-"]
    made = lazyck("prebuild", "build", "--manifest", project.library, "--all")
    assert made.returncode == 0, made.stderr
    assert call(project.library, 4, LAZYCK_JIT="off", PATH="/nonexistent") == ("84", "")


def test_changes_of_headers_blobs_and_dispatchers_reach_the_library(project: Project) -> None:
    assert "lazyck:" not in project.build()
    assert project.compiled("defer") + project.compiled("pass") == []
    changes = {
        "inc/bias.h": ("k_bias = 0", "k_bias = 5", [ODD], [], ["21", "47", "21", "84"]),
        ODD: ("2 * x", "3 * x", [ODD], [], ["21", "68", "21", "84"]),
        "four.in": ("4 * x", "5 * x", ["four.cpp"], [], ["21", "68", "21", "105"]),
        "dispatch.cpp": ("n == 4 ?", "n == 7 ?", [], ["dispatch.cpp"], ["21", "68", "21", "21"]),
    }
    for name, (old, new, deferred, passed, expected) in changes.items():
        project.change(name, old, new)
        assert "3 lazy" in project.build()
        assert (project.compiled("defer"), project.compiled("pass")) == (deferred, passed), name
        assert results(project.library)[0] == expected, name
    for name, (old, new, *_) in changes.items():
        project.change(name, new, old)
    project.build()
    assert results(project.library)[0] == ["21", "42", "21", "84"]


def test_a_source_that_ceases_to_be_a_blob_is_compiled_and_one_that_becomes_one_is_not(project: Project) -> None:
    project.change("CMakeLists.txt", "BLOBS one.cpp", "BLOBS blob/plain.cpp")
    project.change("CMakeLists.txt", "SHARED dispatch.cpp", "SHARED one.cpp dispatch.cpp")
    said = project.build()
    assert "libattn: 3 blobs deferred, 3 lazy" in said, said
    assert project.compiled("defer") == ["plain.cpp"]
    assert [call(project.library, 1, PATH="/nonexistent")[0], call(project.library, 3)[0]] == ["21", "21"]
    (project.where / "CMakeLists.txt").write_text(LISTS)
    project.build()
    assert project.compiled("defer") == ["one.cpp"]
    assert "compiled one" in call(project.library, 1)[1]


def test_another_version_links_the_library_again_and_compiles_nothing(project: Project) -> None:
    stamp = project.out / ".lazyck-build" / "attn" / "stamp"
    said = stamp.read_text()
    stamp.write_text("of an older one\n")
    project.configure()
    assert stamp.read_text() == said
    assert "3 lazy" in project.build()
    assert project.compiled("defer") + project.compiled("pass") == []
    project.configure()
    assert "lazyck:" not in project.build()


def test_the_same_project_is_built_ahead_of_time_by_a_switch(project: Project, lazyck: Lazyck) -> None:
    lazy, _ = results(project.library)
    project.configure("-DLAZYCK_ENABLE=OFF")
    assert "lazyck:" not in project.build()
    assert results(project.library, PATH="/nonexistent") == (lazy, "")
    assert lazyck("inspect", project.library).returncode != 0
    project.configure("-DLAZYCK_ENABLE=ON")
    assert "3 lazy" in project.build()
    assert project.compiled("defer") == ["four.cpp", ODD, "one.cpp"]
    assert "compiled four" in call(project.library, 4, LAZYCK_CACHE_DIR=str(project.out / "fresh"))[1]


def test_an_install_has_its_bundle_and_needs_no_build(project: Project, lazyck: Lazyck, tmp_path: Path) -> None:
    words: list[str | Path] = ["--install", project.out, "--prefix", "/opt/attn", "--strip", "--component"]
    run("cmake", *words, "other", env={"DESTDIR": str(tmp_path)})
    assert not (tmp_path / "opt").exists()
    for _ in range(2):
        run("cmake", *words, "libraries", env={"DESTDIR": str(tmp_path)})
    installed = tmp_path / "opt/attn/lib" / project.library.name
    assert os.fsencode(project.where) not in installed.read_bytes()
    with tarfile.open(installed.parent / "lazyck/libattn/sources.tar.gz") as sources:
        shipped = {Path(name).name for name in sources.getnames()}
    assert {name for name in shipped if name.endswith(".cpp")} == {"one.cpp", ODD, "four.cpp"}
    project.where.rename(project.where.with_name("gone"))
    try:
        result, said = call(installed, 2)
    finally:
        project.where.with_name("gone").rename(project.where)
    assert result == "42", said
    assert "compiled odd" in said


# -- other ways to be called -----------------------------------------------------------------------

PROGRAM = """cmake_minimum_required(VERSION 3.18)
project(program LANGUAGES CXX)
find_package(lazyck REQUIRED)
add_executable(program main.cpp one.cpp)
set_source_files_properties(split.cpp PROPERTIES COMPILE_OPTIONS -gsplit-dwarf)
set_target_properties(program PROPERTIES UNITY_BUILD ON)
lazyck_library(program BLOBS one.cpp split.cpp TOOLCHAIN host)
"""


@pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")
def test_a_program_is_lazy_with_unity_builds_and_a_compiler_cache_and_says_what_is_not(tmp_path: Path) -> None:
    project = Project(tmp_path / "p").write(
        {
            "CMakeLists.txt": PROGRAM,
            "main.cpp": "#include <cstdio>\nint one(), split();\n"
            'int main() { std::printf("%d %d\\n", one(), split()); }\n',
            "one.cpp": "int one() { return 1; }\n",
            "split.cpp": "int split() { return 2; }\n",
        }
    )
    cache = {"CCACHE_DIR": str(tmp_path / "ccache")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
        project.configure("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        said = project.build()
    place = project.where / "split.cpp"
    assert f"lazyck: warning: {place} is compiled now instead of at its first call: split-debug\n" in said
    assert "1 blob deferred, 1 lazy" in said
    assert project.compiled("defer", "program") == ["one.cpp"]
    done = subprocess.run([project.out / "program"], capture_output=True, text=True)
    assert done.stdout == "1 2\n", done.stderr
    assert "compiled one" in done.stderr
    counts = dict(line.split("\t") for line in run("ccache", "--print-stats", env=cache).splitlines())
    assert int(counts["cache_miss"]) == len(project.compiled("pass", "program")) == 2


def test_under_build_full_its_blobs_decide(lazyck: Lazyck, tmp_path: Path) -> None:
    project = Project(tmp_path / "p").write(FILES)
    lines = f"cmake -G Ninja -S . -B out -Dlazyck_DIR='{REPOSITORY / 'lazyck/cmake'}'\ncmake --build out\n"
    words = ("build", "full", "--toolchain", "host", "--blobs", "*/one.cpp", "--", "sh", "-ec", lines)
    done = lazyck(*words, cwd=project.where)
    assert "its --blobs decide what of attn is lazy" in done.stdout, done.stdout + done.stderr
    assert "1 blob deferred, 1 lazy" in done.stderr
    assert call(project.library, 2, PATH="/nonexistent") == ("42", "")
    assert not (project.out / ".lazyck-build").exists()


CUDA = """cmake_minimum_required(VERSION 3.18)
project(attn LANGUAGES CXX CUDA)
find_package(lazyck REQUIRED)
add_library(attn SHARED dispatch.cpp)
target_include_directories(attn PRIVATE inc)
lazyck_library(attn BLOBS one.cu TOOLCHAIN cuda ARCHS 80)
"""


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.skipif(not NVCC, reason="needs nvcc")
@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_cuda_blobs_with_a_host_compiler_by_its_path(lazyck: Lazyck, tmp_path: Path, generator: str) -> None:
    kernel = "__global__ void kernel() {}\nvoid launch() { kernel<<<1, 1>>>(); }\n"
    files = {**FILES, "CMakeLists.txt": CUDA, "one.cu": kernel + FILES["one.cpp"]}
    files["dispatch.cpp"] = '#include "times.h"\nextern "C" int run(int n, int x) { return times<1>(x); }\n'
    project = Project(tmp_path / "p", generator).write(files)
    cxx = shutil.which("g++")
    project.configure(
        f"-DCMAKE_CUDA_COMPILER={NVCC}", "-DCMAKE_CUDA_ARCHITECTURES=80", f"-DCMAKE_CUDA_HOST_COMPILER={cxx}"
    )
    said = project.build()
    assert "1 blob deferred, 1 lazy" in said, said
    assert json.loads(lazyck("inspect", project.library, "--json").stdout)["archs"] == ["80"]
    result, said = call(project.library, 1, LAZYCK_ARCHS="80")
    assert result == "21", said
    assert "compiled one.host for 80" in said


# -- errors ----------------------------------------------------------------------------------------

BAD = {
    "lazyck_library(x)": "no BLOBS",
    "lazyck_library(x BLOBS)": "no BLOBS",
    "lazyck_library(x SOURCES a.cpp)": "unknown arguments: SOURCES;a.cpp",
    "lazyck_library(x BLOBS a.cpp INSTALL_DIR)": "no value after INSTALL_DIR",
    "lazyck_library(nothing BLOBS a.cpp)": "no such target",
    "lazyck_library(s BLOBS a.cpp)": "type STATIC_LIBRARY",
    "lazyck_library(x::x BLOBS a.cpp)": "alias target",
    "lazyck_library(x BLOBS $<1:a.cpp>)": "not generator expressions",
    "lazyck_library(x BLOBS a.cpp TOOLCHAIN metal)": "TOOLCHAIN metal: give one of auto, host",
    "lazyck_library(x BLOBS a.cpp COMPONENT c)": "COMPONENT without INSTALL_DIR",
    "lazyck_library(x BLOBS a.cpp ARCHS none)": "none",
    "lazyck_library(x BLOBS a.cpp)\nlazyck_library(x BLOBS a.cpp)": "called twice",
    "set_property(GLOBAL PROPERTY RULE_LAUNCH_COMPILE ccache)\nlazyck_library(x BLOBS a.cpp)": "CXX_COMPILER_LAUNCHER",
}


@pytest.mark.parametrize("line", BAD)
def test_a_call_that_makes_no_sense_says_what_and_what_to_do(tmp_path: Path, line: str) -> None:
    head = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\nfind_package(lazyck REQUIRED)\n"
    head += "add_library(x SHARED a.cpp)\nadd_library(s STATIC a.cpp)\nadd_library(x::x ALIAS x)\n"
    project = Project(tmp_path).write({"CMakeLists.txt": f"{head}{line}\n", "a.cpp": ""})
    said = " ".join(project.configure(status=1).split())
    assert f"lazyck_library({line.rpartition('(')[2].split()[0].rstrip(')')})" in said
    assert BAD[line] in said
    assert "Traceback" not in said


def test_the_package_is_found_by_prefix_and_only_for_versions_that_it_stands_in_for(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    assert lazyck("--cmake-dir").stdout.strip() == str(REPOSITORY / "lazyck/cmake")
    major, minor, patch = Version(__version__).release
    good = (
        "",
        f"{major}.{minor}",
        __version__,
        f"{__version__} EXACT",
        f"{major}.{minor}...{major}.{minor + 1}",
        f"{major}",
    )
    bad = (
        f"{major}.{minor + 1}",
        f"{major}.{minor}.{patch + 1}",
        f"{major + 1}",
        f"{major}.{minor + 1}...{major + 1}",
        f"0.0...<{__version__}",
    )
    lines = [f'find_package(lazyck {v} QUIET)\nmessage(STATUS "<{v}> ${{lazyck_FOUND}}")\n' for v in (*good, *bad)]
    text = "cmake_minimum_required(VERSION 3.19)\nproject(p LANGUAGES NONE)\n" + "unset(lazyck_DIR CACHE)\n".join(lines)
    project = Project(tmp_path).write({"CMakeLists.txt": text})
    said = run("cmake", "-S", project.where, "-B", project.out, f"-DCMAKE_PREFIX_PATH={REPOSITORY}")
    found = dict(line.removeprefix("-- <").split("> ") for line in said.splitlines() if line.startswith("-- <"))
    assert {v for v, answer in found.items() if answer == "1"} == set(good)
    assert len(found) == len(good) + len(bad)


def test_precompiled_headers_of_an_installed_blob_are_warned_of(tmp_path: Path) -> None:
    lines = "target_precompile_headers(x PRIVATE a.h)\n"
    lines += "set_source_files_properties({} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)"
    text = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES CXX)\nfind_package(lazyck REQUIRED)\n"
    text += f"add_library(x SHARED a.cpp)\n{lines}\nlazyck_library(x BLOBS b.cpp INSTALL_DIR lib TOOLCHAIN host)\n"
    for skipped, is_warned in (("a.cpp", True), ("b.cpp", False)):
        project = Project(tmp_path / skipped).write({"CMakeLists.txt": text.format(skipped), "a.cpp": "", "b.cpp": ""})
        said = project.configure()
        assert ("SKIP_PRECOMPILE_HEADERS for the BLOBS" in " ".join(said.split())) == is_warned, said


def test_a_python_without_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho ModuleNotFoundError: no click >&2\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    text = "cmake_minimum_required(VERSION 3.18)\nproject(p LANGUAGES NONE)\nfind_package(lazyck REQUIRED)\n"
    text += "add_library(x SHARED a.cpp)\nlazyck_library(x BLOBS a.cpp)\n"
    project = Project(tmp_path / "p").write({"CMakeLists.txt": text, "a.cpp": ""})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        said = project.configure(f"-DLAZYCK_PYTHON={tmp_path / 'bin' / 'python3'}", status=1)
    assert "no click" in said
    assert "-DLAZYCK_PYTHON=" in said
