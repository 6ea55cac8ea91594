"""Define the worlds that each test run searches. Each takes a few seconds."""

from dataclasses import replace

from .mutations import ONE, OTHER, OTHERS, PAIR, SQUARE, with_faults
from .state import CONSTRUCT, FORK, RECORD, Faults, Task, World

WORLDS = {
    "two processes of two threads, one kill": with_faults(SQUARE, kills=1),
    "a compile that fails, and a kill": with_faults(SQUARE, kills=1, failures=1),
    "one permit, two blobs": World(((ONE, OTHER), (ONE, OTHER)), jobs=1),
    "two permits, memory for one": World(((ONE,), (OTHER,), (Task(blob=2),)), jobs=2, room=1),
    "a stopped process, one permit": with_faults(World(((ONE, OTHER), (ONE,)), jobs=1), stops=1),
    "a stopped process, memory for one": with_faults(replace(OTHERS, jobs=2, room=1), stops=1, kills=1),
    "a fork in a compile, and a kill": with_faults(World(((ONE, Task(FORK, 1)),), jobs=1), kills=1),
    "a fork in a compile beside another process": World(((ONE, Task(FORK)), (ONE,))),
    "a trim, and patience that ends": with_faults(PAIR, trims=1, hurries=1, kills=1),
    "the cache is emptied": with_faults(PAIR, empties=1, kills=1),
    "all faults but that one": World(PAIR.processes, faults=Faults(1, 1, 1, 0, 1, 1, 1)),
    "a constructor calls, with the loader's lock": with_faults(
        World(((ONE, Task(CONSTRUCT), Task(RECORD)), (ONE,))), kills=1, failures=1
    ),
    "a constructor calls another blob, one permit": World(((ONE, Task(CONSTRUCT, 1)), (OTHER,)), jobs=1),
    "a bundle to unpack, a kill, a stop, and patience that ends": with_faults(
        replace(OTHERS, jobs=2, has_archive=True), kills=1, stops=1, hurries=1
    ),
    "a bundle to unpack where locks do not work": with_faults(
        replace(OTHERS, jobs=2, has_archive=True, has_locks=False), kills=1
    ),
    "locks do not work": with_faults(replace(PAIR, has_locks=False), kills=1, failures=1),
}
