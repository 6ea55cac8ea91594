"""Tests that a rebuild that fails or is killed leaves the library of the last good build as it was,
for later calls too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck, wait_until
from support.twice_project import BLOB, COMPILE, DISPATCH, run_library, write_project

SCRIPT = "set -e\n" + COMPILE + "c++ -shared -Wl,-z,defs -o libx.so dispatch.o v*.o\n"
MISSING = 'int missing();\nextern "C" int more() { return missing(); }\n'
CASES = DISPATCH.format(cases="if (n == 3) return twice<3>(x); if (n == 4) return twice<4>(x);")
BREAKS = {
    "undefined symbol": {"dispatch.cpp": CASES + MISSING},
    "eager blob": {"blob/v2.cpp": '#include "twice.hpp"\nint data = no_such_name;\n' + BLOB.format(n=2)},
    "blob renamed": {"dispatch.cpp": CASES, "blob/v3.cpp": BLOB.format(n=3)},  # nothing defines twice<4>
    "no such library": {"build.sh": SCRIPT.rstrip() + " -lno_such_library\n"},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("good")


@pytest.fixture
def tree(good: Path, lazyck: Lazyck) -> Path:
    """Return a built library of three blobs, none of which has been compiled."""
    if not (good / "dispatch.cpp").exists():
        write_project(good, [1, 2, 3])
    originals = {f"blob/v{n}.cpp": BLOB.format(n=n) for n in (1, 2, 3)}
    cases = " ".join(f"if (n == {n}) return twice<{n}>(x);" for n in (1, 2, 3))
    write(good, {**originals, "dispatch.cpp": DISPATCH.format(cases=cases), "build.sh": SCRIPT})
    assert build(lazyck, good).returncode == 0
    return good


def words(tree: Path) -> list[str | Path]:
    return ["build", "full", "--toolchain", "host", "--tmp-dir", tree / "tmp", "--", "sh", "build.sh"]


def build(lazyck: Lazyck, tree: Path) -> subprocess.CompletedProcess[str]:
    return lazyck(*words(tree), cwd=tree)


def write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tree / name).write_text(text)


def check_works(tree: Path) -> None:
    """Check that every blob of the good build is compiled when it is called, from that build's
    bundle."""
    for n in (1, 2, 3):
        done = run_library(tree / "libx.so", n, 10)
        assert (done.stdout, "compiling" in done.stderr) == (f"{20 + n}\n", True), done.stderr


@pytest.mark.parametrize("broken", BREAKS)
def test_the_last_good_library_compiles_its_blobs(tree: Path, lazyck: Lazyck, broken: str) -> None:
    write(tree, {"blob/v1.cpp": BLOB.format(n=1).replace("x * 2", "x * 9"), **BREAKS[broken]})
    failed = build(lazyck, tree)
    assert failed.returncode != 0, failed.stderr
    check_works(tree)
    quick = lazyck("build", "quick", "--tmp-dir", tree / "tmp")
    assert (quick.returncode, "nothing to do" in quick.stdout) == (0, True), quick.stderr
    inspected = lazyck("inspect", tree / "libx.so")
    assert "3 lazy with 3 symbols" in inspected.stdout


def test_a_rebuild_that_is_killed_at_its_link_can_be_repeated(tree: Path, lazyck: Lazyck) -> None:
    slow = tree / "slow"
    slow.mkdir(exist_ok=True)
    (slow / "ld").write_text("#!/bin/sh\ntouch ../slow/begun slow/begun 2> /dev/null\nsleep 60\n")
    (slow / "ld").chmod(0o755)
    (slow / "begun").unlink(missing_ok=True)
    write(tree, {"blob/v1.cpp": BLOB.format(n=1).replace("x * 2", "x * 9")})
    write(tree, {"build.sh": SCRIPT.replace("c++ -shared", "c++ -Bslow -shared")})
    argv = [sys.executable, "-m", "lazyck", *map(str, words(tree))]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    running = subprocess.Popen(
        argv,
        cwd=tree,
        env=env,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )
    try:
        wait_until((slow / "begun").exists, 120, process=running)
    finally:
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(timeout=60) != 0
    check_works(tree)
    write(tree, {"build.sh": SCRIPT})
    assert build(lazyck, tree).returncode == 0
    assert run_library(tree / "libx.so", 1, 10).stdout == "91\n"
