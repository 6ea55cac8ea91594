"""Test how long a tier that failed is passed over: in proportion to the cost of the failure, and
longer while it goes on."""

import random
import time
from pathlib import Path

import pytest

from lazyck.remote.circuit_breaker import ALL, WRITES, CircuitBreaker
from lazyck.remote.tiers import Times

TIER = "http://cache:8080"


class Clock:
    """Tells a time that passes only when a test changes it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "time", clock)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)
    return clock


def passed_over(memory: CircuitBreaker, clock: Clock, what: str = ALL) -> float:
    """Return how many seconds the tier is passed over before it is asked again, to a tenth of a
    second."""
    began = clock.now
    while memory.why(TIER, what):
        clock.now += 0.1
    return round(clock.now - began, 1)


def test_a_tier_that_refuses_at_once_is_asked_again_in_seconds_and_less_often_while_it_goes_on(
    tmp_path: Path, clock: Clock
) -> None:
    found = []
    for _ in range(9):
        memory = CircuitBreaker(tmp_path, Times(10))  # a new process each time
        memory.note(TIER, ALL, "refuses", 0.001)
        found.append(passed_over(memory, clock))
    assert found == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.2)


def test_a_tier_that_stalls_costs_a_seventh_of_the_time_at_most(tmp_path: Path, clock: Clock) -> None:
    for took, seconds in ((2.0, 12.0), (8.0, 48.0), (12.0, 60.0)):
        clock.now += 1000
        memory = CircuitBreaker(tmp_path, Times(10))
        memory.note(TIER, ALL, "stalls", took)
        assert passed_over(memory, clock) == pytest.approx(seconds, abs=0.2)


def test_a_tier_that_was_well_for_as_long_as_it_was_passed_over_begins_anew(tmp_path: Path, clock: Clock) -> None:
    memory = CircuitBreaker(tmp_path, Times(10))
    for _ in range(3):
        memory.note(TIER, ALL, "refuses", 0.0)
        passed_over(memory, clock)
    clock.now += 4.1
    memory.note(TIER, ALL, "refuses", 0.0)
    assert passed_over(memory, clock) == pytest.approx(1, abs=0.2)


def test_processes_that_fail_at_the_same_time_count_once(tmp_path: Path, clock: Clock) -> None:
    ranks = [CircuitBreaker(tmp_path, Times(10)) for _ in range(8)]
    for each in ranks:
        each.note(TIER, ALL, "refuses", 0.0)
    assert passed_over(ranks[0], clock) == pytest.approx(1, abs=0.2)


def test_what_one_process_saw_all_of_the_cache_know(tmp_path: Path, clock: Clock) -> None:
    CircuitBreaker(tmp_path, Times(10)).note(TIER, WRITES, "is full", 0.0)
    other = CircuitBreaker(tmp_path, Times(10))
    assert other.why(TIER, WRITES) == "is full"
    assert other.why(TIER, ALL) == ""
    assert CircuitBreaker(None, Times(10)).why(TIER, WRITES) == ""


@pytest.mark.parametrize("line", ["", "x y z", "nan 5 down", "inf 5 down", "1e300 5 down", "1800000005 nan down"])
def test_a_damaged_memory_keeps_no_tier_away(line: str, tmp_path: Path, clock: Clock) -> None:
    memory = CircuitBreaker(tmp_path, Times(10))
    memory.note(TIER, ALL, "refuses", 0.0)
    (file,) = (tmp_path / ".remote").iterdir()
    file.write_text(f"{line}\n")
    other = CircuitBreaker(tmp_path, Times(10))
    assert other.why(TIER, ALL) == ""
    other.note(TIER, ALL, "refuses", 0.0)
    assert other.why(TIER, ALL) == "refuses"
