"""Tests that the steps of the real runtime in a compile come in the order of the model's steps."""

from pathlib import Path

import pytest
from model.faults import protocol
from model.state import Task, World, first_state
from model.steps import STEPS
from support.faultlib import Patient

from lazyck import abi

CALLS = "read,open,write,flock,spawn,fsync,rename,dlopen"


def calls_of_the_model() -> list[str]:
    """Return the calls of a single thread that goes through the model, as far as they can be seen
    from outside."""
    world = World(((Task(),),), jobs=1)
    state, calls = first_state(world), []
    while following := list(protocol(world, state)):
        calls.append(STEPS[state.threads[0].at].seen_as)
        ((_, state),) = following
    return [call for call in calls if call]


def calls_of(lines: list[str]) -> list[str]:
    """Translate the runtime's calls for the blob `add` into the words of the model."""
    calls: list[str] = []
    held: set[str] = set()
    for line in lines:
        call, _, path = line.partition(" ")
        name = Path(path).name
        if "/.locks/add-" in path:
            name = "lock"
        elif "/.slots/" in path:
            name = name.split("-")[0]
        elif name.startswith("add-") and name.endswith(".so"):
            name = "entry"
        if call == "flock" and name in ("lock", "admission", "slot"):
            calls.append(f"{'unlock' if name in held else 'flock'} {name}")
            held ^= {name}
        elif (call, name) in (("open", "lock"), ("write", "slot")):
            calls.append(f"{call} {name}")
        elif call == "read" and name == "entry" and "rename" not in calls:  # afterwards it reads its own entry
            calls.append("look")
        elif call in ("spawn", "dlopen") or (call == "rename" and name == "entry"):
            calls.append(call)
        elif call == "fsync" and "/.staging/add-" in path:
            calls.append("fsync")
    return calls


def calls_of_one_compile(patient: Patient) -> list[str]:
    """Return the calls of a program that compiles a blob alone, up to the blob's load.

    A compile starts several processes, and writes each of them into its slot. All this counts as
    one call.
    """
    patient.expect_recovery()  # this creates all directories
    for entry in patient.entries():
        entry.unlink()
    calls = calls_of(patient.logged(CALLS))
    first = calls.index("spawn")
    end = first + next(n for n, call in enumerate(calls[first:]) if call not in ("spawn", "write slot"))
    return [*calls[: first + 1], *calls[end : calls.index("dlopen", end) + 1]]


@pytest.fixture
def calls(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setitem(patient.lib.env, abi.ENV_JOBS, "1")
    return calls_of_one_compile(patient)


def test_a_compile_makes_its_calls_in_the_order_of_the_models_steps(calls: list[str]) -> None:
    *before, load = calls
    assert [*(call for call in before if call != "dlopen"), load] == calls_of_the_model()


def test_the_loader_is_asked_for_nothing_while_a_lock_is_held(calls: list[str]) -> None:
    held: set[str] = set()
    for call in calls:
        what, _, name = call.partition(" ")
        held ^= {name} if what in ("flock", "unlock") else set()
        assert what != "dlopen" or not held, f"dlopen with {sorted(held)} held: {calls}"
