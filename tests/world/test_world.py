"""Test real projects whose libraries' sources are all lazy. Their own tests must have the results
of a build ahead of time: cold, cached, without a compiler and in parallel. `scripts/world` does
this as a command, and installs what is missing."""

import os
import shutil
from pathlib import Path

import pytest

from world.catalogue import PROJECTS
from world.project import Project, Results
from world.results import COMMAND, count, differences, read_results
from world.runner import Outcome, Run, check, world_directory
from world.sources import Unavailable, missing_packages
from world.table import HEAD, row, with_table

WORLD = world_directory(os.environ)  # set before the tests clear the environment
QUICK = ("double-conversion", "jansson")
OUTCOME = Outcome("p", "1.0-1", "make", 3, 1, 2, {"b": "defines data: d"}, 1.5, "", Run({COMMAND: "passed"}, 1.0))


@pytest.mark.parametrize(
    "project",
    [pytest.param(p, id=p.name, marks=() if p.name in QUICK else pytest.mark.slow) for p in PROJECTS],
)
def test_the_tests_of_a_project_have_the_results_of_a_build_ahead_of_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sources of a project's tests, which are no blobs, are compiled alike in each build. (C is
    # compiled quickly.)
    if shutil.which("ccache"):
        monkeypatch.setenv("CCACHE_DIR", str(WORLD / "ccache"))
        monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    missing = missing_packages(project)
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)} (`scripts/world {project.name}` does that)")
    said: list[str] = []
    try:
        outcome = check(project, WORLD, os.cpu_count() or 1, said.append)
    except Unavailable as e:
        pytest.skip(f"{project.name}: {e}")
    assert outcome.is_same, "\n".join([*said, outcome.trouble, str(outcome.differences())])


def test_every_kind_of_results_is_read(tmp_path: Path) -> None:
    (tmp_path / "ctest.xml").write_text(
        '<testsuite><testcase name="a" status="run"/><testcase name="b" status="fail"><failure/></testcase>'
        '<testcase name="c" status="notrun"><skipped/></testcase></testsuite>'
    )
    (tmp_path / "cut.xml").write_text("<testsuite><testcase")
    (tmp_path / "x.trs").write_text(":test-result: XFAIL\n:global-test-result: PASS\n")
    (tmp_path / "y.trs").write_text(":test-result: FAIL\n")
    results = Results(junit=("*.xml",), trs=("*.trs",), lines=r"^(?P<name>\w+) (?:(?P<passed>ok)|bad)$")
    assert read_results(results, (tmp_path,), "one ok\ntwo bad\n", 3) == {
        COMMAND: "failed (3)",
        "ctest: .a": "passed",
        "ctest: .b": "failed",
        "ctest: .c": "skipped",
        "cut: its results": "failed",
        "x": "passed",
        "y": "failed",
        "one": "passed",
        "two": "failed",
    }


def test_a_test_that_does_not_run_is_a_difference() -> None:
    assert differences({"a": "passed", "b": "failed"}, {"b": "failed"}) == ["a: passed ahead of time, absent lazily"]
    assert count({COMMAND: "passed", "a": "passed", "b": "failed", "c": "skipped"}) == "1, 1 failed, 1 skipped"


def test_only_equal_results_of_deferred_blobs_count_as_the_same() -> None:
    runs = {way: Run({COMMAND: "passed"}, 1.0) for way in ("cold", "cached", "no JIT", "parallel")}
    whole = Outcome(**{**vars(OUTCOME), "runs": runs})
    assert whole.is_same
    assert not Outcome(**{**vars(whole), "blobs": 0}).is_same
    assert not Outcome(**{**vars(whole), "trouble": "the lazy build fails"}).is_same
    for way, run in (("cold", Run({COMMAND: "failed (8)"}, 1.0)), ("cached", Run({COMMAND: "passed"}, 1.0, 2))):
        other = Outcome(**{**vars(whole), "runs": {**runs, way: run}})
        assert not other.is_same and list(other.differences()) == [way]


def test_the_page_gets_one_row_for_each_project() -> None:
    page = "\n".join(["# Page", *HEAD, "| o 1 | a row that stays |", "| p 0.9 | an older one |", "", "text", ""])
    changed = with_table(page, [OUTCOME])
    assert changed == page.replace("| p 0.9 | an older one |", row(OUTCOME))
    assert with_table(changed, [OUTCOME]) == changed


def test_a_result_that_a_test_has_ahead_of_time_now_and_then_is_no_difference() -> None:
    ahead = Run({"a": "passed", "b": "passed"}, 1.0)
    lazy = Run({"a": "failed", "b": "passed"}, 1.0)
    assert ahead.differences(lazy) == ["a: passed ahead of time, failed lazily"]
    again = ahead.repeated(ahead).repeated(Run({"a": "failed", "b": "passed"}, 1.0))
    assert again.varying == {"a": ["failed"]} and not again.differences(lazy)
    assert again.differences(Run({"a": "failed", "b": "failed"}, 1.0)) == ["b: passed ahead of time, failed lazily"]
    assert again.differences(Run({"b": "passed"}, 1.0)) == ["a: passed ahead of time, absent lazily"]
