"""Model a compile service of the Remote Execution API: workers with places, and a store of contents
(CAS)."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import simpy
from fleet_link import Link
from fleet_units import Unit


@dataclass(frozen=True)
class ServiceParameters:
    """Describes a service. `inputs` is the size of a library's bundle, in bytes; `up_at` is the
    second from which on it answers."""

    workers: int
    places: int = 4
    inputs: float = 9.6e6
    link: float = 1.25e9
    up_at: float = 0.0


@dataclass
class Service:
    """Executes compiles, in the order in which they were asked for. An action that is executed
    already, or was, is not executed again."""

    env: simpy.Environment
    p: ServiceParameters
    host_link: float
    round_trip: float
    count: Callable[[Unit, int], None]  # is told of each compile
    bytes: dict[int, float] = field(default_factory=dict)
    longest_queue: float = 0.0  # seconds

    def __post_init__(self) -> None:
        self._up = Link(self.env, self.p.link, self.host_link, self.bytes)
        self._down = Link(self.env, self.p.link, self.host_link, self.bytes)
        self._free = simpy.Store(self.env)
        self._free.items += [worker for _ in range(self.p.places) for worker in range(self.p.workers)]
        self._actions: dict[str, simpy.Event] = {}
        self._have_inputs: dict[tuple[int, str], simpy.Event] = {}  # worker (-1: the CAS), library build

    @property
    def answers(self) -> bool:
        """Return whether the service is up."""
        return bool(self.env.now >= self.p.up_at)

    def execute(self, unit: Unit, seconds: float, weight: int) -> Generator[simpy.Event, Any, None]:
        """Have a unit compiled, and download it."""
        yield self.env.timeout(3 * self.round_trip)  # the action's result, missing contents, execution
        if unit.key not in self._actions:
            self._actions[unit.key] = self.env.event()
            self.env.process(self._run(unit, seconds))
        if not self._actions[unit.key].processed:
            yield self._actions[unit.key]
        _, done = self._down.transfer(unit.size, weight)
        yield done

    def _run(self, unit: Unit, seconds: float) -> Generator[simpy.Event, Any, None]:
        yield from self._bring_inputs(-1, unit.digest)
        begun = self.env.now
        worker = yield self._free.get()
        self.longest_queue = max(self.longest_queue, self.env.now - begun)
        yield from self._bring_inputs(worker, unit.digest)
        yield self.env.timeout(seconds)
        _, done = self._up.transfer(unit.size)
        yield done
        self._free.put(worker)
        self.count(unit, 1)
        self._actions[unit.key].succeed()

    def _bring_inputs(self, to: int, build: str) -> Generator[simpy.Event, Any, None]:
        """Upload a build's bundle to the CAS, or have a worker download it, unless it is there."""
        if (to, build) not in self._have_inputs:
            link = self._up if to < 0 else self._down
            self._have_inputs[to, build] = link.transfer(self.p.inputs)[1]
        if not self._have_inputs[to, build].processed:
            yield self._have_inputs[to, build]
