"""Test that what one function calls is compiled together from its first lazy call on, without a
profile."""

import shutil
from pathlib import Path

import pytest
from support.lazylib import LazyLibrary, build_lazy_library

HEADER = """#pragma once
struct First { static constexpr int of = 1; };
struct Second { static constexpr int of = 2; };
template <class T> int scale(int);
template <class T> int shift(int);
template <class T> int clip(int);
int plain(int);
int other(int);
"""
NAMES = {"scale": 5, "shift": 5, "clip": 4}
TRAITS = {"First": "5First", "Second": "6Second"}
BLOBS = {
    f"{name}_{traits}": f'#include "demo.h"\ntemplate <> int {name}<{traits}>(int x) {{ return x + {traits}::of; }}\n'
    for name in NAMES
    for traits in TRAITS
} | {name: f'#include "demo.h"\nint {name}(int x) {{ return x + 7; }}\n' for name in ("plain", "other")}
SYMBOLS = {f"{n}_{t}": (f"_Z{size}{n}I{code}Eii",) for n, size in NAMES.items() for t, code in TRAITS.items()} | {
    "plain": ("_Z5plaini",),
    "other": ("_Z5otheri",),
}
MAIN = """#include "demo.h"
template <class T> __attribute__((noinline)) int all_three(int x) {
    const int clipped = clip<T>(x);
    return clipped < 0 ? clipped : scale<T>(shift<T>(clipped));
}
int together(int which, int x) { return which == 1 ? all_three<First>(x) : all_three<Second>(x); }
// alternatives of one template
int chosen(int which, int x) { return 1 + (which == 1 ? scale<First>(x) : scale<Second>(x)); }
// no instances of templates
int named(int which, int x) { return 1 + (which == 1 ? plain(x) : other(x)); }
// more than would be called together
int many(int which, int x) {
    switch (which) {
        case 1: return 1 + clip<First>(x);
        case 2: return 2 + scale<Second>(x);
        case 3: return 3 + shift<First>(x);
        case 4: return 4 + plain(x);
        default: return 5 + other(x);
    }
}
"""
PROGRAM = """
#include <chrono>
#include <cstdio>
#include <lazyck.h>
#include <thread>
int together(int, int);
int chosen(int, int);
int named(int, int);
int many(int, int);
int main() {
    std::printf("%d", CALL);
    lazyck_stats now = {sizeof now};
    const auto wait = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    for (int i = 0; i < 2000 && now.loaded < WANTED; ++i) {
        lazyck_get_stats(&now);
        wait(10);
    }
    wait(300);  // what is not wanted would begin by then
}
"""


@pytest.fixture(scope="module", params=["lazy", "now"])
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    return build_lazy_library(
        tmp_path_factory.mktemp("siblings"),
        objects_dir,
        BLOBS,
        MAIN,
        header=HEADER,
        symbols=SYMBOLS,
        main_flags=("-O2",),
        link_flags=(f"-Wl,-z,{request.param}",),
    )


def compiled(lib: LazyLibrary, call: str, wanted: int = 1, **env: str) -> set[str]:
    """Make this call in a process that waits until `wanted` blobs are loaded. Return the blobs that
    it compiles."""
    shutil.rmtree(lib.cache, ignore_errors=True)
    program = lib.program(
        PROGRAM.replace("CALL", call).replace("WANTED", str(wanted)), f"{call.partition('(')[0]}-{wanted}"
    )
    done = lib.call(program, env={"LAZYCK_JOBS": "2", **env})
    assert done.returncode == 0, done.stderr
    assert done.stdout == RETURNS[call]
    return {log.stem.rpartition("-")[0] for log in lib.cache.rglob("*.log")}


RETURNS = {"together(2, -9)": "-7", "chosen(1, 1)": "3", "named(1, 1)": "9", "many(1, 1)": "3"}


def test_what_the_calling_function_calls_is_compiled_with_what_it_calls_first(lib: LazyLibrary) -> None:
    # The function has two instances, and only the one that calls counts.
    assert compiled(lib, "together(2, -9)", 3) == {"scale_Second", "shift_Second", "clip_Second"}


@pytest.mark.parametrize(
    ("call", "blob"), [("chosen(1, 1)", "scale_First"), ("named(1, 1)", "plain"), ("many(1, 1)", "clip_First")]
)
def test_what_may_be_called_instead_is_not_compiled(lib: LazyLibrary, call: str, blob: str) -> None:
    assert compiled(lib, call) == {blob}


def test_with_one_job_nothing_is_guessed(lib: LazyLibrary) -> None:
    assert compiled(lib, "together(2, -9)", LAZYCK_JOBS="1") == {"clip_Second"}


def test_a_hit_has_nothing_compiled(lib: LazyLibrary) -> None:
    compiled(lib, "together(2, -9)", LAZYCK_JOBS="1")
    program = lib.program(PROGRAM.replace("CALL", "together(2, -9)").replace("WANTED", "1"), "together-1")
    assert lib.call(program, env={"LAZYCK_JOBS": "2"}).stdout == "-7"
    assert len(list(lib.cache.rglob("*.log"))) == 1


def test_what_is_called_is_compiled_before_what_is_guessed(lib: LazyLibrary, tmp_path: Path) -> None:
    for attempt in range(5):
        trace = tmp_path / f"trace{attempt}"
        compiled(lib, "together(2, -9)", 3, LAZYCK_LOG_FILE=str(trace), LAZYCK_JOBS="2")
        begun = [line.split()[2] for line in trace.read_text().splitlines() if " compiling " in line]
        assert "clip_Second" in begun[:2], begun  # two jobs start compiles at once


def test_a_call_that_fails_lets_what_was_guessed_go_on(lib: LazyLibrary) -> None:
    source = lib.directory / "lazyck/src/clip_Second.cpp"
    kept = source.with_suffix(".kept")
    source.rename(kept)  # the compile fails before it has a slot
    try:
        shutil.rmtree(lib.cache, ignore_errors=True)
        call = "[] { try { return together(2, -9); } catch (const std::exception&) { return 0; } }()"
        text = "#include <exception>" + PROGRAM.replace("CALL", call).replace("WANTED", "2")
        assert lib.call(lib.program(text), env={"LAZYCK_JOBS": "2"}).stdout == "0"
    finally:
        kept.rename(source)
    assert {log.stem.rpartition("-")[0] for log in lib.cache.rglob("*.log")} == {"scale_Second", "shift_Second"}
