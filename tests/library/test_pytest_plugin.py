"""Test lazyck's plugin for pytest, which fails tests during which a lazy library compiles."""

import os
import re
from pathlib import Path

import pytest
from support import REPOSITORY
from support.demo_libraries import build_demo, build_other
from support.lazylib import LazyLibrary

pytest_plugins = "pytester"

HEAD = """
import ctypes, os, subprocess, sys, pytest
DEMO, OTHER = {demo!r}, {other!r}
demo = ctypes.CDLL(DEMO)
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> tuple[LazyLibrary, LazyLibrary]:
    make = tmp_path_factory.mktemp
    return build_demo(make("demo"), objects_dir), build_other(make("other"), objects_dir)


class Run:
    """Runs pytest on a file of tests, with the plugin installed as pyproject.toml says."""

    def __init__(self, pytester: pytest.Pytester, head: str) -> None:
        self._pytester, self._head = pytester, head

    def __call__(self, text: str, *options: str, ini: str = "") -> pytest.RunResult:
        self._pytester.makepyfile(self._head + text)
        self._pytester.makeini("[pytest]\n" + ini)
        return self._pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)


@pytest.fixture
def tests(
    libraries: tuple[LazyLibrary, LazyLibrary], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Run:
    site = pytester.mkdir("site")
    (site / "lazyck_plugin-1.dist-info").mkdir()
    (site / "lazyck_plugin-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1\n")
    entry = re.search(r"^\[project\.entry-points\.pytest11\]\n(\w+) = \"(.*)\"$", PYPROJECT, re.MULTILINE)
    assert entry is not None
    (site / "lazyck_plugin-1.dist-info" / "entry_points.txt").write_text(f"[pytest11]\n{entry[1]} = {entry[2]}\n")
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{REPOSITORY}")
    demo, other = (str(lib.library) for lib in libraries)
    return Run(pytester, HEAD.format(demo=demo, other=other))


PYPROJECT = (REPOSITORY / "pyproject.toml").read_text()
CALLS = """
def test_cached():
    assert demo.call(3, 10) == 13
def test_two():
    assert [demo.call(i, 10) for i in (1, 2, 1)] == [11, 12, 11]
def test_again():
    assert demo.call(2, 10) == 12
"""


def test_nothing_is_said_unless_it_is_asked_for(tests: Run) -> None:
    result = tests(CALLS + "def test_trace():\n    assert 'LAZYCK_TRACE' not in os.environ\n")
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(("option", "ini"), [("--lazyck-forbid-jit", ""), ("-v", "lazyck_forbid_jit = true")])
def test_a_test_that_compiles_fails_with_the_blobs_names(tests: Run, option: str, ini: str) -> None:
    tests("def test_fills_the_cache():\n    demo.call(3, 10)\n").assert_outcomes(passed=1)
    result = tests(CALLS, option, ini=ini)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*_ test_two _*", "lazy libraries compiled during the test:", "  one of demo (* s)", "  two of demo (* s)"],
        consecutive=False,
    )
    tests(CALLS, option, ini=ini).assert_outcomes(passed=3)


def test_a_marker_is_for_one_test_and_leaves_one_out(
    tests: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    marked = CALLS.replace("def test_two", "@pytest.mark.lazyck_forbid_jit\ndef test_two")
    tests(marked).assert_outcomes(passed=2, failed=1)
    left_out = marked.replace("forbid_jit\n", "forbid_jit(False)\n")
    monkeypatch.setenv("LAZYCK_CACHE_DIR", str(tmp_path / "empty"))
    tests(left_out, "--strict-markers", "--lazyck-forbid-jit").assert_outcomes(passed=2, failed=1)


def test_compiles_of_setup_of_a_library_loaded_within_and_of_other_processes_are_seen(tests: Run) -> None:
    result = tests(
        """
@pytest.fixture
def ready():
    demo.call(1, 10)
    yield
    demo.call(2, 10)
def test_setup(ready):
    pass
def test_loads():
    assert ctypes.CDLL(OTHER).call_four(10) == 14
def test_starts():
    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({DEMO!r}).call(3, 10)"], check=True)
""",
        "--lazyck-forbid-jit",
    )
    result.assert_outcomes(failed=3, errors=1)
    for name in ("one of demo", "two of demo", "four of other", "three of demo"):
        result.stdout.fnmatch_lines([f"  {name} (* s)"])


def test_a_library_that_was_called_before_the_tests_is_seen_by_its_counts(tests: Run) -> None:
    result = tests("demo.call(1, 10)\ndef test_nothing():\n    pass\n" + CALLS, "--lazyck-forbid-jit")
    result.assert_outcomes(failed=2, passed=2)
    result.stdout.fnmatch_lines(["  1 of libraries that were called before the tests began"])
