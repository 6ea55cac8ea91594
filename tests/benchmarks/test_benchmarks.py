"""Tests that each claim of the benchmarks has its figure, target and place in the page, and that a
short one runs."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import common  # noqa: E402
import run  # noqa: E402


def row(name: str, value: float, target: float = 2.0, **more: object) -> common.Row:
    return common.Row(name, f"claim {name}", value, "ms", target, "something", "details", **more)  # type: ignore[arg-type]


def test_each_benchmark_says_what_it_needs() -> None:
    modules = {p.stem for p in BENCHMARKS.glob("*.py")} - {"common", "picture", "run"}
    # Benchmarks of many machines or many hours have pages of their own, and modules that they
    # share.
    pages = {
        "beside": "kernels.md",
        "farm": "scale.md",
        "fleet": "scale.md",
        "kernels": "kernels.md",
        "machine_code": "kernels.md",
        "warm_launch": "kernels.md",
    }
    assert {m for m in modules - set(pages) if not m.startswith("fleet_")} == set(run.NAMES)
    for name, page in pages.items():
        assert f"benchmarks/{name}.py" in (REPOSITORY / "docs" / page).read_text()
    for name in run.NAMES:
        assert isinstance(run.benchmark(name).missing(), str)


def test_a_missed_target_is_marked_and_its_reason_told() -> None:
    met, missed, floor = row("a", 1.0), row("b", 3.0, why="the kernel"), row("c", 25.0, 20.0, is_floor=True)
    assert (met.is_met, missed.is_met, floor.is_met) == (True, False, True)
    assert not row("d", 19.0, 20.0, is_floor=True).is_met
    lines = common.render([met, missed, floor]).splitlines()
    assert "**missed**" in lines[3] and "**missed**" not in lines[2] + lines[4]
    assert "≥ 20" in lines[4] and "≤ 2" in lines[2]


def test_figures_go_into_the_page_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{run.BEGIN}\nold\n{run.END}\nafter\n")
    monkeypatch.setattr(run, "PAGE", page)
    for _ in range(2):
        run.write_page([row("a", 1.0), row("b", 3.0, why="the kernel")], [])
        text = page.read_text()
        assert text.startswith(f"before\n{run.BEGIN}\n") and text.endswith(f"{run.END}\nafter\n")
        assert "old" not in text and text.count("claim a") == 1 and "- claim b: the kernel" in text


def test_prose_of_the_page_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"{run.BEGIN}\n{run.END}\n")
    monkeypatch.setattr(run, "PAGE", page)
    run.write_page([row("b", 3.0, why="because " * 30 + "of `--this-option`.")], ["memory"])
    lines = [line for line in page.read_text().splitlines() if not line.startswith("|")]
    assert max(map(len, lines)) <= 100
    (begin,) = (i for i, line in enumerate(lines) if line.startswith("- claim b: because "))
    assert lines[begin + 1].startswith("  because ") and "of `--this-option`." in lines[begin + 2]


def test_the_page_has_a_place_for_the_figures() -> None:
    text = run.PAGE.read_text()
    assert text.count(run.BEGIN) == text.count(run.END) == 1


def test_figures_are_compared_with_the_record() -> None:
    told = run.compare([row("a", 3.0), row("b", 1.0)], {"a": 1.5})
    assert "2.00 of the record's 1.5" in told.splitlines()[0]
    assert "not recorded before" in told.splitlines()[1]


def test_ways_are_measured_in_turns() -> None:
    order: list[str] = []

    def way(name: str) -> float:
        order.append(name)
        return len(order)

    taken = common.in_turns({name: partial(way, name) for name in "ab"}, 8)
    assert sorted(map(len, taken.values())) == [8, 8]
    assert all(set(order[i : i + 2]) == {"a", "b"} for i in range(0, 16, 2)), order
    assert order[:2] != order[2:4] or order[4:6] != order[6:8], "in an order that changes"


def test_a_short_run_of_one_benchmark_measures_real_processes() -> None:
    argv = [sys.executable, str(BENCHMARKS / "run.py"), "--quick", "--only", "memory"]
    done = subprocess.run(argv, env=os.environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory per resolved blob, in a process with 20 resolved blobs" in done.stdout
    refused = subprocess.run([*argv, "--write"], env=os.environ, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "at their full length" in refused.stderr


def test_a_fleet_knows_what_a_helper_and_its_requests_cost(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    text = (
        "import sys, fleet_ranks as f, pathlib\n"
        "o = f.Options(1, 1, 1, 0.0, pathlib.Path(sys.argv[1]))\n"
        "f.adopt_orphans()\nf.write_helper(o.work / 'bin')\nload = f.OtherLoad()\n"
        "print(f.time_helper(o), f.time_request(o), load.left())"
    )
    argv = [sys.executable, "-c", text, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{BENCHMARKS}:{REPOSITORY}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    helper, request, left = map(float, done.stdout.split())
    assert helper > request > 0 and 0.1 <= left <= 1


def test_the_record_is_of_rows() -> None:
    if not run.BASELINE.is_file():
        pytest.skip("nothing is recorded yet")
    for name, recorded in json.loads(run.BASELINE.read_text()).items():
        assert common.Row(**recorded).name == name
