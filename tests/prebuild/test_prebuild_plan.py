"""Tests `lazyck prebuild plan`: the schedule that it assumes, and what it says of unknown compile
times."""

import json
import re
from pathlib import Path

import pytest
from support import Lazyck
from support.bundles import Bundle, build, make_bundle

from lazyck.errors import UsageError
from lazyck.history.costs import Costs, read_costs
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.prebuild.forecast import Fleet, Task, forecast, gather, least, makespan, render, schedule, total
from lazyck.prebuild.plan import (
    JobFailure,
    PlanOutcome,
    estimate,
    make_plan,
    outcome_to_json,
    plan_to_json,
    render_failures,
    render_outcome,
    render_plan,
)

GIB = 1 << 20  # in KiB


def entry(name: str, archs: str = "gfx942", cached: bool = False) -> BlobEntry:
    return BlobEntry(name, (archs,), archs, Path(f"/c/v1/lib/{archs}-t/{name}-{'0' * 16}.so"), cached)


# -- the schedule ----------------------------------------------------------------------------------


def test_the_longest_go_first_and_each_place_takes_the_next_when_it_is_free() -> None:
    tasks = [Task(s) for s in (3, 3, 2, 2, 2)]
    placed = schedule(tasks, Fleet(2, 1))
    assert makespan(placed) == 7  # longest-first gives 7; the optimum is 6
    assert [(p.task, p.worker, p.begin) for p in placed] == [(0, 0, 0), (1, 1, 0), (2, 0, 3), (3, 1, 3), (4, 0, 5)]
    assert least(tasks, Fleet(2, 1)) == 6


def test_every_task_runs_once_and_no_place_twice_at_a_time() -> None:
    tasks = [Task(1 + i * 7919 % 31, (1 + i * 104729 % 5) * GIB) for i in range(400)]
    fleet = Fleet(3, 4, 9 * GIB)
    placed = schedule(tasks, fleet)
    assert sorted(p.task for p in placed) == list(range(400))
    for worker in range(3):
        here = [p for p in placed if p.worker == worker]
        for moment in {p.begin for p in here}:
            running = [p for p in here if p.begin <= moment < p.end]
            assert len(running) <= 4
            assert sum(tasks[p.task].kib for p in running) <= 9 * GIB
    assert least(tasks, fleet) <= makespan(placed)
    # Without the memory limit, this bound holds for any list schedule on so many places.
    free = makespan(schedule(tasks, Fleet(3, 4)))
    assert free <= sum(t.seconds for t in tasks) / 12 + max(t.seconds for t in tasks)


def test_what_does_not_fit_waits_in_its_place_and_what_never_fits_runs_alone() -> None:
    tasks = [Task(10, 6 * GIB), Task(9, 6 * GIB), Task(1, 1 * GIB)]
    placed = schedule(tasks, Fleet(1, 2, 8 * GIB))
    # The second has a place and waits for memory there, so the third has to wait for a place.
    assert [(p.task, p.begin, p.end) for p in placed] == [(0, 0, 10), (1, 10, 19), (2, 10, 11)]
    alone = schedule([Task(5, 100 * GIB), Task(4, 100 * GIB)], Fleet(1, 2, 8 * GIB))
    assert [(p.task, p.begin) for p in alone] == [(0, 0), (1, 5)]


# -- what is known, and what is guessed ------------------------------------------------------------

COSTS = Costs(
    {("lib", "a", "gfx942"): 60.0, ("lib", "b", "gfx942"): 20.0, ("lib", "c", "gfx90a"): 10.0},
    {("lib", "a", "gfx942"): 5 * GIB, ("lib", "b", "gfx942"): GIB, ("lib", "c", "gfx90a"): GIB},
)


def test_memory_is_what_the_runtime_would_reserve() -> None:
    assert COSTS.need_kib("lib", "a", "gfx942") == 6 * GIB
    assert COSTS.need_kib("lib", "a", "gfx950") == 6 * GIB  # the need for other archs
    assert COSTS.need_kib("lib", "unknown", "gfx942") == 6 * GIB  # the library's largest need
    assert COSTS.need_kib("other", "a", "gfx942") == 4 * GIB


def test_known_times_of_the_arch_or_of_others_are_no_guesses() -> None:
    work = gather([entry("a"), entry("b"), entry("c")], COSTS)
    assert (work.guessed, [j.seconds for j in work.jobs]) == (0, [60, 20, 10])
    assert [j.is_of_other_archs for j in work.jobs] == [False, False, True]
    done = forecast(work, Fleet(2, 1))
    assert (done.seconds.low, done.seconds.likely, done.seconds.high, done.least) == (60, 60, 60, 60)
    assert done.efficiency == pytest.approx(90 / 120)
    text = render(work, [done])
    assert "3 to compile: 1 m 30 s of compiles\n" not in text  # times under 100 s are written in seconds
    assert "3 entries, 0 cached already, 3 to compile: 90.0 s of compiles\n  2 from what they took before\n" in text
    assert "1 from what they took for other archs" in text
    assert re.search(r"\n2 +1 +not considered +60.0 s +75% +60.0 s, the longest alone\n", text), text


def test_what_was_never_compiled_is_a_range_whose_basis_is_said() -> None:
    costs = Costs({("lib", f"k{i}", "gfx942"): 10.0 + i for i in range(21)})
    work = gather([entry(f"new{i}") for i in range(100)], costs)
    whole = total(work)
    assert whole.low < whole.likely < whole.high
    assert whole.likely == pytest.approx(2000, rel=0.1)
    assert total(work) == whole  # the result is the same for each call
    text = render(work, [forecast(work, Fleet(4, 8))])
    assert "100 guessed, as the library's 21 recorded compiles: 10.0 s to 30.0 s, median 20.0 s\n" in text
    few = gather([entry(f"new{i}") for i in range(100)], Costs({("lib", "k", "gfx90a"): 20.0}))
    assert total(few).high / total(few).low > 1.5
    told = render(few, [])
    assert "the library's 1 recorded compile for other archs: 20.0 s to 20.0 s" in told
    assert "; since these are few, the guess may be wrong by a factor of two" in told


def test_nothing_known_at_all_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="no compile of lib is recorded") as e:
        gather([entry("a")], Costs({("other", "a", "gfx942"): 5.0}))
    assert "compile a few" in e.value.hint
    assert "all cached already" in render(gather([entry("a", cached=True)], Costs({})), [])


# -- the plan of a build, and its outcome ----------------------------------------------------------


def test_a_plan_begins_with_the_longest_and_keeps_the_order_of_equals() -> None:
    every = [entry("b"), entry("unknown"), entry("a"), entry("done", cached=True), entry("also_unknown")]
    plan = make_plan(every, COSTS)
    assert [j.entry.name for j in plan.jobs] == ["a", "unknown", "also_unknown", "b"]  # the mean is 30 s
    assert (plan.total, plan.cached) == (5, 1)
    assert [j.seconds for j in plan.jobs] == [60.0, None, None, 20.0]
    nothing = make_plan(every, Costs({}))
    assert [j.entry.name for j in nothing.jobs] == ["b", "unknown", "a", "also_unknown"]
    assert estimate(nothing, Costs({}), 4) is None


def test_a_build_takes_as_long_as_its_longest_job_or_all_of_them_side_by_side() -> None:
    plan = make_plan([entry("a"), entry("b"), entry("unknown")], COSTS)
    assert estimate(plan, COSTS, 1) == (110.0, 110.0)
    assert estimate(plan, COSTS, 8) == (110.0, 60.0)
    assert estimate(make_plan([], COSTS), COSTS, 8) == (0.0, 0.0)


def test_a_plan_is_told_in_lines_and_as_json() -> None:
    plan = make_plan([entry("a"), entry("unknown"), entry("b", cached=True)], COSTS)
    assert render_plan(plan, COSTS, 2).splitlines() == [
        "a\tgfx942\t60.0",
        "unknown\tgfx942\t-",
        "# 1 of 3 entries cached already, 2 to compile: about 90.0 s of compiles, 60.0 s at 2 at a time"
        " (1 of them guessed: the mean of the others)",
    ]
    assert render_plan(make_plan([entry("a")], Costs({})), Costs({}), 2).endswith(
        "# 0 of 1 entry cached already, 1 to compile; how long they take is not known yet\n"
    )
    done = make_plan([entry("a", cached=True)], COSTS)
    assert render_plan(done, COSTS, 2) == "# 1 of 1 entry cached already, 0 to compile\n"
    assert json.loads(plan_to_json(plan, COSTS, 2)) == {
        "total": 3,
        "cached": 1,
        "to_compile": [
            {"blob": j.entry.name, "arch": "gfx942", "seconds": j.seconds, "path": str(j.entry.path)} for j in plan.jobs
        ],
        "compile_seconds": 90.0,
        "seconds": 60.0,
    }
    unknown = json.loads(plan_to_json(make_plan([entry("a")], Costs({})), Costs({}), 2))
    assert (unknown["compile_seconds"], unknown["seconds"]) == (None, None)


def test_an_outcome_is_told_with_its_failures() -> None:
    plan = make_plan([entry("a"), entry("b"), entry("c"), entry("d", cached=True)], COSTS)
    failed = (JobFailure(plan.jobs[0], "/logs/a", "no"), JobFailure(plan.jobs[1], "", "neither"))
    outcome = PlanOutcome(plan, 0, failed, 1.23456)
    assert outcome.left == 1
    assert render_outcome(outcome) == "4 entries: 0 compiled, 2 failed, 1 left to do, 1 cached already; 1.2 s"
    assert render_outcome(PlanOutcome(make_plan([entry("a")], COSTS), 1, (), 2.0)) == "1 entry: 1 compiled; 2.0 s"
    lines = render_failures(failed).splitlines()
    assert [line.rpartition(":")[2] for line in lines] == [" no", " /logs/a", " neither"]
    assert json.loads(outcome_to_json(outcome)) == {
        "total": 4,
        "cached": 1,
        "compiled": 0,
        "failed": [
            {"blob": "a", "arch": "gfx942", "log": "/logs/a", "error": "no"},
            {"blob": "b", "arch": "gfx942", "log": "", "error": "neither"},
        ],
        "left": 1,
        "seconds": 1.235,
        "interrupted": False,
    }


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two", "three", "four"])


def test_the_command_plans_what_is_not_cached_or_all_of_it(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    assert build(lazyck, bundle, "one")["compiled"] == 1
    cache = tmp_path / "lazyck-cache"
    (cache / ".costs" / "libtiny").write_text(
        "10.0 1048576 one x86_64\n9.0 1048576 two x86_64\n5.0 1048576 three x86_64\n4.0 2097152 four x86_64\nnonsense\n"
    )
    assert read_costs([cache]).peak_kib["libtiny", "four", "x86_64"] == 2 * GIB
    words = ("prebuild", "plan", "--manifest", bundle.file, "--all", "--json", "--jobs", "1")
    planned = json.loads(lazyck(*words, "--workers", "1,2", "--memory", "2G").stdout)
    assert (planned["total"], planned["cached"], planned["to_compile"], planned["guessed"]) == (4, 1, 3, 0)
    assert [p["seconds"]["likely"] for p in planned["plans"]] == [18, 9]
    assert [p["too_large"] for p in planned["plans"]] == [1, 1]
    assert [j["blob"] for j in planned["longest"]] == ["two", "three", "four"]
    whole = json.loads(lazyck(*words, "--workers", "2", "--from-scratch").stdout)
    assert (whole["cached"], whole["core_seconds"]["likely"], whole["plans"][0]["seconds"]["likely"]) == (0, 28, 14)
    assert whole["plans"][0]["memory_kib"] is None
    text = lazyck("prebuild", "plan", "--manifest", bundle.file, "--all", "--workers", "3", "--memory", "2G").stdout
    assert "3 to compile: 18.0 s of compiles" in text
    assert "1 needs more memory than that" in text
    bad = lazyck(*words, "--workers", "2,x")
    assert bad.returncode == 2
    assert "'2,x' is not a list of numbers" in bad.stderr
    assert bundle.compiled() == ["one"]
