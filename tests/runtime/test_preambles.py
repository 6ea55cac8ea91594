"""Test precompiled preambles: what they are, when they are used, and that nothing depends on
them."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import REPOSITORY
from support.lazylib import CLANG, CXX, LazyLibrary, as_new, build_lazy_library, counting_compiler

from lazyck import abi

COUNT = 9  # one more than must be alike
# Comments stand before, between and behind the includes.
PREAMBLE = '// kernels\n\n#include "demo.h"\n/* of the\n   standard */ #include <climits>\n#include <new>  // place\n'
BLOB = PREAMBLE + "int k{n}(int x) {{ return x + {n} + __LINE__ + INT_MAX * 0; }}\n"
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
LINE = PREAMBLE.count("\n") + 1
RIGHT = "".join(f"{100 + n + LINE} " for n in range(COUNT))


@pytest.fixture(scope="module")
def compiler() -> str:
    return CLANG or pytest.skip("needs clang++")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path, compiler: str) -> LazyLibrary:
    return make(tmp_path_factory.mktemp("preambles"), objects_dir, compiler)


@pytest.fixture
def lib(shared: LazyLibrary) -> LazyLibrary:
    return as_new(shared)


@pytest.fixture(scope="module")
def by_gcc(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    """Build the library with a compiler that makes no preambles."""
    return make(tmp_path_factory.mktemp("gcc"), objects_dir, CXX)


def make(
    tmp_path: Path, objects_dir: Path, compiler: str, blobs: Mapping[str, str] | None = None, flag: str = "-O1"
) -> LazyLibrary:
    script = tmp_path / "clang"
    counting_compiler(script, tmp_path / "calls.log", compiler)
    words = (str(script), "-std=c++17", flag, "-fPIC", "-I", f"{abi.PH_ROOT}/src", "-c", abi.PH_SOURCE, "-o")
    texts = blobs or {f"k{n}": BLOB.format(n=n) for n in range(COUNT)}
    symbols = {f"k{n}": (f"_Z2k{n}i",) for n in range(COUNT)}
    return build_lazy_library(
        tmp_path,
        objects_dir,
        texts,
        MAIN if blobs is None else "int use(int) { return 0; }\n",
        header=HEADER,
        symbols=symbols if texts.keys() == symbols.keys() else None,
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
    ran = lib.call(lib.program(CALL_ALL), env={"LAZYCK_JIT": "off"})
    assert ran.stdout == RIGHT, "line numbers too are those of the file"
    assert len(list(lib.cache.glob(".preambles/*/ready"))) == 1


def test_a_compile_that_a_precompiled_preamble_spoils_is_repeated_without(lib: LazyLibrary, compiler: str) -> None:
    script = lib.directory / "clang"
    script.write_text(
        script.read_text().replace("exec ", 'case " $* " in *" -include-pch "*) echo spoilt; exit 1;; esac\nexec ')
    )
    done = prebuild(lib)
    assert done.returncode == 0, done.stderr
    assert any("spoilt\n[exit status 1; the plain command:]\n" in text for text in logs(lib))
    assert lib.call(lib.program(CALL_ALL), env={"LAZYCK_JIT": "off"}).stdout == RIGHT


def test_a_compiler_that_makes_none_does_without(by_gcc: LazyLibrary) -> None:
    lib = as_new(by_gcc)
    done = prebuild(lib)
    assert done.returncode == 0, done.stderr
    assert not any("-include-pch" in text for text in logs(lib))
    assert lib.call(lib.program(CALL_ALL), env={"LAZYCK_JIT": "off"}).stdout == RIGHT


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


def test_they_can_be_made_before_any_first_call(lib: LazyLibrary) -> None:
    done = prebuild(lib, "--preambles", "--all")
    # Lines before the last one tell of waits, if there are any.
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        0,
        f"lazyck: 1 precompiled preamble is ready for {COUNT} uncached blobs",
    ), done.stderr
    assert not lib.entries()
    assert lib.call(lib.program(CALL_ALL), env={"LAZYCK_JOBS": "1"}).stdout == RIGHT
    assert all("-include-pch" in text for text in logs(lib))


def test_it_is_an_error_that_they_cannot_be_made(by_gcc: LazyLibrary) -> None:
    done = prebuild(as_new(by_gcc), "--preambles", "--all")
    assert done.returncode == 1
    assert "no precompiled preamble: exit status 1; log: " in done.stderr
    assert "hint: only clang can make them" in done.stderr


IS_THERE = """
bool is_there(const char* pattern) {
    glob_t found;
    const bool is = !glob(pattern, 0, nullptr, &found);
    globfree(&found);
    return is;
}
"""
FIRST_THEN_OTHERS = f"""
#include <cstdio>
#include <glob.h>
#include <unistd.h>
int use(int, int);
{IS_THERE}
int main(int, char** patterns) {{
    std::printf("%d ", use(0, 100));
    for (int i = 0; i < 3000 && !is_there(patterns[1]) && !is_there(patterns[2]); ++i) usleep(10000);
    for (int n = 1; n < {COUNT}; ++n) std::printf("%d ", use(n, 100));
}}
"""
BACKGROUND = {"LAZYCK_JOBS": "2"}


def ends_of_making(lib: LazyLibrary) -> tuple[str, str]:
    """Return patterns of the files that exist once a preamble exists or cannot be made."""
    return f"{lib.cache}/.preambles/*/ready", f"{lib.cache}/.preambles/*/failed"


def call_first_then_others(lib: LazyLibrary, **more: str) -> None:
    """Call one blob and, once its preamble exists or cannot be made, all others."""
    done = lib.call(lib.program(FIRST_THEN_OTHERS, "first"), *ends_of_making(lib), env=BACKGROUND | more)
    assert done.stdout == RIGHT, done.stderr


def made(lib: LazyLibrary) -> list[Path]:
    return sorted(lib.cache.glob(".preambles/*/ready"))


def forget_entries(lib: LazyLibrary) -> None:
    shutil.rmtree(lib.cache / abi.CACHE_VERSION)


def test_a_first_call_has_one_made_in_the_background_and_others_take_it(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    assert len(made(lib)) == 1
    assert [log.stem[:3] for log in lib.cache.rglob("k*.log") if "-include-pch" not in log.read_text()] == ["k0-"]
    with_it = {entry.name: entry.read_bytes() for entry in lib.entries()}
    forget_entries(lib)
    # In a later process, even the first call uses the preamble.
    call_first_then_others(lib)
    assert sum("-emit-pch" in line for line in lib.calls.read_text().splitlines()) == 1
    assert all("-include-pch" in text for text in logs(lib))
    forget_entries(lib)
    call_first_then_others(lib, LAZYCK_PREAMBLES="0", LAZYCK_JOBS="1")
    assert not any("-include-pch" in text for text in logs(lib))
    assert {entry.name: entry.read_bytes() for entry in lib.entries()} == with_it


FIVE_CALLS = f"""
#include <fcntl.h>
#include <glob.h>
#include <thread>
#include <unistd.h>
#include <vector>
int use(int, int);
{IS_THERE}
int main(int, char** argv) {{
    std::vector<std::thread> all;
    for (int n = 0; n < 5; ++n) all.emplace_back([n] {{ use(n, 1); }});
    usleep(1000000);  // all of them wait by then
    close(open(argv[1], O_CREAT | O_WRONLY, 0600));
    for (std::thread& each : all) each.join();
    for (int i = 0; i < 3000 && !is_there(argv[2]) && !is_there(argv[3]); ++i) usleep(10000);
}}
"""


def test_one_is_made_after_what_calls_wait_for(lib: LazyLibrary) -> None:
    """With two slots, three of five calls wait. Whenever a slot is free, a waiting call takes it.
    One compile lasts until five have begun, so that the others begin one at a time."""
    script, go, held = lib.directory / "clang", lib.directory / "cxx.go", lib.directory / "held"
    begun = f"[ $(grep -c -e ' -c ' -e -emit-pch {lib.calls}) -ge 5 ]"
    script.write_text(
        script.read_text().replace(
            "exec ",
            f"until [ -e {go} ]; do sleep 0.02; done\n"
            f"if mkdir {held} 2>/dev/null; then until {begun}; do sleep 0.02; done; fi\nexec ",
        )
    )
    done = lib.call(lib.program(FIVE_CALLS, "five"), go, *ends_of_making(lib), env=BACKGROUND)
    assert done.returncode == 0, done
    calls = [line for line in lib.calls.read_text().splitlines() if " -c " in line or "-emit-pch" in line]
    assert ["-emit-pch" in line for line in calls] == [False] * 5 + [True]


@pytest.mark.parametrize("more", [{"LAZYCK_JOBS": "1"}, {"LAZYCK_PREAMBLES": "0"}, {"LAZYCK_LAUNCHER": "env"}])
def test_first_calls_make_none_where_it_would_cost_them_or_was_forbidden(
    lib: LazyLibrary, more: dict[str, str]
) -> None:
    assert lib.call(lib.program(CALL_ALL), env=BACKGROUND | more).stdout == RIGHT
    assert "pch" not in lib.calls.read_text()


def test_few_blobs_that_begin_alike_are_not_worth_one(tmp_path: Path, objects_dir: Path, compiler: str) -> None:
    include = "#include <cstddef>\n// {n}\n#include <climits>\n"
    own = {f"k{n}": include.format(n=n) + f"int k{n}(int x) {{ return x; }}\n" for n in range(COUNT)}
    lib = make(tmp_path, objects_dir, compiler, own)
    prebuild(lib, "k1", "k2")
    program = lib.program(
        "#include <lazyck.h>\n#include <unistd.h>\n"
        'int main() { const int made = lazyck_prefetch("k3"); sleep(1); return made != 1; }'
    )
    assert lib.call(program, env=BACKGROUND).returncode == 0
    assert "pch" not in lib.calls.read_text()


def test_a_damaged_one_is_not_taken_and_is_made_again(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    (compiled,) = lib.cache.glob(".preambles/*/pch/host.pch")
    data = bytearray(compiled.read_bytes())
    data[len(data) // 2] ^= 1
    compiled.write_bytes(data)
    forget_entries(lib)
    call_first_then_others(lib)
    assert sum("-emit-pch" in line for line in lib.calls.read_text().splitlines()) == 2
    assert not any("the plain command" in text for text in logs(lib))


def test_one_that_was_not_finished_is_made_again(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    (ready,) = made(lib)
    ready.unlink()
    (ready.parent / "ready.new").write_text("half")
    forget_entries(lib)
    call_first_then_others(lib)
    assert made(lib) == [ready]


def test_one_of_a_header_that_was_touched_since_is_given_up(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    (ready,) = made(lib)
    header = lib.directory / "lazyck/src/demo.h"
    os.utime(header, (1, 1))
    forget_entries(lib)
    call_first_then_others(lib)
    assert sum("the plain command" in text for text in logs(lib)) == 1
    assert [p.name for p in ready.parent.iterdir()] == ["failed"]
    os.utime(ready.with_name("failed"), (1, 1))  # as if a day had passed
    forget_entries(lib)
    call_first_then_others(lib)
    assert made(lib) == [ready]


def test_what_cannot_be_made_is_not_tried_by_every_process(lib: LazyLibrary) -> None:
    script = lib.directory / "clang"
    script.write_text(script.read_text().replace("exec ", 'case " $* " in *" -emit-pch "*) exit 1;; esac\nexec '))
    for _ in range(2):
        call_first_then_others(lib)
        forget_entries(lib)
    assert sum("-emit-pch" in line for line in lib.calls.read_text().splitlines()) == 1


def test_one_that_others_could_have_written_is_refused(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    (ready,) = made(lib)
    ready.parent.chmod(0o777)
    forget_entries(lib)
    done = lib.call(lib.program(CALL_ALL), env=BACKGROUND)
    assert done.returncode != 0
    assert str(ready.parent) in done.stderr


def test_the_cache_keeps_eight(lib: LazyLibrary) -> None:
    call_first_then_others(lib)
    (ready,) = made(lib)
    for n in range(10):
        other = ready.parent.with_name(f"{n:032x}")
        shutil.copytree(ready.parent, other)
        os.utime(other, (time.time() - 60 * n - 60,) * 2)
    old = ready.parent.with_name("f" * 32)
    shutil.copytree(ready.parent, old)
    shutil.rmtree(ready.parent)
    os.utime(old, (1, 1))
    forget_entries(lib)
    call_first_then_others(lib)
    kept = {path.parent.name for path in made(lib)}
    assert kept == {ready.parent.name, *(f"{n:032x}" for n in range(7))}


SHARING = {
    "plain": '#include "demo.h"\nint a() { return 1; }\n',
    "other_body": '#include "demo.h"\n#define A\n#include <new>\nint b() { return 2; }\n',
}
ALONE = {
    "two_includes": '#include "demo.h"\n#include <new>\nint c() { return 3; }\n',
    "comment": '// one\n#include "demo.h"\nint d() { return 4; }\n',
    "no_newline_before": '#include "demo.h" /* begins\n ends */\n#include <new>\nint e() { return 5; }\n',
}
NONE = {
    "define_first": '#define A 1\n#include "demo.h"\nint f() { return 6; }\n',
    "guarded": '#if !defined(NEVER)\n#include "demo.h"\nint g() { return 7; }\n#endif\n',
    "empty": "int h() { return 8; }\n",
    "macro": '#define X "demo.h"\n#include X\nint i() { return 9; }\n',
    "spliced": '// a comment \\\n#include <nonexistent>\n#include "demo.h"\nint j() { return 10; }\n',
    "in_comment": "/*\n#include <nonexistent>\n*/\nint l() { return 12; }\n",
    "next": "#include_next <new>\nint m() { return 13; }\n",
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


@pytest.mark.parametrize(("flag", "has_one"), [("-g", False), ("-gdwarf-4", False), ("-g0", True)])
def test_blobs_with_debug_information_have_none(
    flag: str, has_one: bool, tmp_path: Path, objects_dir: Path, rt_tool: Path
) -> None:
    """A debugger would be told the place of the preamble, which differs from machine to machine."""
    lib = make(tmp_path, objects_dir, CXX, SHARING, flag)
    rows = map(json.loads, lib.call(rt_tool, "preambles", "--from", lib.library).stdout.splitlines())
    assert {row["preamble"] is not None for row in rows} == {has_one}
