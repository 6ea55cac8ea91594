"""Test the runtime under the address, undefined-behaviour and thread sanitizers: success, failure,
many threads, a remote. Other tests run under them too (`with_sanitizers`)."""

from pathlib import Path

import pytest
from support import SANITIZED, Machine, machine_params, wait_until
from support.lazylib import build_lazy_library
from support.remote_helper import helpers, write_helper
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

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


@pytest.mark.parametrize("machine", machine_params(*SANITIZED), indirect=True)
def test_runtime_is_clean_under(tmp_path: Path, objects_dir: Path, machine: Machine) -> None:
    lib = build_lazy_library(
        tmp_path, objects_dir, {**BLOBS, "bad": "int bad(int) { return oops; }\n"}, MAIN, header=HEADER,
        symbols={**SYMBOLS, "bad": ("_Z3badi",)}, machine=machine,
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
        "LAZYCK_REMOTE_HELPER": str(write_helper(tmp_path)),
    }
    for host, expected in (("one", 2), ("two", 0)):
        before = lib.compiles("add") + lib.compiles("sub")
        done = lib.call(program, env={**remote, "LAZYCK_CACHE_DIR": str(tmp_path / host)})
        assert (done.returncode, "Sanitizer" in done.stderr) == (0, False), done.stderr
        assert lib.compiles("add") + lib.compiles("sub") - before == expected
        wait_until(lambda: not helpers(tmp_path))
