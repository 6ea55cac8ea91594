"""Test that a local miss asks remote caches, through the helper that lazyck ships or through one
that misbehaves."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import wait_until
from support.lazylib import LazyLibrary, build_lazy_library, counting_compiler
from support.remote_helper import helpers, write_helper
from support.small_library import BLOBS, CALL_CAUGHT, HEADER, MAIN, SYMBOLS

# This program prints the result, and then what the library counted.
CALL_AND_COUNT = r"""
#include "demo.h"
#include "error.hpp"
#include "lazyck.h"
#include <cstdio>
int main() {
    try { std::printf("%d", use(4)); } catch (const lazyck::CompileError& e) { std::puts(e.what()); return 3; }
    lazyck_stats stats = {};
    stats.size = sizeof stats;
    lazyck_get_stats(&stats);
    std::printf(" compiles %d hits %d refused %d skipped %d\n", (int)stats.compiles, (int)stats.remote_hits,
                (int)stats.remote_refused, (int)stats.remote_skipped);
}
"""
Hosts = Callable[..., dict[str, str]]


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    return build_lazy_library(tmp_path, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Hosts]:
    """Return a function that makes the environment of a host with a cache of its own. All hosts
    share the remote directory `shared`."""
    (tmp_path / "shared").mkdir()
    helper = write_helper(tmp_path)

    def environment(name: str, attributes: str = "|trusted", **more: str) -> dict[str, str]:
        return {
            "LAZYCK_CACHE_DIR": str(tmp_path / name),
            "LAZYCK_REMOTE": f"{tmp_path / 'shared'}{attributes}",
            "LAZYCK_REMOTE_HELPER": str(helper),
            **more,
        }

    yield environment
    # Helpers that go on in the background must end.
    wait_until(lambda: not helpers(tmp_path))


def records(where: Path) -> list[Path]:
    """Return the contents that the remote holds, without leases."""
    return [p for p in (where / "shared").rglob("*") if p.is_file() and p.parent.name == "cas"]


def test_what_one_host_compiled_another_gets_without_a_compiler(lib: LazyLibrary, host: Hosts, tmp_path: Path) -> None:
    program = lib.program(CALL_AND_COUNT)
    assert lib.call(program, env=host("one")).stdout == "8 compiles 1 hits 0 refused 0 skipped 0\n"
    wait_until(lambda: bool(records(tmp_path)) and not helpers(tmp_path))
    done = lib.call(program, env=host("two", LAZYCK_JIT="off", PATH="/nonexistent"))
    assert (done.stdout, done.stderr) == ("8 compiles 0 hits 1 refused 0 skipped 0\n", "")
    assert lib.compiles() == 1
    (entry,) = (tmp_path / "two").glob("v1/*/*/*.so")
    assert entry.stat().st_mode & 0o022 == 0
    assert entry.with_suffix(".log").read_text().endswith(f"[fetched from {tmp_path / 'shared'}]\n")
    # The entry is in the local cache by now, so no remote is asked.
    helped = (tmp_path / "helped").read_text()
    assert lib.call(program, env=host("two", LAZYCK_JIT="off")).stdout.startswith("8 compiles 0 hits 0")
    assert (tmp_path / "helped").read_text() == helped


def test_without_a_remote_no_helper_is_started(lib: LazyLibrary, host: Hosts, tmp_path: Path) -> None:
    assert lib.call(lib.program(CALL_CAUGHT), env=host("one", LAZYCK_REMOTE="")).stdout == "8\n"
    assert lib.compiles() == 1
    assert not (tmp_path / "helped").exists()


def test_an_entry_that_nobody_signed_is_refused_and_compiled(lib: LazyLibrary, host: Hosts, tmp_path: Path) -> None:
    program = lib.program(CALL_AND_COUNT)
    lib.call(program, env=host("one"))
    wait_until(lambda: bool(records(tmp_path)) and not helpers(tmp_path))
    done = lib.call(program, env=host("two", attributes=""))
    assert done.stdout == "8 compiles 1 hits 0 refused 1 skipped 0\n"
    assert "sign" in done.stderr and "LAZYCK_TRUST" in done.stderr
    assert lib.compiles() == 2


def test_an_entry_that_was_damaged_in_the_remote_is_refused_and_compiled(
    lib: LazyLibrary, host: Hosts, tmp_path: Path
) -> None:
    program = lib.program(CALL_AND_COUNT)
    lib.call(program, env=host("one"))
    wait_until(lambda: bool(records(tmp_path)) and not helpers(tmp_path))
    (contents,) = records(tmp_path)
    data = bytearray(contents.read_bytes())
    data[len(data) // 2] ^= 1
    contents.chmod(0o644)
    contents.write_bytes(data)
    done = lib.call(program, env=host("two"))
    assert done.stdout == "8 compiles 1 hits 0 refused 1 skipped 0\n", done.stderr


def test_of_two_hosts_that_miss_at_once_one_compiles(lib: LazyLibrary, host: Hosts, tmp_path: Path) -> None:
    program = lib.program(CALL_AND_COUNT)
    slow_compiler(lib, 2)
    running = [
        subprocess.Popen(
            lib.words(program), env={**os.environ, **lib.env, **host(name)}, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two", "three")
    ]
    said = sorted(p.communicate(timeout=60)[0] for p in running)
    assert said == [
        "8 compiles 0 hits 1 refused 0 skipped 0\n",
        "8 compiles 0 hits 1 refused 0 skipped 0\n",
        "8 compiles 1 hits 0 refused 0 skipped 0\n",
    ]
    assert lib.compiles() == 1


def test_when_the_host_that_compiles_is_killed_another_one_does(lib: LazyLibrary, host: Hosts, tmp_path: Path) -> None:
    program = lib.program(CALL_AND_COUNT)
    slow_compiler(lib, 20)
    first = subprocess.Popen(lib.words(program), env={**os.environ, **lib.env, **host("one")}, start_new_session=True)
    wait_until(lambda: lib.compiles() == 1)
    counting_compiler(lib.compiler, lib.calls, lib.machine.cxx)
    second = subprocess.Popen(
        lib.words(program),
        env={**os.environ, **lib.env, **host("two")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1)  # it would compile by then
    assert lib.compiles() == 1, "it waits"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    said = second.communicate(timeout=60)
    assert said[0] == "8 compiles 1 hits 0 refused 0 skipped 0\n", said
    assert lib.compiles() == 2


def slow_compiler(lib: LazyLibrary, seconds: int) -> None:
    counting_compiler(lib.compiler, lib.calls, lib.machine.cxx)
    lines = lib.compiler.read_text().splitlines()
    lib.compiler.write_text(
        "\n".join([*lines[:-1], f'case " $* " in *" -c "*) sleep {seconds};; esac', lines[-1]]) + "\n"
    )


MISBEHAVIOURS = {
    "is not there": None,
    "cannot be started": "#!/nonexistent/python\n",
    "ends with an error": "#!/bin/sh\necho something is wrong >&2\nexit 2\n",
    "ends without a word": "#!/bin/sh\nexit 0\n",
    "is killed": "#!/bin/sh\nkill -9 $$\n",
    "says what nobody knows": "#!/bin/sh\n(echo hello; sleep 5) >&0 &\n",
    "says no end of a line": "#!/bin/sh\n(head -c 100000 /dev/zero | tr '\\0' x) >&0 &\n",
    "has no file": "#!/bin/sh\n(echo hit nowhere 5; read answer; echo compile) >&0 &\n",
    "has an empty file": "#!/bin/sh\n: > fetched.so; (echo hit nowhere 5; read answer; echo compile) >&0 &\n",
    "has a link": "#!/bin/sh\nln -s /etc/passwd fetched.so; (echo hit nowhere 5; read answer; echo compile) >&0 &\n",
    "has garbage": "#!/bin/sh\nhead -c 20000 /dev/urandom > fetched.so; (echo hit x 5; read a; echo compile) >&0 &\n",
    "has another blob's entry": '#!/bin/sh\ncp "$OTHER" fetched.so; (echo hit x 5; read answer; echo compile) >&0 &\n',
    "always has garbage": "#!/bin/sh\n: > fetched.so; (while echo hit x 5; do read a || exit; done) >&0 &\n",
}


@pytest.mark.parametrize("what", MISBEHAVIOURS)
def test_a_call_works_whatever_the_helper_does(lib: LazyLibrary, tmp_path: Path, rt_tool: Path, what: str) -> None:
    path = tmp_path / "helper"
    script = MISBEHAVIOURS[what]
    if script is not None:
        path.write_text(script)
        path.chmod(0o755)
    other = {"LAZYCK_CACHE_DIR": str(tmp_path / "other")}
    lib.call(rt_tool, "compile", "--quiet", "--from", lib.library, "sub", env=other)
    (entry,) = (tmp_path / "other").glob("v1/*/*/*.so")
    env = {"LAZYCK_REMOTE": "http://127.0.0.1:9/", "LAZYCK_REMOTE_HELPER": str(path), "OTHER": str(entry)}
    done = lib.call(lib.program(CALL_CAUGHT), env=env)
    assert done.stdout == "8\n", done.stderr
    assert lib.compiles("add") == 1
    assert "warning" in done.stderr or "warn: " in done.stderr, "the user is told"
    assert len(done.stderr.splitlines()) < 25, done.stderr
    assert [p.name.split("-")[0] for p in lib.entries()] == ["add"]
    assert not list(lib.cache.glob(".staging/*")), "nothing is left behind"
