"""Small changes of a state, of which the steps consist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from .state import NOBODY, Lock, Process, State, Thread, World

T = TypeVar("T")


def put(row: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """`row` with another value at one place."""
    return (*row[:at], value, *row[at + 1 :])


def move(state: State, thread: int, at: str, **changes: Any) -> State:
    """The thread goes to step `at`. What it will not use any more is forgotten: it would tell equal states apart."""
    now = state.threads[thread]._replace(at=at, **changes)
    if at in ("settle", "done"):
        now = Thread(at, seen=NOBODY if at == "done" else now.seen, has=now.has)
    return state._replace(threads=put(state.threads, thread, now))


def alter(state: State, process: int, **changes: Any) -> State:
    """What the threads of a process share changes."""
    now = state.processes[process]._replace(**changes)
    return state._replace(processes=put(state.processes, process, now))


def process_of(world: World, state: State, thread: int) -> Process:
    """The process of a thread."""
    return state.processes[world.process_of[thread]]


def holder(state: State, name: str, inode: int) -> Lock | None:
    """Who holds the lock of a file."""
    return next((lock for lock in state.locks if lock.name == name and lock.inode == inode), None)


def take(state: State, thread: int, name: str, inode: int) -> State:
    """The thread's flock succeeds."""
    return state._replace(locks=tuple(sorted((*state.locks, Lock(name, inode, thread)))))


def drop(state: State, thread: int, *names: str) -> State:
    """The thread unlocks what it holds of these names. A child that has the descriptor loses the lock, too."""
    kept = tuple(lock for lock in state.locks if lock.owner != thread or lock.name not in names)
    return state._replace(locks=kept)


def reserve(state: State, thread: int, slot: str) -> State:
    """The thread writes into its slot's file what memory it wants."""
    locks = (
        lock._replace(is_reserved=True) if (lock.owner, lock.name) == (thread, slot) else lock for lock in state.locks
    )
    return state._replace(locks=tuple(locks))


def slots(state: State) -> Iterator[Lock]:
    """The slots that are taken, in the cache as it is now."""
    return (lock for lock in state.locks if lock.name.startswith("slot") and lock.inode == state.epoch)


def is_stopped(world: World, state: State, lock: Lock | None) -> bool:
    """Whether a lock's holder will not go on."""
    return lock is not None and process_of(world, state, lock.owner).life == "stopped"


def count_compile(state: State, blob: int, by: int) -> State:
    """One more compile (1), or one more cause for one (-1)."""
    return state._replace(compiles=put(state.compiles, blob, state.compiles[blob] + by))


def may_enter_loader(world: World, state: State, thread: int) -> bool:
    """Whether the loader's lock is free, or the thread's own."""
    return process_of(world, state, thread).loader in (NOBODY, thread)
