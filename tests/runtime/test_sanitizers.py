"""The runtime under the address, undefined-behaviour and thread sanitizers: success, failure and many threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from lazylib import CXX, build_lazy_library
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


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_runtime_is_clean_under(tmp_path: Path, objects_dir: Path, sanitizer: str) -> None:
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    lib = build_lazy_library(
        tmp_path, objects_dir, {**BLOBS, "bad": "int bad(int) { return oops; }\n"}, MAIN, header=HEADER,
        symbols={**SYMBOLS, "bad": ("_Z3badi",)}, flags=flags, runtime_flags=(*flags, "-g1", "-O1"), compiler=CXX,
    )  # fmt: skip
    program = lib.program(PROGRAM, flags=flags)
    for expected in (2, 0):  # a cold cache, then a warm one
        before = lib.compiles("add") + lib.compiles("sub")
        done = lib.call("setarch", "-R", program)
        assert done.returncode == 0, done.stderr
        assert "Sanitizer" not in done.stderr, done.stderr
        assert lib.compiles("add") + lib.compiles("sub") - before == expected
