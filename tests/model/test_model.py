"""Test that the protocol's promises hold in every state of small worlds, and that each way to break
it is found."""

import subprocess
import sys

import pytest
from support import REPOSITORY

from .mutations import BY_NAME, HANG, MUTATIONS, Mutation
from .properties import WAIT
from .search import search
from .state import World
from .steps import STEPS
from .worlds import WORLDS


@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_every_promise_holds_in_every_state(world: World) -> None:
    result = search(world)
    assert result.fault is None, str(result.fault)
    assert result.states > 300  # the search went somewhere


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_broken_protocol_is_found_with_the_way_to_the_fault(mutation: Mutation) -> None:
    fault = mutation.find().fault
    assert fault is not None
    assert fault.broken == mutation.broken, str(fault)
    assert fault.steps
    assert str(fault).splitlines()[1] == f"  1. {fault.steps[0]}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_what_finds_the_broken_protocol_has_nothing_against_the_sound_one(mutation: Mutation) -> None:
    assert search(mutation.world).fault is None


@pytest.mark.parametrize("name", HANG)
def test_a_breach_of_a_rule_about_locks_hangs_a_call(name: str) -> None:
    fault = BY_NAME[name].find(WAIT).fault
    assert fault is not None
    assert fault.what.startswith("for ever: "), str(fault)


def test_a_loader_that_is_asked_while_busy_waits_for_who_waits_for_it() -> None:
    """This is defect 8 of the loader's lock, as a trace shows it."""
    fault = BY_NAME["loader asked while busy"].find(WAIT).fault
    assert fault is not None
    assert "thread 0 at ask_while_busy; process 0, thread 1 at wait" in fault.what, str(fault)
    assert "process 0, thread 1: enters dlopen, whose constructor calls" in fault.steps


def test_every_mutation_changes_a_step() -> None:
    text = "".join((REPOSITORY / "tests/model" / name).read_text() for name in ("threads.py", "sharing.py"))
    assert [mutation.name for mutation in MUTATIONS if f'"{mutation.name}"' not in text] == []


def test_every_step_stands_for_code_that_is_there() -> None:
    for name, step in STEPS.items():
        file, _, function = step.place.partition(" ")
        text = (REPOSITORY / "lazyck/runtime/src" / file).read_text() if file else "("
        assert f"{function}(" in text, (name, step.place)


def test_the_command_says_how_much_it_searched_and_ends_with_1_at_a_fault() -> None:
    words = [sys.executable, "-m", "tests.model", "--threads", "1"]
    good = subprocess.run([*words, "--kills", "1"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good
    assert "states" in good.stdout and "every property holds" in good.stdout
    few = subprocess.run([*words, "--most", "10"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (few.returncode, few.stdout) == (2, "more than 10 states\n")
    shown = subprocess.run([*words, "--mutations"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert shown.stdout.count("\n-- ") + 1 == len(MUTATIONS)
    assert "NOT FOUND" not in shown.stdout
