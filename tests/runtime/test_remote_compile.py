"""Tests LAZYCK_REMOTE_COMPILE: a process without a compiler has its blobs compiled elsewhere, by
BuildGrid and by dask."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import HERE, REPOSITORY, running, wait_until
from support.buildgrid_server import BuildGrid
from support.farm_cluster import Cluster
from support.lazylib import LazyLibrary, build_lazy_library

from lazyck.toolchains.identity import compiler_identity

pytestmark = pytest.mark.xdist_group("reapi")

BLOB = '#include "demo.h"\nint addone(int x) {{ return x + 1; }}  // {}\n'
MAIN = '#include "demo.h"\nextern "C" int call(int x) { return addone(x); }\n'
PROGRAM = """
#include <lazyck.h>
#include <cstdio>
#include "error.hpp"
extern "C" int call(int);
int main() {
    for (int i = 0; i < 2; ++i) {
        try {
            std::printf("%d", call(7));
        } catch (const lazyck::CompileError& e) {
            std::printf("error: %s\\nlog %s\\n", e.what(), e.log());
        }
    }
    lazyck_stats stats = {};
    stats.size = sizeof stats;
    lazyck_get_stats(&stats);
    std::printf(" compiles %d hits %d\\n", (int)stats.compiles, (int)stats.remote_hits);
}
"""


@pytest.fixture
def lib(tmp_path: Path, objects_dir: Path) -> LazyLibrary:
    return make_library(tmp_path, objects_dir, BLOB.format(tmp_path.name))


def make_library(tmp_path: Path, objects_dir: Path, blob: str) -> LazyLibrary:
    """Build a library whose compiler is only on the machines of the services."""
    made = build_lazy_library(
        tmp_path, objects_dir, {"one": blob}, MAIN, header="int addone(int);\n",
        symbols={"one": ("_Z6addonei",)}, sealed=True, toolchain_id=compiler_identity((HERE.cxx,)),
    )  # fmt: skip
    script = made.compiler.read_text()
    is_there = 'case "$(pwd -P) $*" in */services* | *--version) ;; *) exit 127 ;; esac\n'
    made.compiler.write_text(script.replace("#!/bin/sh\n", f"#!/bin/sh\n{is_there}"))
    helper = tmp_path / "lazyck-remote"
    helper.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from lazyck.commands.remote_program import main\nmain()\n"
    )
    helper.chmod(0o755)
    made.env["LAZYCK_REMOTE_HELPER"] = str(helper)
    return made


def test_a_process_without_a_compiler_gets_its_blob_from_a_service(lib: LazyLibrary, buildgrid: BuildGrid) -> None:
    program = lib.program(PROGRAM)
    done = lib.call(program, env={"LAZYCK_REMOTE_COMPILE": buildgrid.url})
    assert done.stdout == "88 compiles 0 hits 1\n", done.stderr
    assert lib.compiles() == 1
    (entry,) = lib.entries()
    assert "-c " in entry.with_suffix(".log").read_text()
    # What it took there is the guess for the next time. It is recorded while the program goes on.
    costs = lib.cache / ".costs" / lib.manifest.library
    wait_until(lambda: costs.is_file() and " one " in costs.read_text())
    # Another one without a cache gets the result that the service has kept.
    again = lib.call(program, env={"LAZYCK_REMOTE_COMPILE": buildgrid.url, "LAZYCK_CACHE_DIR": f"{lib.cache}2"})
    assert again.stdout == "88 compiles 0 hits 1\n"
    assert lib.compiles() == 1


def test_a_blob_that_the_service_cannot_compile_is_the_calls_error(
    tmp_path: Path, objects_dir: Path, buildgrid: BuildGrid
) -> None:
    lib = make_library(tmp_path, objects_dir, "#error broken on purpose\n")
    done = lib.call(lib.program(PROGRAM), env={"LAZYCK_REMOTE_COMPILE": buildgrid.url})
    assert done.stdout.count("error: lazyck: cannot compile blob 'one' for ") == 2
    assert "#error broken on purpose" in done.stdout
    assert lib.compiles() == 1  # nobody retries what the compiler refuses
    log = next(line[4:] for line in done.stdout.splitlines() if line.startswith("log "))
    assert Path(log).is_relative_to(lib.cache)
    assert "broken on purpose" in Path(log).read_text()


def test_a_service_that_is_down_leaves_the_compile_to_this_machine(lib: LazyLibrary) -> None:
    program = lib.program(PROGRAM)
    url = "grpc://127.0.0.1:1|trusted"
    done = lib.call(program, env={"LAZYCK_REMOTE_COMPILE": url})
    # Neither can compile it, and the error tells of both.
    assert "/cxx" in done.stdout and "exit status 127" in done.stdout
    assert (
        "nor did the compile service (LAZYCK_REMOTE_COMPILE) compile it: grpc://127.0.0.1:1: UNAVAILABLE" in done.stdout
    )
    lib.compiler.write_text(lib.compiler.read_text().replace("exit 127", "true"))
    done = lib.call(program, env={"LAZYCK_REMOTE_COMPILE": url})
    assert done.stdout == "88 compiles 1 hits 0\n"


def test_what_forbids_a_compile_forbids_one_elsewhere(lib: LazyLibrary) -> None:
    helped = lib.directory / "helped"
    (lib.directory / "lazyck-remote").write_text(f"#!/bin/sh\necho $1 >> '{helped}'\n")
    env = {"LAZYCK_REMOTE_COMPILE": "grpc://127.0.0.1:1|trusted", "LAZYCK_REMOTE": "/nonexistent"}
    env["LAZYCK_JIT"] = "off"
    done = lib.call(lib.program(PROGRAM), env=env)
    assert "forbids compiling it" in done.stdout
    assert set(helped.read_text().split()) == {"entry"}  # caches are asked
    assert not lib.compiles()


def test_waiting_is_bounded_and_says_so(lib: LazyLibrary, buildgrid: BuildGrid, tmp_path: Path) -> None:
    script = lib.compiler.read_text()
    lib.compiler.write_text(script.replace("exec ", 'case "$*" in *" -c "*) sleep 600 ;; esac\nexec '))
    env = {"LAZYCK_REMOTE_COMPILE": buildgrid.url, "LAZYCK_LOCK_TIMEOUT": "3"}
    done = lib.call(lib.program(PROGRAM), env=env)
    assert "is compiling one (" in done.stderr
    assert "no entry within 3 s (LAZYCK_LOCK_TIMEOUT)" in done.stdout
    # The service is told, so that its worker is free again.
    wait_until(lambda: any("cancelled" in buildgrid.log(name) for name in ("one", "two")))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="needs lazyck[farm]")
    directory = tmp_path / "services"
    (directory / "remote").mkdir(parents=True, mode=0o700)
    with running(Cluster(directory, f"{directory}/remote|trusted"), "one") as found:
        yield found


def test_a_cluster_of_dask_compiles_for_a_process_too(lib: LazyLibrary, cluster: Cluster) -> None:
    env = {"LAZYCK_REMOTE_COMPILE": cluster.url, "LAZYCK_REMOTE": cluster.remote}
    done = lib.call(lib.program(PROGRAM), env=env)
    assert done.stdout == "88 compiles 0 hits 1\n", done.stderr
    assert lib.compiles() == 1
    assert cluster.entries("one") == ["one"]
