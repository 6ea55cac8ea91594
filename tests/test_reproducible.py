"""Tests that two builders at different places and times make equal entries, and `lazyck cache
verify --rebuild`, which proves entries."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import HERE, Lazyck, Once, bare_hip, wait_for_another_time
from support.cuda_machine import cuda_environment, needs_nvcc
from support.llvm_tools import CLANG
from support.rocm_layouts import need_real_hip, rocm6, script

# Says where and when it was compiled, and has names that its compiler must invent.
HOST = """
#include "where.h"
#include <cassert>
#include <vector>
namespace { struct Odd { virtual ~Odd() = default; virtual int f(int x) { return x + 1; } }; }
static int counted(int x) { static int n = 0; return n += x; }
const char* NAME_file() { return __FILE__; }
const char* NAME_when() { return __DATE__ " " __TIME__ " " __TIMESTAMP__; }
const char* NAME_header() { return where(); }
int NAME(int x) {
    assert(x < 1000);
    Odd odd;
    auto size = [&](int n) { return int(std::vector<int>(n + 1).size()); };
    return static_cast<Odd&>(odd).f(x) + counted(x) + size(x);
}
"""
DEVICE = """
#include "where.h"
template <int N> __global__ void scale(float* x) { x[threadIdx.x] *= N + __FILE__[int(x[0])]; }
namespace { __global__ void hidden(float* x) { x[0] += 1; } int helper(int a) { return a * 3; } }
static __global__ void own(float* x) { x[0] += 2; }
__device__ int tally;
const char* NAME_file() { return __FILE__; }
const char* NAME_when() { return __DATE__ " " __TIME__; }
const char* NAME_header() { return where(); }
int NAME(int n) {
    float* x = nullptr;
    hidden<<<1, 1>>>(x);
    own<<<1, 1>>>(x);
    scale<3><<<1, 64>>>(x);
    return helper(n);
}
"""
MAIN = """
int plain(int); const char* plain_file(); const char* plain_when(); const char* plain_header();
int debugged(int); const char* debugged_file();
extern "C" __attribute__((visibility("default"))) int run(int n) { return plain(n) + debugged(n); }
extern "C" __attribute__((visibility("default"))) const char* file() { return plain_file(); }
extern "C" __attribute__((visibility("default"))) const char* header() { return plain_header(); }
extern "C" __attribute__((visibility("default"))) const char* when() { return plain_when(); }
"""
WHERE = "inline const char* where() { return __FILE__; }\n"
# What differs between the two builders besides their places.
ELSEWHERE = {"LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1600000000", "LAZYCK_JOBS": "1"}
CLANGXX = re.sub("clang", "clang++", Path(CLANG or "clang").name)
NVCC = "nvcc -gencode arch=compute_80,code=sm_80 -Xcompiler -fPIC"
HIPCC = f"hipcc --offload-arch=gfx90a -fPIC {bare_hip.FLAGS}"


@dataclass(frozen=True)
class Kind:
    """A kind of blobs: its toolchain, the suffix and text of the sources, the compiler's words, and
    those that put places into what is compiled."""

    toolchain: str
    suffix: str
    text: str
    compiler: str
    places: str = "-g"

    def write(self, project: Path) -> None:
        """Write a project with two blobs, of which one is named by its absolute path."""
        (project / "blob").mkdir(parents=True)
        (project / "include").mkdir()
        (project / "include/where.h").write_text(WHERE)
        (project / "main.cpp").write_text(MAIN)
        head = bare_hip.HEADER if self.toolchain == "rocm" else ""
        for name in ("plain", "debugged"):
            (project / f"blob/{name}{self.suffix}").write_text(head + self.text.replace("NAME", name))
        lines = (
            "set -e",
            f"{self.compiler} -O2 -Iinclude -c blob/plain{self.suffix} -o plain.o",
            f'{self.compiler} {self.places} -O1 -Iinclude -c "$PWD/blob/debugged{self.suffix}" -o debugged.o',
            "g++ -fPIC -c main.cpp -o main.o",
            f"{self.compiler} -shared plain.o debugged.o main.o -o libx.so",
        )
        (project / "build.sh").write_text("\n".join(lines) + "\n")


KINDS = {
    "gcc": Kind("host", ".cpp", HOST, "g++ -fPIC"),
    "clang": Kind("host", ".cpp", HOST, f"{CLANGXX} -fPIC"),
    "hip": Kind("rocm", ".hip", DEVICE, HIPCC),
    "cuda": Kind("cuda", ".cu", DEVICE, NVCC, "-g -lineinfo"),
}
each_kind = pytest.mark.parametrize(
    "kind",
    [
        "gcc",
        pytest.param("clang", marks=pytest.mark.skipif(CLANG is None, reason="clang is not installed")),
        pytest.param("hip", marks=pytest.mark.hip),
        pytest.param("cuda", marks=[pytest.mark.cuda, needs_nvcc]),
    ],
)


@dataclass(frozen=True)
class Builder:
    """A library that was built in `where`, and the environment to use it in."""

    where: Path
    env: Mapping[str, str]
    is_device: bool

    @property
    def library(self) -> Path:
        return self.where / "install/libx.so"

    def lazyck(self, *words: str | Path, status: int = 0, env: Mapping[str, str] | None = None) -> str:
        """Run a command of lazyck. Return its standard output."""
        argv = [sys.executable, "-m", "lazyck", *map(str, words)]
        done = subprocess.run(argv, env={**os.environ, **self.env, **(env or {})}, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def make_entries(self, **env: str) -> dict[str, bytes]:
        """Compile all blobs, and their host units and kernels. Return the entries by name."""
        make = ("prebuild", "build", "--quiet", "--manifest", self.library)
        self.lazyck(*make, "--all", env=env)
        if self.is_device:
            self.lazyck(*make, "plain.host", "debugged.host", env=env)
            listed = self.lazyck("prebuild", "list", "--kernels", "--format", "blob-list", "--manifest", self.library)
            self.lazyck(*make, *listed.split(), env=env)
        return self.entries()

    def entries(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in Path(self.env["LAZYCK_CACHE_DIR"]).glob("v1/*/*/*.so")}


def build(lazyck: Lazyck, where: Path, name: str, home: Path) -> Builder:
    """Build the project of a kind at a place. `home` is for what compilers of that kind need."""
    kind = KINDS[name]
    env = {"LAZYCK_CACHE_DIR": str(where / "cache"), "TMPDIR": str(where / "tmp"), "HOME": str(where)}
    env["LAZYCK_TEXT_KEYS"] = "1"  # else a fast machine makes no digest of the text, which is in the entry
    env["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # of lazyck's own tools
    if name == "hip":
        path = [d for d in os.environ["PATH"].split(os.pathsep) if not os.access(Path(d, "nvcc"), os.X_OK)]
        env |= {"PATH": os.pathsep.join([str(home / "bin"), *path]), "ROCM_PATH": str(home)}
    if name == "cuda":
        env = {**cuda_environment(where), **env, "PATH": os.environ["PATH"]}
    (where / "tmp").mkdir(parents=True)
    kind.write(where / "project")
    words = ["--toolchain", kind.toolchain, "--tmp-dir", where / "lazyck", "--install-dir", where / "install"]
    done = lazyck("build", "full", *words, "--", "sh", "build.sh", cwd=where / "project", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 blobs deferred, 2 lazy" in done.stdout + done.stderr
    return Builder(where, env, name in ("hip", "cuda"))


@pytest.fixture
def first(once: Once, lazyck_shared: Lazyck, kind: str) -> tuple[Builder, dict[str, bytes]]:
    """Return the first builder, with the entries that it made."""
    if kind == "hip":
        need_real_hip()

    def make(where: Path) -> tuple[Builder, dict[str, bytes]]:
        home = rocm6(where / "rocm") if kind == "hip" else where
        builder = build(lazyck_shared, where / "first", kind, home)
        return builder, builder.make_entries()

    made = once(f"reproducible-{kind}", make)
    assert len(made[1]) >= (10 if made[0].is_device else 2)
    return made


@each_kind
def test_two_builders_at_different_places_and_times_make_equal_entries(
    kind: str, first: tuple[Builder, dict[str, bytes]], lazyck_shared: Lazyck, tmp_path: Path
) -> None:
    second = build(lazyck_shared, tmp_path / "another-place/of/the-project", kind, first[0].where.parent / "rocm")
    wait_for_another_time()  # __TIME__ tells seconds
    made = second.make_entries(**ELSEWHERE)
    assert sorted(made) == sorted(first[1])
    assert [name for name in made if made[name] != first[1][name]] == []


@pytest.mark.parametrize("kind", ["gcc"])
def test_a_copy_of_the_library_makes_equal_entries(
    kind: str, first: tuple[Builder, dict[str, bytes]], tmp_path: Path
) -> None:
    shutil.copytree(first[0].library.parent, tmp_path / "copied/install")
    env = {**first[0].env, "LAZYCK_CACHE_DIR": str(tmp_path / "cache")}
    made = Builder(tmp_path / "copied", env, first[0].is_device).make_entries(**ELSEWHERE)
    assert [name for name in made if made[name] != first[1][name]] == []


@each_kind
def test_rebuilding_proves_blobs_host_units_and_kernels(kind: str, first: tuple[Builder, dict[str, bytes]]) -> None:
    said = json.loads(first[0].lazyck("cache", "verify", "--rebuild", "--json", "--manifest", first[0].library))
    assert {(row["state"], row["why"]) for row in said} == {("proved", "")}
    assert len(said) == len(first[1])


def call(library: Path, env: Mapping[str, str], function: str) -> str:
    code = (
        "import ctypes, sys\nx = ctypes.CDLL(sys.argv[1])\nf = getattr(x, sys.argv[2])\n"
        "f.restype = ctypes.c_char_p\nprint(f().decode())\n"
    )
    argv = [sys.executable, "-c", code, str(library), function]
    return subprocess.run(argv, env={**os.environ, **env}, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("kind", ["gcc"])
def test_a_blob_does_not_say_where_or_when_it_was_compiled(first: tuple[Builder, dict[str, bytes]]) -> None:
    builder, _ = first
    assert call(builder.library, builder.env, "file") == "bundle/libx/tree/blob/plain.cpp"
    assert call(builder.library, builder.env, "header") == "bundle/libx/tree/include/where.h"
    assert call(builder.library, builder.env, "when") == "Jan  1 1980 00:00:00 Thu Jan  1 00:00:00 1970"


@pytest.mark.differs("__DATE__ is another one")
def test_the_date_that_a_build_gives_is_that_of_its_blobs(lazyck: Lazyck, tmp_path: Path) -> None:
    builder = build(lambda *w, cwd, env: lazyck(*w, cwd=cwd, env={**env, "SOURCE_DATE_EPOCH": "86400"}),
                    tmp_path / "dated", "gcc", tmp_path)  # fmt: skip
    assert call(builder.library, builder.env, "when").startswith("Jan  2 1970 00:00:00 ")


@pytest.fixture
def built(lazyck: Lazyck, tmp_path: Path) -> Builder:
    """Return a library that was built with a compiler of its own, `tmp_path/bin/g++`, and its
    cache. lazyck compiles its runtime with the `c++` that all tests have."""
    compiler = script(tmp_path / "bin/g++", f'#!/bin/sh\nexec {HERE.cxx} "$@"\n')
    KINDS["gcc"].write(tmp_path / "project")
    path = os.pathsep.join([str(compiler.parent), os.environ["PATH"]])
    env = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache"), "PATH": path}
    words = ("build", "full", "--toolchain", "host", "--install-dir", tmp_path / "install", "--", "sh", "build.sh")
    done = lazyck(*words, cwd=tmp_path / "project", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Builder(tmp_path, env, False)


def rebuilt(builder: Builder, *words: str, status: int = 1, **env: str) -> dict[str, str]:
    """Return what `verify --rebuild` says of each blob."""
    said = builder.lazyck(
        "cache", "verify", "--rebuild", "--json", "--manifest", builder.library, *words, status=status, env=env
    )
    return {row["blob"]: f"{row['state']} {row['why']}" for row in json.loads(said)}


def test_an_entry_of_another_program_is_named_with_what_differs(built: Builder, tmp_path: Path) -> None:
    """A launcher is what can put a wrong entry under a right key."""
    launcher = script(tmp_path / "evil", '#!/bin/sh\nexec "$@" -DNDEBUG\n')
    make = ("prebuild", "build", "--manifest", built.library)
    built.lazyck(*make, "plain", "--launcher", str(launcher))
    built.lazyck(*make, "debugged")
    said = rebuilt(built, LAZYCK_LAUNCHER=str(launcher))
    assert said["debugged"] == "proved "
    assert re.fullmatch(r"differs the section \.[a-z]+ .*", said["plain"]), said
    shown = built.lazyck("cache", "verify", "--rebuild", "--manifest", built.library, status=1)
    assert shown.splitlines()[-1] == "proved 1 entry, 1 differ"
    assert shown.startswith("plain (x86_64): differs in the section ")
    assert rebuilt(built, "debugged", status=0) == {"debugged": "proved "}


def test_what_no_compiler_here_can_prove_is_named(built: Builder, tmp_path: Path) -> None:
    built.make_entries()
    version = "echo 'g++ (Other 99) 99.1.0'; exit"
    compiler = script(
        tmp_path / "bin/g++", f'#!/bin/sh\n[ "$1" = --version ] && {{ {version}; }}\nexec {HERE.cxx} "$@"\n'
    )
    said = rebuilt(built)
    assert set(said) == {"plain", "debugged"}
    for why in said.values():
        assert re.fullmatch(
            rf"impossible another compiler: {re.escape(str(compiler))} is gcc99\.1\.0-\w+, and .* was gcc\S+", why
        ), why
    compiler.unlink()
    for why in rebuilt(built).values():
        assert why.startswith("impossible no compiler: ") and str(compiler) in why


def test_entries_of_other_caches_are_proved_too(built: Builder, tmp_path: Path) -> None:
    built.make_entries()
    shutil.move(tmp_path / "cache", tmp_path / "install/lazyck/cache")
    said = rebuilt(built, status=0)
    assert said == {"plain": "proved ", "debugged": "proved "}
    assert not list((tmp_path / "cache").glob("v1/*/*/*.so"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rebuild",), "--rebuild needs a library"),
        (("--rebuild", "--remove", "--manifest", "x"), "--rebuild and --remove exclude each other"),
        (("plain",), "need --rebuild"),
        (("--jobs", "2"), "need --rebuild"),
    ],
)
def test_words_that_do_not_fit_together_are_refused(words: tuple[str, ...], said: str, lazyck: Lazyck) -> None:
    done = lazyck("cache", "verify", *words)
    assert done.returncode == 2
    assert said in done.stderr
