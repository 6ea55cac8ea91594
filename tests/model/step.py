"""What a step of the protocol is, and what several have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .state import CONSTRUCT, State, World

Next = Iterator[tuple[str, State]]
Run = Callable[[World, State, int], Next]


@dataclass(frozen=True)
class Step:
    """What a thread does in one go."""

    run: Run
    place: str  # the file of lazyck/runtime/src and its function of which it is a part; "": the program's own
    seen_as: str = ""  # the call by which tests/faults/test_order.py sees it
    asks_loader: bool = False


STEPS: dict[str, Step] = {}


def step(place: str, seen_as: str = "", *, asks_loader: bool = False) -> Callable[[Run], Run]:
    """Make a function the step of its name."""

    def register(run: Run) -> Run:
        STEPS[run.__name__] = Step(run, place, seen_as, asks_loader)
        return run

    return register


def leave_call(w: World, t: int) -> str:
    """What comes after the call."""
    return "leave_loader" if w.task[t].kind == CONSTRUCT else "done"


def blob_lock(w: World, t: int) -> str:
    """The name of the lock of the thread's blob."""
    return f"lock {w.task[t].blob}"


def is_whole(w: World, s: State, t: int) -> bool:
    """Whether look_up_entry would find the blob's entry ready: one that is torn is seen by its trailer."""
    return s.entries[w.task[t].blob] in ("whole", "unsynced")
