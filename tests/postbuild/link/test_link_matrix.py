"""Test every linker with every option that changes how symbols are bound, kept or hidden: the
results are right."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import Lazyck
from support.link_project import body

DISPATCH = """
#include "api.hpp"
#include <cstdio>
#include <exception>
int helper(int x) { if (x < 0) throw 40; return x * 7; }
static int (*const table[])(int) = {twice<1>, twice<2>, twice<3>, twice<4>};
extern "C" __attribute__((visibility("default"))) int run(int n, int x) {
  switch (n) {
    case 1: return twice<1>(x);
    case 2: return twice<2>(x);
    case 3: return twice<3>(x);
    case 4: return table[3](x);
    case 5: return twice<5>(x);
    case 6: return twice<6>(x);
  }
  return -1;
}
static char said[400];
extern "C" __attribute__((visibility("default"))) const char* guarded(int n, int x) {
  try {
    std::snprintf(said, sizeof said, "%d", run(n, x));
  } catch (const std::exception& e) {
    std::snprintf(said, sizeof said, "caught %s", e.what());
  }
  return said;
}
"""
API = """
#pragma once
template <int N> int twice(int x);
int helper(int x);
int between(int x);
"""
BLOBS = {
    1: body(1, "x + 1"),
    2: body(2, "helper(x)"),
    3: "#include <stdexcept>\n" + body(3, 'x < 0 ? throw std::runtime_error("below zero") : between(x)'),
    4: "int between(int x) { return x - 1; }\n" + body(4, "x * 4"),
    5: body(5, "this_does_not_compile(x)"),
    6: "struct Count { int* n; ~Count() { ++*n; } };\n"
    "static int careful() { int n = 0; try { Count c{&n}; helper(-1); } catch (int e) { return e + n; } return 0; }\n"
    + body(6, "careful()"),
}
VERSION_SCRIPT = "V1 { global: run; guarded; local: *; };\n"
COMPILERS = {"g++": "g++", "clang++": "clang++-19"}
LINKERS = {"bfd": "ld.bfd", "gold": "ld.gold", "lld": "ld.lld", "mold": "mold"}
OPTIONS = (
    "",
    "-Wl,--no-undefined -Wl,-z,now",
    "-Wl,-z,defs -s",
    "-Wl,--sort-common",
    "-Wl,-z,relro",
    "-Wl,--version-script=api.map",
    "-Wl,--gc-sections -Wl,--as-needed",
    "-shared-libgcc",
    "-static-libgcc -static-libstdc++",
    "-static-libgcc -static-libstdc++ -Wl,--exclude-libs,ALL",
    "-Wl,--icf=safe",
    "-Wl,--hash-style=sysv",
)
COMPILES = ("", "-fvisibility=hidden", "-mcmodel=large", "-fvisibility=hidden -mcmodel=large -O2")


@dataclass(frozen=True)
class Case:
    """Describes a link: a compiler, a linker, and options for compiling and linking."""

    compiler: str
    linker: str
    compiling: str
    linking: str

    @property
    def objects(self) -> str:
        return f"{self.compiler}{COMPILES.index(self.compiling)}"

    @property
    def name(self) -> str:
        return f"{self.objects}-{self.linker}-{OPTIONS.index(self.linking)}"

    @property
    def is_impossible(self) -> bool:
        # gold 2.40 may end in an internal error ("set_offset") if clang's objects of the large code
        # model meet the runtime's objects of the small one and -z now is given. Whether it does
        # depends on the sections' sizes (docs/limits.md).
        gold = self.linker == "gold" and self.compiler == "clang++" and "large" in self.compiling
        return ("--icf" in self.linking and self.linker == "bfd") or (gold and "-z,now" in self.linking)


ALL = [Case(*c) for c in itertools.product(COMPILERS, LINKERS, COMPILES, OPTIONS)]
ALL = [c for c in ALL if not c.is_impossible]


def is_in_short(c: Case) -> bool:
    """Return whether the short form includes the case. It has each option once, and each compiler
    with each linker."""
    i = OPTIONS.index(c.linking)
    linker, compiler, compiling = list(LINKERS)[(i * 3 + 1) % 4], list(COMPILERS)[i % 2], COMPILES[i * 5 % 4]
    once = (c.linker, c.compiler, c.compiling) == (linker, compiler, compiling)
    # The options leave out every other compiler of each linker.
    other = list(COMPILERS).index(c.compiler) == list(LINKERS).index(c.linker) % 2
    return once or (other and c.linking == OPTIONS[0] and c.compiling == COMPILES[3])


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a directory in which the available compilers and linkers have their plain names."""
    at = tmp_path_factory.mktemp("tools")
    for name, program in (*COMPILERS.items(), *((f"ld.{k}", v) for k, v in LINKERS.items())):
        found = shutil.which(program) or shutil.which(f"{program}-19")
        if found:
            (at / name).symlink_to(os.path.realpath(found) if "clang" in name else found)
    return at


def build(lazyck: Lazyck, where: Path, tools: Path, cases: Sequence[Case]) -> str:
    (where / "blob").mkdir()
    (where / "api.hpp").write_text(API)
    (where / "api.map").write_text(VERSION_SCRIPT)
    (where / "dispatch.cpp").write_text(DISPATCH)
    for n, text in BLOBS.items():
        (where / "blob" / f"v{n}.cpp").write_text('#include "api.hpp"\n' + text)
    lines = ["set -e"]
    for compiler, compiling in dict.fromkeys((c.compiler, c.compiling) for c in cases):
        at = f"{compiler}{COMPILES.index(compiling)}"
        lines.append(f"mkdir {at}")
        for source in ("dispatch", *(f"blob/v{n}" for n in BLOBS)):
            lines.append(f"{compiler} -fPIC -I. {compiling} -c {source}.cpp -o {at}/{source.rpartition('/')[2]}.o")
    for c in cases:
        lines.append(f"mkdir -p out/{c.name}")
        lines.append(
            f"{c.compiler} -fuse-ld={c.linker} {c.linking} -shared -o out/{c.name}/libx.so {c.objects}/*.o"
            f" > out/{c.name}/said 2>&1 || echo FAILED {c.name}"
        )
    (where / "build.sh").write_text("\n".join(lines) + "\n")
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", where / "tmp", "--", "sh", "build.sh"]
    done = lazyck(*words, cwd=where, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


CALLS = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.guarded.restype = ctypes.c_char_p
for n, x in ((1, 5), (2, 5), (3, 5), (3, -1), (4, 5), (5, 5), (6, 5)):
    print(n, lib.guarded(n, x).decode().splitlines()[0][:60])
"""


def call(library: Path, env: Mapping[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(library)], capture_output=True, text=True, env={**os.environ, **env}
    )
    return done.stdout.splitlines() or [done.stderr[-500:]]


WANTED = ["1 6", "2 35", "3 4", "3 caught below zero", "4 20", "5 caught lazyck: cannot compile blob 'v5'", "6 41"]


def check(lazyck: Lazyck, where: Path, tools: Path, cases: Sequence[Case]) -> None:
    at_hand = [c for c in cases if (tools / c.compiler).exists() and (tools / f"ld.{c.linker}").exists()]
    missing = {c.linker for c in cases} | {c.compiler for c in cases}
    missing -= {c.linker for c in at_hand} | {c.compiler for c in at_hand}
    build(lazyck, where, tools, at_hand)
    wrong = {}
    for c in at_hand:
        answers = call(where / "out" / c.name / "libx.so", {"PATH": f"{tools}:{os.environ['PATH']}"})
        if [a[: len(w)] for a, w in zip(answers, WANTED, strict=False)] != WANTED:
            wrong[c] = answers, (where / "out" / c.name / "said").read_text()[-1500:]
    assert not wrong, "\n".join(f"{c}: {w[0]}\n{w[1]}" for c, w in wrong.items())
    if missing:
        pytest.skip(f"only with what is at hand: no {', '.join(sorted(missing))}")


def test_linkers_and_options(lazyck: Lazyck, tmp_path: Path, tools: Path) -> None:
    check(lazyck, tmp_path, tools, [c for c in ALL if is_in_short(c)])


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("compiling", COMPILES, ids=("plain", "hidden", "large", "hidden-large"))
def test_every_linker_with_every_option(
    lazyck: Lazyck, tmp_path: Path, tools: Path, compiler: str, linker: str, compiling: str
) -> None:
    wanted = (compiler, linker, compiling)
    check(lazyck, tmp_path, tools, [c for c in ALL if (c.compiler, c.linker, c.compiling) == wanted])
