"""Tests that the code lies where the project's order and ARCHITECTURE.md say."""

import re
import subprocess

from support import REPOSITORY
from support.layout import rooms, tracked

# What the project was ordered with, and a file that each directory is about.
ORDERED = {
    "lazyck/": "cli.py",
    "lazyck/interceptor/": "shim.c",
    "lazyck/postbuild/": "main.py",
    "lazyck/runtime/": "src/lazyck.h",
    "lazyck/prebuild/": "run.py",
    "scripts/fake_rocm_home/": "bin/hipcc",
    "tests/": "conftest.py",
    "README.md": "",
    "pyproject.toml": "",
}
# The documented modules, the floor that everything stands on, and the command line.
TOP = {
    "__init__", "__main__", "pytest", "setuptools", "telemetry", "torch",
    "abi", "directory", "errors", "files", "machines", "proc", "quantities", "terminal", "visible", "waiting",
    "cli",
}  # fmt: skip
# Beside the rooms: what a program does with the whole product.
OTHER_TESTS = {
    "benchmarks", "cmake", "cpp", "docs", "examples", "fake_rocm", "faults", "fuzz", "gpu", "model", "mutation",
    "programs", "projects", "support", "world",
}  # fmt: skip


def test_what_was_ordered_is_there_and_holds_the_code() -> None:
    for place, file in ORDERED.items():
        assert (REPOSITORY / place / file).is_file() if file else (REPOSITORY / place).is_file(), place
    code = [name for name in tracked() if re.search(r"\.(py|c|cpp|h|hpp|S)$", name)]
    homes = ("lazyck/", "scripts/", "tests/", "examples/", "benchmarks/")
    assert not [name for name in code if not name.startswith(homes)]
    lines = {home: 0 for home in ORDERED if home.startswith("lazyck/")}
    for name in code:
        for home in lines:
            if name.startswith(home):
                lines[home] += (REPOSITORY / name).read_text().count("\n")
    assert all(count > 1000 for count in lines.values()), lines


def test_the_top_of_the_package_holds_the_floor_and_the_command_line_alone() -> None:
    assert {p.stem for p in (REPOSITORY / "lazyck").glob("*.py")} == TOP


def test_tests_mirror_the_rooms() -> None:
    tests = {name.split("/")[1] for name in tracked() if name.startswith("tests/") and name.count("/") > 1}
    assert tests == rooms() | OTHER_TESTS


def test_what_tests_share_is_in_one_package_and_says_what_it_is() -> None:
    flat = {p.name for p in (REPOSITORY / "tests").glob("*.py") if not p.name.startswith("test_")}
    assert flat == {"conftest.py"}
    for path in (REPOSITORY / "tests" / "support").glob("*.py"):
        assert path.read_text().startswith(('"""', "#!")), path


def test_the_former_package_is_gone() -> None:
    former = "_" + "lazyck"
    found = subprocess.run(["git", "grep", "-l", former], cwd=REPOSITORY, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
