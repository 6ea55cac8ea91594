"""Define small changes of a state, of which the steps consist."""

from collections.abc import Iterator
from typing import Any, TypeVar

from .state import NOBODY, Lock, Process, State, Thread, World

T = TypeVar("T")


def put(row: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """Return `row` with another value at one place."""
    return (*row[:at], value, *row[at + 1 :])


def move(state: State, thread: int, at: str, **changes: Any) -> State:
    """Move the thread to step `at`. Its values that are not used any more are reset, because they
    would make equal states look different."""
    now = state.threads[thread]._replace(at=at, **changes)
    if at in ("settle", "done"):
        now = Thread(at, seen=NOBODY if at == "done" else now.seen, has=now.has)
    return state._replace(threads=put(state.threads, thread, now))


def alter(state: State, process: int, **changes: Any) -> State:
    """Change what the threads of a process share."""
    now = state.processes[process]._replace(**changes)
    return state._replace(processes=put(state.processes, process, now))


def process_of(world: World, state: State, thread: int) -> Process:
    """Return the process of a thread."""
    return state.processes[world.process_of[thread]]


def holder(state: State, name: str, inode: int) -> Lock | None:
    """Return the lock of a file, or None if nobody holds it."""
    return next((lock for lock in state.locks if lock.name == name and lock.inode == inode), None)


def take(state: State, thread: int, name: str, inode: int) -> State:
    """Lock a file for the thread, whose flock succeeds."""
    return state._replace(locks=tuple(sorted((*state.locks, Lock(name, inode, thread)))))


def drop(state: State, thread: int, *names: str) -> State:
    """Release the thread's locks of these names. A child that has the descriptor loses the lock,
    too."""
    kept = tuple(lock for lock in state.locks if lock.owner != thread or lock.name not in names)
    return state._replace(locks=kept)


def reserve(state: State, thread: int, permit: str) -> State:
    """Mark the thread's permit as reserved: the thread writes into its file how much memory it
    wants."""
    locks = (
        lock._replace(is_reserved=True) if (lock.owner, lock.name) == (thread, permit) else lock for lock in state.locks
    )
    return state._replace(locks=tuple(locks))


def permits(state: State) -> Iterator[Lock]:
    """Yield the permits that are taken in the present cache."""
    return (lock for lock in state.locks if lock.name.startswith("permit") and lock.inode == state.epoch)


def is_stopped(world: World, state: State, lock: Lock | None) -> bool:
    """Return whether a lock's holder is stopped."""
    return lock is not None and process_of(world, state, lock.owner).life == "stopped"


def count_compile(state: State, blob: int, by: int) -> State:
    """Count one more compile (`by` is 1), or one more cause for a compile (`by` is -1)."""
    return state._replace(compiles=put(state.compiles, blob, state.compiles[blob] + by))


def may_enter_loader(world: World, state: State, thread: int) -> bool:
    """Return whether the loader's lock is free or held by this thread."""
    return process_of(world, state, thread).loader in (NOBODY, thread)
