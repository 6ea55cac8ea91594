"""Define ways to break the protocol, each with a world that shows the fault and the property that
catches it."""

from dataclasses import dataclass, replace

from .properties import PROPERTIES, WAIT
from .search import Result, search
from .state import CALL, CONSTRUCT, FORK, RECORD, Faults, Task, World

ONE, OTHER = Task(), Task(CALL, 1)
PAIR = World(((ONE,), (ONE,)))  # two processes with one thread each
THREADS = World(((ONE, ONE),))
SQUARE = World(((ONE, ONE), (ONE, ONE)))
OTHERS = World(((ONE,), (OTHER,)), jobs=1)  # two processes that compile two blobs with one permit
FORKS = World(((ONE, Task(FORK)),))
LOADS = World(((ONE, Task(CONSTRUCT)),))  # a constructor calls the blob on which another thread works


@dataclass(frozen=True)
class Mutation:
    """Describes a line of the protocol that is left out or exchanged. Its name marks the place in
    `threads.py` or `sharing.py`."""

    name: str
    world: World
    broken: str  # the property that must find it

    def find(self, *properties: str) -> Result:
        """Search the broken world."""
        return search(replace(self.world, mutation=self.name), properties or (*PROPERTIES, WAIT))


def with_faults(world: World, **counts: int) -> World:
    """Return the world with faults."""
    return replace(world, faults=Faults(**counts))


MUTATIONS = (
    # publishing
    Mutation("publish by writing", PAIR, "whole"),
    Mutation("publish before the sync", with_faults(PAIR, power_cuts=1), "whole"),
    Mutation("load by path", with_faults(PAIR, trims=1), "told"),
    Mutation("bundle replaced unseen", replace(with_faults(OTHERS, hurries=1), has_archive=True, jobs=2), "sources"),
    # the blob's lock
    Mutation("no second look", PAIR, "cause"),
    Mutation("lock freed before the publish", PAIR, "cause"),
    Mutation("lock file unlinked", with_faults(SQUARE, failures=1), "one holder"),
    Mutation("lock kept after the second look", PAIR, "loader"),
    Mutation("no patience for the blob's lock", with_faults(PAIR, stops=1), WAIT),
    # threads of a process
    Mutation("busy not looked at", THREADS, "one thread"),
    Mutation("waiters try again", with_faults(THREADS, failures=1), "one thread"),
    Mutation("notify forgotten", THREADS, WAIT),
    Mutation("busy kept after a failure", with_faults(THREADS, failures=1), WAIT),
    Mutation("job kept after a failure", with_faults(World(((ONE, OTHER),), jobs=1), failures=1), WAIT),
    # permits
    Mutation("permit freed before the compile", OTHERS, "jobs"),
    Mutation("no admission", replace(OTHERS, jobs=2, room=1), "jobs"),
    Mutation("admission kept in a sleep", OTHERS, "sleep"),
    Mutation("no patience for permits", with_faults(OTHERS, stops=1), WAIT),
    Mutation("no patience for admission", with_faults(OTHERS, stops=1), WAIT),
    # fork
    Mutation("child keeps the locks", with_faults(FORKS, kills=1), "fork"),
    Mutation("child waits for its parent's thread", FORKS, WAIT),
    Mutation("child keeps its parent's jobs", World(((ONE, Task(FORK, 1)),), jobs=1), WAIT),
    # the loader's lock
    Mutation("loader asked while busy", LOADS, "loader"),
    Mutation("loader asked with the mutex", World(((Task(CONSTRUCT), Task(RECORD)),)), "loader"),
    Mutation("loader asked in a static guard", FORKS, "loader"),
)
BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}
# These mutations break a rule. A search that ignores the rule shows that the breach hangs a call.
HANG = (
    "child keeps the locks",
    "loader asked while busy",
    "loader asked with the mutex",
    "loader asked in a static guard",
)
