"""Search all states breadth-first, and find the shortest trace to a forbidden one."""

from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from .faults import faults, protocol
from .properties import PROPERTIES, WAIT, is_settled
from .state import State, World, first_state


@dataclass(frozen=True)
class Trace:
    """Describes the shortest way to a state that breaks a property."""

    broken: str  # the name of the property
    what: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        """Format the trace as numbered lines below a line that says what is wrong."""
        lines = [f"{number:3}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([f"{self.broken}: {self.what}", *lines])


@dataclass(frozen=True)
class Result:
    """Describes how much was searched, and the first fault that was found."""

    states: int
    transitions: int
    fault: Trace | None


class TooMany(Exception):
    """Says that there are more states than the search may visit."""


class _Search:
    """Holds the states found so far. Each has the state and the words by which it was first
    reached."""

    def __init__(self, world: World) -> None:
        self.world = world
        first = first_state(world)
        self.numbers: dict[State, int] = {first: 0}
        self.states = [first]
        self.parents = array("l", [-1])
        self.words = [""]
        self.sources = array("l")  # transitions of the protocol, without faults
        self.targets = array("l")
        self.transitions = 0

    def reach(self, words: str, state: State, parent: int) -> int:
        """Add the state if it is new, and return its number."""
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.parents.append(parent)
            self.words.append(words)
        self.transitions += 1
        return number

    def expand(self, number: int) -> None:
        """Reach all states that may come next."""
        state = self.states[number]
        for words, then in protocol(self.world, state):
            target = self.reach(words, then, number)
            self.sources.append(number)
            self.targets.append(target)
        for words, then in faults(self.world, state):
            self.reach(words, then, number)

    def trace(self, number: int, broken: str, what: str, more: tuple[str, ...] = ()) -> Trace:
        """Return the trace to a state, followed by the steps `more`."""
        steps = []
        while self.parents[number] >= 0:
            steps.append(self.words[number])
            number = self.parents[number]
        return Trace(broken, what, (*reversed(steps), *more))

    def first_endless_wait(self) -> int | None:
        """Return the first state from which the protocol's own steps can never give all callers
        what they called for, or None. Faults do not count, because no wait may need one to end."""
        before: list[list[int]] = [[] for _ in self.states]
        for source, target in zip(self.sources, self.targets, strict=True):
            before[target].append(source)
        good = bytearray(len(self.states))
        to_do = [n for n, state in enumerate(self.states) if is_settled(self.world, state)]
        for number in to_do:
            good[number] = 1
        while to_do:
            for number in before[to_do.pop()]:
                if not good[number]:
                    good[number] = 1
                    to_do.append(number)
        bad = good.find(0)
        return None if bad < 0 else bad


def dead_end(world: World, state: State) -> tuple[tuple[str, ...], State]:
    """Return the shortest way from a state that cannot end well to a state without a next step. If
    there is none, return the way to the last state that can be reached."""
    ways: dict[State, tuple[str, ...]] = {state: ()}
    to_do = deque([state])
    while to_do:
        state = to_do.popleft()
        following = list(protocol(world, state))
        if not following:
            break
        for words, then in following:
            if then not in ways:
                ways[then] = (*ways[state], words)
                to_do.append(then)
    return ways[state], state


def search(world: World, properties: Iterable[str] = (*PROPERTIES, WAIT), most_states: int = 5_000_000) -> Result:
    """Visit every state that the world can reach. Stop at the first that breaks one of
    `properties`. Raises `TooMany` beyond `most_states`."""
    chosen = list(properties)
    invariants = [(name, PROPERTIES[name]) for name in chosen if name != WAIT]
    found = _Search(world)
    number = 0
    while number < len(found.states):
        state = found.states[number]
        for name, check in invariants:
            if what := check(world, state):
                return Result(len(found.states), found.transitions, found.trace(number, name, what))
        if len(found.states) > most_states:
            raise TooMany(f"more than {most_states} states")
        found.expand(number)
        number += 1
    fault = None
    if WAIT in chosen and (bad := found.first_endless_wait()) is not None:
        more, end = dead_end(world, found.states[bad])
        fault = found.trace(bad, WAIT, waiting(world, end), more)
    return Result(len(found.states), found.transitions, fault)


def waiting(world: World, state: State) -> str:
    """Say which threads wait in a state, and at which step."""
    steps = [
        f"{world.name(t)} at {one.at}"
        for t, one in enumerate(state.threads)
        if one.at not in ("done", "dead", "unborn") and state.processes[world.process_of[t]].life == "live"
    ]
    return "for ever: " + "; ".join(steps)
