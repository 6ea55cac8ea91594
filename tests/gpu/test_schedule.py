"""Test how a proof is run: limits hold, and results count even if the run is cut short."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from support import wait_until  # noqa: E402

from gpu import stages  # noqa: E402
from gpu.machine import Machine  # noqa: E402
from gpu.place import Place, complaint  # noqa: E402
from gpu.report import BLIND, Claim, Report, read  # noqa: E402
from gpu.schedule import Outcome, Schedule, save  # noqa: E402
from gpu.stage import Stage, load  # noqa: E402
from gpu.stages import ggml  # noqa: E402
from gpu.table import render, with_results  # noqa: E402

# This script stands for `python -m gpu.stage`. A stage's name says what its phases do.
SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from typing import cast
sys.path.insert(0, {tests!r})
from gpu.report import Report
from support import wait_until
root, name, phase = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
report = Report(root / f"{{name}}.jsonl")
with (root / "order").open("a") as out:
    out.write(f"{{name}} {{phase}} {{time.monotonic()}}\\n")
if phase == "prove":
    report.saw("it is so", "a figure")
if name == "fails" and phase == "prove":
    sys.exit("what went wrong")
if name == "breaks" and phase == "build":
    sys.exit("no compiler")
if name == "hangs" and phase == "prove":
    child = subprocess.Popen(["sleep", "1000"])
    (root / "child").write_text(str(child.pid))
    child.wait()
if name.startswith("slow") and phase == "build":
    time.sleep(0.2)  # stands for what a build takes
if name.startswith("pair") and phase == "build":
    wait_until(lambda: (root / "order").read_text().count("pair") >= 2)
with (root / "order").open("a") as out:
    out.write(f"{{name}} {{phase}}-end {{time.monotonic()}}\\n")
"""


def nothing(place: Place, report: Report) -> None: ...


def stage(name: str, seconds: int = 30, is_alone: bool = False) -> Stage:
    return Stage(name, f"what {name} shows", 30, seconds, nothing, nothing, is_alone)


def run(tmp_path: Path, chosen: list[Stage], limit: float = 60, cores: int = 8) -> Schedule:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS)))
    schedule = Schedule(chosen, tmp_path, limit, cores, (sys.executable, str(script)))
    schedule.run(lambda: save(tmp_path / "gpu.json", {"machine": {}}, schedule.outcomes))
    return schedule


def times(tmp_path: Path) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in (tmp_path / "order").read_text().splitlines())
    return {what: float(when) for what, _, when in lines}


def test_a_stage_that_fails_stops_no_other_and_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, [stage("fails"), stage("breaks"), stage("works")])
    assert {name: o.state for name, o in done.outcomes.items()} == {
        "fails": "failed",
        "breaks": "failed",
        "works": "passed",
    }
    assert "what went wrong" in done.outcomes["fails"].trouble
    assert done.outcomes["breaks"].trouble == "build: status 1: no compiler"
    assert "breaks prove" not in times(tmp_path)
    written = json.loads((tmp_path / "gpu.json").read_text())["stages"]
    assert written["fails"]["claims"] == [{"text": "it is so", "state": "seen", "detail": "a figure"}]


def test_a_stage_is_ended_at_its_limit_with_what_it_started(tmp_path: Path) -> None:
    done = run(tmp_path, [stage("hangs", seconds=2), stage("works")])
    assert done.outcomes["hangs"].trouble == "prove: stopped after 2 s"
    assert done.outcomes["hangs"].claims == [Claim("it is so", "seen", "a figure")]
    assert done.outcomes["works"].state == "passed"
    state = Path("/proc", (tmp_path / "child").read_text(), "stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_measures_time_is_alone_and_has_its_time(tmp_path: Path) -> None:
    done = run(tmp_path, [stage("measures", seconds=3, is_alone=True), stage("pair1"), stage("pair2")])
    assert {o.state for o in done.outcomes.values()} == {"passed"}
    when = times(tmp_path)
    assert when["measures prove"] > max(when["pair1 prove-end"], when["pair2 prove-end"])
    builds = [[when[f"{name} {phase}"] for name in ("pair1", "pair2")] for phase in ("build", "build-end")]
    assert max(builds[0]) < min(builds[1]), "builds run side by side"
    (tmp_path / "late").mkdir()
    late = run(tmp_path / "late", [stage("slow", seconds=20), stage("measures", seconds=5, is_alone=True)], 14, 1)
    assert late.outcomes["measures"].state == "passed"


def test_the_whole_has_a_limit(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = run(tmp_path, [stage("hangs", seconds=1000), stage("works")], limit=3, cores=1)
    assert time.monotonic() - begun < 30
    assert done.outcomes["hangs"].trouble.startswith("prove: stopped after")
    assert done.outcomes["works"].is_cut and "prove" not in done.outcomes["works"].seconds


def test_what_is_known_is_written_by_one_thread_at_a_time(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS)))
    schedule = Schedule([stage(f"works{i}") for i in range(6)], tmp_path, 60, 24, (sys.executable, str(script)))
    inside: list[int] = []

    def changed() -> None:
        inside.append(1)
        time.sleep(0.05)  # another thread would come in: there is no event of one that may not
        assert len(inside) == 1, "two at a time"
        inside.pop()

    schedule.run(changed)
    assert {o.state for o in schedule.outcomes.values()} == {"passed"} and not inside


def test_a_claim_that_is_being_written_is_none_yet(tmp_path: Path) -> None:
    report = tmp_path / "one.jsonl"
    Report(report).saw("first", "a figure")
    report.write_text(report.read_text() + '{"text": "seco')
    assert read(report) == [Claim("first", "seen", "a figure")]


def test_results_of_a_run_that_is_ended_count(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "gpu", "attention", "--work", str(tmp_path / "work"), "--hip", "--short"]
    env = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", "ROCM_PATH": f"{TESTS.parent}/scripts/fake_rocm_home"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as child:
        wait_until((tmp_path / "work" / "attention.build.log").exists, process=child)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
    assert child.returncode == 130
    assert json.loads((tmp_path / "work" / "gpu.json").read_text())["machine"]["gpu"] == "a stand-in on the CPU"


def test_every_stage_is_there_and_fits_the_limit() -> None:
    for names in (stages.CUDA, stages.HIP):
        assert sum(load(name).seconds for name in names if load(name).is_alone) < 200
        assert all(load(name).name == name for name in names)


def test_outcomes_in_one_word() -> None:
    blind, seen, missed = Claim("a", BLIND), Claim("b", "seen"), Claim("c", "not so")
    for claims, word in (
        ([], "not run"),
        ([blind], "nothing to see"),
        ([blind, seen], "in part"),
        ([seen], "passed"),
        ([seen, blind, missed], "failed"),
    ):
        assert Outcome("", claims=claims).state == word
    assert Outcome("", claims=[seen], trouble="status 1").state == "failed"
    assert Outcome("", claims=[seen], trouble="too long", is_cut=True).state == "cut short"
    assert Outcome("", claims=[missed], trouble="too long", is_cut=True).state == "failed"


MACHINE = {
    "gpu": "", "arch": "90", "driver": "", "cores": 2, "memory_gb": 8, "torch": "", "platform": "cuda",
    "compiler": "nvcc 13", "python": "3.11", "system": "Debian",
}  # fmt: skip
HEAD = {"command": "scripts/gpu", "date": "2026-01-02T00:00:00", "commit": "abc", "seconds": 3, "machine": MACHINE}


def test_a_page_gets_the_results_between_its_marks(tmp_path: Path) -> None:
    outcome = Outcome("that it | works", {"build": 1.0}, [Claim("one", "not so", "a\nb | c")])
    save(tmp_path / "gpu.json", HEAD, {"one": outcome})
    page = with_results("before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n", tmp_path / "gpu.json")
    assert page.startswith(
        "before\n<!-- results: begin -->\n\nMade by `scripts/gpu` on 2026-01-02, at abc, in 3 s: no GPU"
    )
    assert "| `one` | one | **NO** | a b \\| c |" in page and "old" not in page and page.endswith("after\n")
    with pytest.raises(ValueError, match="results: begin"):
        with_results("no marks", tmp_path / "gpu.json")


def test_of_several_runs_the_last_counts_unless_it_was_only_cut_short(tmp_path: Path) -> None:
    seen, missed = Claim("a", "seen"), Claim("c", "not so")
    ends = {
        "passed": Outcome("", claims=[seen]),
        "cut short": Outcome("", claims=[seen], is_cut=True, trouble="too long"),
        "failed": Outcome("", claims=[missed], is_cut=True, trouble="too long"),
    }

    def shown(*words: str) -> str:
        for i, word in enumerate(words):
            save(tmp_path / f"{i}.json", HEAD, {"one": ends[word]})
        text = render(*(tmp_path / f"{i}.json" for i in range(len(words))))
        return next(line for line in text.splitlines() if line.startswith("| `one`")).split(" | ")[2]

    assert shown("passed", "cut short") == "passed"
    assert shown("passed", "failed") == "failed"
    assert shown("failed", "cut short") == shown("passed", "failed", "cut short") == "cut short"
    assert shown("cut short", "passed") == "passed"


def test_an_error_of_a_lazy_library_is_kept_whole() -> None:
    error = "lazyck: blob 'x' does not compile: killed\n  log: /somewhere\n" + "  used: " + "y" * 900 + "\n"
    said = "[lazyck] compiling z ...\nTraceback\nRuntimeError: " + error
    assert complaint(said) == error
    assert complaint("[lazyck] compiled z\nSegmentation fault\n") == "Segmentation fault\n"


def test_a_case_differs_if_it_never_ends_so_ahead_of_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    again = iter([{"a": "OK"}] * 7 + [{"a": "FAIL"}])
    monkeypatch.setattr(ggml, "run", lambda *_: ggml.Ran(next(again), [], ""))
    place = Place("ggml", tmp_path, tmp_path, cast(Machine, None), is_short=True, jobs=1)
    assert ggml.differing(place, "CPY", {"a": "FAIL"}, {"a": "OK"}) == []
    again = iter([{"a": "OK"}] * 8)
    assert ggml.differing(place, "CPY", {"a": "FAIL"}, {"a": "OK"}) == ["a"]
    again = iter([{}] * 8)
    assert ggml.differing(place, "CPY", {}, {}) == ["no case"]
    assert ggml.differing(place, "CPY", {"a": "OK"}, {"a": "OK"}) == []
