"""Define a step of the protocol, and what several steps have in common."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .state import CONSTRUCT, State, World

Next = Iterator[tuple[str, State]]
Run = Callable[[World, State, int], Next]


@dataclass(frozen=True)
class Step:
    """Describes what a thread does in one go."""

    run: Run
    place: str  # the step's file in lazyck/runtime/src and its function; empty for the program's own code
    seen_as: str = ""  # the call by which tests/faults/test_order.py sees the step
    asks_loader: bool = False


STEPS: dict[str, Step] = {}


def step(place: str, seen_as: str = "", *, asks_loader: bool = False) -> Callable[[Run], Run]:
    """Register a function as the step of its name."""

    def register(run: Run) -> Run:
        STEPS[run.__name__] = Step(run, place, seen_as, asks_loader)
        return run

    return register


def leave_call(w: World, t: int) -> str:
    """Return the step that follows the call."""
    return "leave_loader" if w.task[t].kind == CONSTRUCT else "done"


def blob_lock(w: World, t: int) -> str:
    """Return the name of the lock of the thread's blob."""
    return f"lock {w.task[t].blob}"


def is_whole(w: World, s: State, t: int) -> bool:
    """Return whether look_up_entry would accept the blob's entry. It recognizes a torn entry by its
    trailer."""
    return s.entries[w.task[t].blob] in ("whole", "unsynced")
