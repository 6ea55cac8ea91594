"""Test the runtime under the address, undefined-behaviour and thread sanitizers: success, failure,
many threads, and what test_many does with many processes, forks, signals and kills."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import test_archive
import test_many
import test_record
import test_remote
from bundles import archive_sources
from lazylib import CXX, LazyLibrary, build_lazy_library
from support import HERE, wait_until
from test_resolve import BLOBS, HEADER, MAIN, SYMBOLS

PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include "lazyck.h"
#include <atomic>
#include <thread>
#include <vector>
int bad(int);
int main() {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) threads.emplace_back([&, i] {
        if (use(4) != 8) ++wrong;
        if (i % 2 && sub(5, 2) != 3) ++wrong;
        try { bad(1); ++wrong; } catch (const lazyck::CompileError&) {}
        lazyck_stats stats = {};
        stats.size = sizeof stats;
        if (lazyck_get_stats(&stats) != 0 || stats.blobs != 3) ++wrong;
    });
    for (auto& t : threads) t.join();
    if (lazyck_prefetch("*") != -1 || lazyck_prefetch("[as]*") != 2) ++wrong;
    return wrong;
}
"""


# The thread sanitizer needs addresses that the kernel might use otherwise, so address randomization
# is off.
MACHINE = replace(HERE, runner=("setarch", "-R"))
SANITIZERS = ["address,undefined", "thread"]


def flags_of(sanitizer: str) -> list[str]:
    return [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_runtime_is_clean_under(tmp_path: Path, objects_dir: Path, sanitizer: str) -> None:
    flags = flags_of(sanitizer)
    lib = build_lazy_library(
        tmp_path, objects_dir, {**BLOBS, "bad": "int bad(int) { return oops; }\n"}, MAIN, header=HEADER,
        symbols={**SYMBOLS, "bad": ("_Z3badi",)}, machine=MACHINE, flags=flags,
        runtime_flags=(*flags, "-g1", "-O1"), compiler=CXX,
    )  # fmt: skip
    program = lib.program(PROGRAM)
    for expected in (2, 0):  # with a cold cache, then a warm one
        before = lib.compiles("add") + lib.compiles("sub")
        done = lib.call(program)
        assert done.returncode == 0, done.stderr
        assert "Sanitizer" not in done.stderr, done.stderr
        assert lib.compiles("add") + lib.compiles("sub") - before == expected
    # Two hosts share a remote: one compiles and sends, the other fetches.
    (tmp_path / "shared").mkdir()
    remote = {
        "LAZYCK_REMOTE": f"{tmp_path / 'shared'}|trusted",
        "LAZYCK_REMOTE_HELPER": str(test_remote.write_helper(tmp_path)),
    }
    for host, expected in (("one", 2), ("two", 0)):
        before = lib.compiles("add") + lib.compiles("sub")
        done = lib.call(program, env={**remote, "LAZYCK_CACHE_DIR": str(tmp_path / host)})
        assert (done.returncode, "Sanitizer" in done.stderr) == (0, False), done.stderr
        assert lib.compiles("add") + lib.compiles("sub") - before == expected
        wait_until(lambda: not test_remote.helpers(tmp_path))


def unpacking_by_threads_and_processes(lib: LazyLibrary) -> None:
    archive_sources(lib.directory / "lazyck", "demo")
    test_archive.test_threads_and_processes_that_all_want_all_blobs_unpack_once(lib)


CASES: list[Callable[[LazyLibrary], None]] = [
    test_many.test_processes_that_want_the_same_blobs_in_any_order_compile_each_once,
    test_many.test_threads_and_processes_that_all_want_all_blobs_compile_each_once,
    test_many.test_a_waiter_names_the_holder_and_after_its_patience_compiles_itself,
    test_many.test_a_killed_holder_takes_its_compiler_along_and_the_waiter_goes_on,
    test_many.test_a_child_forked_while_all_slots_are_taken_compiles_when_they_are_free,
    test_many.test_processes_share_the_jobs_of_the_host,
    test_many.test_a_compiler_that_hangs_is_killed_with_all_that_it_started,
    test_many.test_ctrl_c_in_a_program_that_handles_it_ends_the_call,
    test_many.test_a_cancelled_thread_finishes_its_compile,
    test_record.test_many_threads_record_trace_and_prefetch_at_once,
    unpacking_by_threads_and_processes,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_many_callers_are_clean_under(
    tmp_path: Path, objects_dir: Path, sanitizer: str, case: Callable[[LazyLibrary], None]
) -> None:
    flags = flags_of(sanitizer)
    lib = build_lazy_library(
        tmp_path, objects_dir, test_many.BLOBS, test_many.MAIN, header=test_many.HEADER, symbols=test_many.SYMBOLS,
        machine=MACHINE, flags=flags, runtime_flags=(*flags, "-g1", "-O1"), compiler=CXX,
    )  # fmt: skip
    lib.program(test_many.CALLER)
    case(lib)  # a sanitizer's finding ends a program with its own exit status
