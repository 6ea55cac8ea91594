"""Precompiled preambles: what they are, when they are used, and that nothing depends on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from lazylib import CLANG, CXX, LazyLibrary, build_lazy_library, counting_compiler
from support import REPOSITORY

from lazyck import abi

COUNT = 12
# The second include stands in another line than the first, with comments between them.
PREAMBLE = '// kernels\n\n#include "demo.h"\n/* of the\n   standard */ #include <map>\n#include <string>  // text\n'
BLOB = (
    PREAMBLE
    + 'static std::map<int, std::string> all;\nint k{n}(int x) {{ all[x] = "y"; return x + {n} + __LINE__; }}\n'
)
HEADER = "#pragma once\n" + "".join(f"int k{n}(int);\n" for n in range(COUNT))
MAIN = (
    '#include "demo.h"\nint use(int n, int x) { int (*const all[])(int) = {'
    + ", ".join(f"k{n}" for n in range(COUNT))
    + "}; return all[n](x); }\n"
)
CALL_ALL = f"""
#include <cstdio>
int use(int, int);
int main() {{ for (int n = 0; n < {COUNT}; ++n) std::printf("%d ", use(n, 100)); }}
"""
LINE = PREAMBLE.count("\n") + 2
RIGHT = "".join(f"{100 + n + LINE} " for n in range(COUNT))


@pytest.fixture
def compiler() -> str:
    return CLANG or pytest.skip("needs clang++")


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path, compiler: str) -> LazyLibrary:
    return make(tmp_path, objects_dir, compiler)


def make(tmp_path: Path, objects_dir: Path, compiler: str, blobs: Mapping[str, str] | None = None) -> LazyLibrary:
    script = tmp_path / "clang"
    counting_compiler(script, tmp_path / "calls.log", compiler)
    words = (str(script), "-std=c++17", "-O1", "-fPIC", "-I", f"{abi.PH_ROOT}/src", "-c", abi.PH_SOURCE, "-o")
    texts = blobs or {f"k{n}": BLOB.format(n=n) for n in range(COUNT)}
    symbols = {f"k{n}": (f"_Z2k{n}i" if n < 10 else f"_Z3k{n}i",) for n in range(COUNT)}
    return build_lazy_library(
        tmp_path,
        objects_dir,
        texts,
        MAIN if blobs is None else "int use(int) { return 0; }\n",
        header=HEADER,
        symbols=symbols if blobs is None else None,
        compile_words=(*words, abi.PH_OUTPUT),
    )


def prebuild(lib: LazyLibrary, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(lib.library), *(words or ["--all"])]
    full = {**os.environ, **lib.env, "PYTHONPATH": str(REPOSITORY), "LAZYCK_JOBS": "2", **(env or {})}
    return subprocess.run(argv, env=full, capture_output=True, text=True, timeout=300)


def logs(lib: LazyLibrary) -> list[str]:
    return [entry.with_suffix(".log").read_text() for entry in lib.entries()]


def test_many_blobs_take_their_includes_from_one_that_was_compiled_once(lib: LazyLibrary) -> None:
    done = prebuild(lib)
    assert done.returncode == 0, done.stderr
    assert sum("-emit-pch" in line for line in lib.calls.read_text().splitlines()) == 1
    users = [text for text in logs(lib) if "-include-pch" in text]
    assert len(users) >= COUNT - 4, "but for those that were under way"
    assert all(text.count("\n$ ") == 1 for text in users), "each is compiled and linked once"
    ran = lib.call(lib.program(CALL_ALL), env={"LAZYCK_DISABLE_JIT": "1"})
    assert ran.stdout == RIGHT, "line numbers too are those of the file"
    assert not list(lib.cache.glob(".staging/*")), "nothing of it stays"


def test_a_compile_that_a_precompiled_preamble_spoils_is_repeated_without(lib: LazyLibrary, compiler: str) -> None:
    script = lib.directory / "clang"
    script.write_text(
        script.read_text().replace("exec ", 'case " $* " in *" -include-pch "*) echo spoilt; exit 1;; esac\nexec ')
    )
    done = prebuild(lib)
    assert done.returncode == 0, done.stderr
    assert any("spoilt\n[exit status 1; the plain command:]\n" in text for text in logs(lib))
    assert lib.call(lib.program(CALL_ALL), env={"LAZYCK_DISABLE_JIT": "1"}).stdout == RIGHT


def test_a_compiler_that_makes_none_does_without(tmp_path: Path, objects_dir: Path) -> None:
    lib = make(tmp_path, objects_dir, CXX)
    done = prebuild(lib)
    assert done.returncode == 0, done.stderr
    assert not any("-include-pch" in text for text in logs(lib))
    assert lib.call(lib.program(CALL_ALL), env={"LAZYCK_DISABLE_JIT": "1"}).stdout == RIGHT


@pytest.mark.parametrize("case", ["few", "launcher"])
def test_where_it_does_not_pay_none_is_made(lib: LazyLibrary, case: str, tmp_path: Path) -> None:
    if case == "few":
        done = prebuild(lib, "k1", "k2", "k3")
    else:
        launcher = tmp_path / "launcher"
        launcher.write_text('#!/bin/sh\nexec "$@"\n')
        launcher.chmod(0o755)
        done = prebuild(lib, env={"LAZYCK_LAUNCHER": str(launcher)})
    assert done.returncode == 0, done.stderr
    assert "pch" not in lib.calls.read_text()


def test_a_first_call_makes_none(lib: LazyLibrary) -> None:
    assert lib.call(lib.program(CALL_ALL)).stdout == RIGHT
    assert "pch" not in lib.calls.read_text()


SHARING = {
    "plain": '#include "demo.h"\nint a() { return 1; }\n',
    "other_body": '#include "demo.h"\n#define A\n#include <map>\nint b() { return 2; }\n',
}
ALONE = {
    "two_includes": '#include "demo.h"\n#include <map>\nint c() { return 3; }\n',
    "comment": '// one\n#include "demo.h"\nint d() { return 4; }\n',
    "no_newline_before": '#include "demo.h" /* begins\n ends */\n#include <map>\nint e() { return 5; }\n',
}
NONE = {
    "define_first": '#define A 1\n#include "demo.h"\nint f() { return 6; }\n',
    "guarded": '#if !defined(NEVER)\n#include "demo.h"\nint g() { return 7; }\n#endif\n',
    "empty": "int h() { return 8; }\n",
    "macro": '#define X "demo.h"\n#include X\nint i() { return 9; }\n',
    "spliced": '// a comment \\\n#include <nonexistent>\n#include "demo.h"\nint j() { return 10; }\n',
    "in_comment": "/*\n#include <nonexistent>\n*/\nint l() { return 12; }\n",
    "next": "#include_next <map>\nint m() { return 13; }\n",
}


def test_blobs_share_a_preamble_that_begin_with_the_same_includes(
    tmp_path: Path, objects_dir: Path, rt_tool: Path
) -> None:
    lib = make(tmp_path, objects_dir, CXX, {**SHARING, **ALONE, **NONE})
    done = lib.call(rt_tool, "preambles", "--from", lib.library)
    found = {row["name"]: row["preamble"] for row in map(json.loads, done.stdout.splitlines())}
    assert len({found[name] for name in SHARING}) == 1 and found["plain"]
    alone = [found[name] for name in ALONE if name != "no_newline_before"]
    assert None not in alone and len({*alone, found["plain"]}) == len(alone) + 1
    assert found["no_newline_before"] is None, "the comment goes on behind the line"
    assert {found[name] for name in NONE} == {None}
