"""Define the model's values: the bounds of a search (`World`) and one moment in it (`State`)."""

from dataclasses import dataclass, field
from typing import NamedTuple

NOBODY = -1

# A thread of a program does one of these once.
CALL = "call"  # calls a lazy function
CONSTRUCT = "construct"  # calls a lazy function in a constructor that its own dlopen runs
FORK = "fork"  # forks; then the thread and its copy in the child call a lazy function
RECORD = "record"  # calls lazyck_record
CHILD = "child"  # the child's copy, before the fork


class Task(NamedTuple):
    """Describes what a thread does, and with which blob."""

    kind: str = CALL
    blob: int = 0


class Faults(NamedTuple):
    """Says how often each fault may happen in a run."""

    kills: int = 0
    stops: int = 0  # SIGSTOP, for ever
    trims: int = 0  # an entry is removed
    empties: int = 0  # the cache is removed with its locks
    failures: int = 0  # the compiler fails
    hurries: int = 0  # patience ends though the holder lives and works
    power_cuts: int = 0


NO_FAULTS = Faults()


@dataclass(frozen=True)
class World:
    """Describes the bounds of a search, and how the protocol is broken in it (`mutations.py`)."""

    processes: tuple[tuple[Task, ...], ...]
    jobs: int = 2
    room: int = 2  # number of compiles for which there is memory
    faults: Faults = NO_FAULTS
    has_locks: bool = True  # flock(2) works
    has_archive: bool = False  # the bundle was deployed as one file, which the first compile unpacks
    mutation: str = ""
    task: tuple[Task, ...] = field(init=False)
    process_of: tuple[int, ...] = field(init=False)
    blobs: int = field(init=False)

    def __post_init__(self) -> None:
        """Number the threads of all processes. Those of children come last."""
        tasks = [(p, task) for p, threads in enumerate(self.processes) for task in threads]
        forks = [task for _, task in tasks if task.kind == FORK]
        tasks += [(len(self.processes) + i, Task(CHILD, task.blob)) for i, task in enumerate(forks)]
        object.__setattr__(self, "task", tuple(task for _, task in tasks))
        object.__setattr__(self, "process_of", tuple(p for p, _ in tasks))
        object.__setattr__(self, "blobs", 1 + max(task.blob for _, task in tasks))

    def name(self, thread: int) -> str:
        """Return a thread's name in traces."""
        process = self.process_of[thread]
        number = thread - self.process_of.index(process)
        return f"{'child' if process >= len(self.processes) else f'process {process}'}, thread {number}"


class Thread(NamedTuple):
    """Describes a thread and what lies on its stack."""

    at: str  # the step that it takes next
    seen: int = NOBODY  # number of attempts at its blob that had ended when it came
    inode: int = 0  # the file that it has open, of those that have had the lock's name
    permit: str = ""  # the permit that it holds
    fits: bool = False  # there was memory for another compile when it looked at the permits
    epoch: int = 0  # number of times the cache had been emptied when it opened the lock, and later when it staged
    has: str = ""  # "entry" or "failure"; "torn" or "gone" would be a fault
    is_unlocked: bool = False  # it works without a lock that others see: its patience ended, or the cache was emptied
    is_excused: bool = False  # it does not count as one of the jobs, because its patience ended


class Process(NamedTuple):
    """Describes what the threads of a process share. `busy`, `attempts` and `results` are by
    blob."""

    life: str  # "live", "stopped", "killed", "unborn"
    busy: tuple[int, ...]  # BlobState::owner
    attempts: tuple[int, ...]
    results: tuple[str, ...]  # "entry" or "failure" from the last attempt
    jobs: int  # number of permits that are free in ProcessPermits
    mutex: int = NOBODY  # States::mutex
    loader: int = NOBODY  # the dynamic loader's lock, which is recursive
    guard: int = NOBODY  # lock of a static variable, for one mutation; DONE when the variable is initialized


DONE = -2


class Lock(NamedTuple):
    """Describes a file that is locked by flock(2)."""

    name: str
    inode: int
    owner: int  # the thread that locked it
    is_reserved: bool = False  # its file says how much memory the compile has reserved
    is_kept: bool = False  # a child has its descriptor


class State(NamedTuple):
    """Describes one moment. `entries`, `inodes` and `compiles` are by blob."""

    threads: tuple[Thread, ...]
    processes: tuple[Process, ...]
    entries: tuple[str, ...]  # "whole", "unsynced", "torn", or an empty string if there is no entry
    inodes: tuple[int, ...]  # number of the file that has the name of the blob's lock
    compiles: tuple[int, ...]  # number of compiles begun, less the causes for another; the first needs no cause
    locks: tuple[Lock, ...]
    epoch: int  # number of times the cache was emptied
    is_unpacked: bool  # the bundle's sources are in the cache
    left: Faults  # faults that may still happen


def first_state(world: World) -> State:
    """Return the state in which nobody has begun and the cache is empty."""
    begins = {CALL: "start", CONSTRUCT: "enter_loader", FORK: "fork", RECORD: "ask_loader", CHILD: "unborn"}
    nothing = (0,) * world.blobs
    fresh = Process("live", (NOBODY,) * world.blobs, nothing, ("",) * world.blobs, world.jobs)
    children = sum(task.kind == CHILD for task in world.task)
    return State(
        threads=tuple(Thread(begins[task.kind]) for task in world.task),
        processes=(fresh,) * len(world.processes) + (fresh._replace(life="unborn"),) * children,
        entries=("",) * world.blobs,
        inodes=nothing,
        compiles=nothing,
        locks=(),
        epoch=0,
        is_unpacked=False,
        left=world.faults,
    )
