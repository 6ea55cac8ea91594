"""Run the unit tests of the C++ runtime (`*_test.cpp`), each as a test of its own."""

import re
import shutil
from pathlib import Path

import pytest
from support import HERE, Once
from support.unit_binary import UnitBinary, build, cases

from lazyck.runtime.builder import OBJECTS, compile_objects

# It takes half the time that g++ does.
_FASTEST = next(filter(None, map(shutil.which, ("clang++-19", "clang++"))), HERE.cxx)
_SANITIZERS = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module")
def unit_binary(tmp_path_factory: pytest.TempPathFactory) -> UnitBinary:
    return build(tmp_path_factory.mktemp("unit"), compiler=_FASTEST)


@pytest.mark.parametrize(("path", "name"), [pytest.param(p, n, id=f"{p.stem}-{n}") for p, n in cases()])
def test_case(unit_binary: UnitBinary, path: Path, name: str) -> None:
    done = unit_binary.run_case(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"test cases: +1 \| +1 passed", done.stdout), done.stdout


def test_every_case_of_the_binary_is_run_here(unit_binary: UnitBinary) -> None:
    listed = unit_binary.run("--list-test-cases", "--no-colors").stdout
    assert sorted(name for _, name in cases()) == sorted(line for line in listed.splitlines() if line[0] not in "[=")


def test_the_runtime_compiles_without_a_warning_of_gcc(rt_tool: Path) -> None:
    objects = compile_objects(rt_tool.parent.parent / OBJECTS, [HERE.cxx])
    said = [log.read_text() for o in objects if (log := o.with_suffix(".log")).exists()]
    assert not said, "\n".join(said)


@pytest.mark.slow
def test_all_cases_are_clean_under_sanitizers(once: Once) -> None:
    binary = once("unit-binary-sanitized", lambda directory: build(directory, _SANITIZERS))
    # The environment that a test replaces is leaked on purpose: other threads may read it.
    done = binary.run(env={"ASAN_OPTIONS": "detect_leaks=0"}, seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
