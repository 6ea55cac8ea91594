"""Test a hit under seccomp(2): its system calls are those of docs/runtime.md, and it starts
nothing."""

import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import REPOSITORY
from support.lazylib import LazyLibrary, build_lazy_library, run
from support.small_library import BLOBS, HEADER, MAIN, SYMBOLS

from lazyck import abi

HERE = Path(__file__).parent
# The first argument is the sandbox: "watch FILE", "kill" or "only NUMBER...". With "kill", the
# second call comes from a thread of its own.
PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include "sandbox.h"
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>
int main(int argc, char** argv) {
    const std::string how = argv[1];
    std::vector<int> numbers;
    for (int i = 2; how == "only" && i < argc; ++i) numbers.push_back(std::atoi(argv[i]));
    const int status = how == "watch"  ? watch_calls(argv[2])
                       : how == "kill" ? forbid_starting()
                                       : allow_only(numbers.data(), numbers.size());
    if (status != 0) {
        std::perror("no sandbox");
        return 77;
    }
    int wrong = 0;
    try {
        wrong = use(4) != 8;
        if (how == "kill") std::thread([&] { wrong += sub(5, 2) != 3; }).join();
        else wrong += sub(5, 2) != 3;
    } catch (const lazyck::CompileError& e) {
        std::puts(e.what());
        wrong = 3;
    }
    syscall(END_OF_WATCH);
    return wrong;
}
"""
# The program itself makes these calls at its end.
OWN_CALLS = ("exit_group",)
STARTS = {"execve", "execveat", "fork", "vfork", "clone", "clone3", "socket", "connect"}


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> LazyLibrary:
    """Build the library, with both blobs in the cache."""
    where = tmp_path_factory.mktemp("sandbox")
    made = build_lazy_library(where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)
    run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-c", HERE / "sandbox.c", "-o", where / "sandbox.o"])
    made.program(PROGRAM, flags=["-I", str(HERE)], libs=[str(where / "sandbox.o")])
    made.program('#include "demo.h"\nint main() { return use(4) == 8 && sub(5, 2) == 3 ? 0 : 1; }', "fills")
    assert made.call(where / "fills").returncode == 0
    return made


def sandboxed(lib: LazyLibrary, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = lib.call(lib.directory / "main", *words, env=env)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    return done


def numbers() -> dict[str, int]:
    """Return the numbers of this machine's system calls, by name."""
    text = run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-xc", "/dev/null"]).stdout
    return {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.M)}


def documented() -> set[str]:
    """Return the calls in the table of docs/runtime.md."""
    page = (REPOSITORY / "docs/runtime.md").read_text()
    table = page.split("**System calls of a hit**")[1].split("\n\n")[1]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def first_ever(lib: LazyLibrary) -> dict[str, str]:
    """Remove the notes about the entries, as if nobody had read them."""
    for note in lib.cache.glob("v1/*/*/*.seen"):
        note.unlink()
    settle(lib)
    return {}


def later(lib: LazyLibrary) -> dict[str, str]:
    """Make notes about the entries."""
    first_ever(lib)
    assert lib.call(lib.directory / "fills").returncode == 0
    assert len(list(lib.cache.glob("v1/*/*/*.seen"))) == 2
    return {}


def after_a_day(lib: LazyLibrary) -> dict[str, str]:
    """Make the notes say that the last use was long ago."""
    later(lib)
    for note in lib.cache.glob("v1/*/*/*.seen"):
        run(["touch", "-d", "yesterday", note])
    return {}


def in_a_tier(lib: LazyLibrary) -> dict[str, str]:
    """Put the entries into a cache that is only read."""
    tier, own = lib.directory / "tier", lib.directory / "own"
    for old in (tier, own):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(lib.cache / "v1", tier / "v1", ignore=shutil.ignore_patterns("*.log", "*.seen"))
    tier.chmod(0o700)
    settle(lib)
    return {abi.ENV_CACHE_PATH: str(tier), abi.ENV_CACHE_DIR: str(own)}


def settle(lib: LazyLibrary) -> None:
    """Wait until entries can be noted, which is once their change time lies two seconds back."""
    newest = max(path.stat().st_ctime for path in lib.directory.glob("*/v1/*/*/*.so"))
    time.sleep(max(0.0, newest + 3.1 - time.time()))  # the file system has no event of age


SHAPES = [first_ever, later, after_a_day, in_a_tier]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the list is of x86-64")
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.__name__ for shape in SHAPES])
def test_a_hit_makes_the_system_calls_of_the_list(
    lib: LazyLibrary, tmp_path: Path, shape: Callable[[LazyLibrary], dict[str, str]]
) -> None:
    log = tmp_path / "calls"
    done = sandboxed(lib, "watch", str(log), **shape(lib))
    assert (done.returncode, done.stderr) == (0, ""), done
    names = {number: name for name, number in numbers().items()}
    seen = {names[int(line)] for line in log.read_text().split()}
    assert {"openat", "mmap"} <= seen
    new = sorted(seen - documented())
    assert not new, f"a hit makes calls that docs/runtime.md does not list: {', '.join(new)}"


def test_the_list_has_nothing_that_starts_or_connects() -> None:
    assert len(documented()) > 10
    assert not documented() & STARTS
    assert documented() <= set(numbers())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the list is of x86-64")
@pytest.mark.parametrize("shape", SHAPES, ids=[shape.__name__ for shape in SHAPES])
def test_a_hit_works_where_only_the_calls_of_the_list_are_allowed(
    lib: LazyLibrary, shape: Callable[[LazyLibrary], dict[str, str]]
) -> None:
    known = numbers()
    env = shape(lib)
    done = sandboxed(lib, "only", *(str(known[name]) for name in (*sorted(documented()), *OWN_CALLS)), **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done


def test_a_hit_works_where_programs_processes_and_sockets_are_forbidden(lib: LazyLibrary) -> None:
    done = sandboxed(lib, "kill", **later(lib))
    assert (done.returncode, done.stderr) == (0, ""), done


def test_a_compile_does_not_work_there(lib: LazyLibrary, tmp_path: Path) -> None:
    """This shows that the sandbox forbids starting programs."""
    done = sandboxed(lib, "kill", **{abi.ENV_CACHE_DIR: str(tmp_path / "empty")})
    assert done.returncode == -signal.SIGSYS, done
