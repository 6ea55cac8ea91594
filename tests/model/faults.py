"""Define what goes wrong outside of the protocol. Each fault happens at most as often as
`State.left` allows, and no promise may depend on one."""

from collections.abc import Iterator

from .change import count_compile, holder, is_stopped, move, permits, put, reserve
from .state import State, Thread, World, first_state
from .step import Next, blob_lock
from .steps import STEPS

# At these steps a compile has been counted, but has not yet led to an entry.
UNPUBLISHED = ("run_compiler", "seal", "publish", "fill")


def faults(w: World, s: State) -> Iterator[tuple[str, State]]:
    """Yield each fault that may come next, with a few words."""
    left = s.left
    for p, process in enumerate(s.processes):
        is_going_on = process.life == "live" and any(
            one.at not in ("done", "dead") for i, one in enumerate(s.threads) if w.process_of[i] == p
        )
        if is_going_on and left.kills:
            yield f"process {p}: is killed", kill(w, spend(s, "kills"), p)
        if is_going_on and left.stops:
            stopped = put(s.processes, p, process._replace(life="stopped"))
            yield f"process {p}: is stopped for ever", spend(s, "stops")._replace(processes=stopped)
    if left.trims:
        for blob in range(w.blobs):
            if s.entries[blob]:
                trimmed = s._replace(entries=put(s.entries, blob, ""))
                yield f"blob {blob}: its entry is trimmed", count_compile(spend(trimmed, "trims"), blob, -1)
    if left.empties:
        yield "the cache is emptied", empty(w, spend(s, "empties"))
    if left.power_cuts:
        yield "the power is cut", cut_power(w, spend(s, "power_cuts"))
    for t, one in enumerate(s.threads):
        if s.processes[w.process_of[t]].life != "live":
            continue
        if one.at == "run_compiler" and left.failures:
            failed = move(spend(s, "failures"), t, "free_permit", has="failure")
            yield f"{w.name(t)}: its compiler says no", excuse(w, failed, t)
        if left.hurries:
            for words, then in lose_patience(w, s, t):
                yield f"{w.name(t)}: {words}, though the holder works", spend(then, "hurries")


def spend(s: State, fault: str) -> State:
    """Let the fault happen once less in future."""
    return s._replace(left=s.left._replace(**{fault: getattr(s.left, fault) - 1}))


def excuse(w: World, s: State, t: int) -> State:
    """Record that the thread's compile led to nothing, which is a cause for another one."""
    return s if s.threads[t].is_unlocked else count_compile(s, w.task[t].blob, -1)


def kill(w: World, s: State, process: int) -> State:
    """End a process. The kernel frees its locks unless another process has their descriptors."""
    for t, one in enumerate(s.threads):
        if w.process_of[t] == process:
            s = excuse(w, s, t) if one.at in UNPUBLISHED else s
            s = s._replace(threads=put(s.threads, t, Thread("dead")))
    locks = tuple(lock for lock in s.locks if w.process_of[lock.owner] != process or lock.is_kept)
    killed = first_state(w).processes[0]._replace(life="killed")
    return s._replace(locks=locks, processes=put(s.processes, process, killed))


def empty(w: World, s: State) -> State:
    """Remove the cache with its lock files. A thread that has a lock file open keeps a lock that
    nobody else sees."""
    for t, one in enumerate(s.threads):
        if one.at in UNPUBLISHED:
            s = move(excuse(w, s, t), t, one.at, is_unlocked=True)
    for blob in range(w.blobs):
        s = count_compile(s, blob, -1) if s.entries[blob] else s
    inodes = tuple(inode + 1 for inode in s.inodes)
    return s._replace(entries=("",) * w.blobs, inodes=inodes, epoch=s.epoch + 1, is_unpacked=False)


def cut_power(w: World, s: State) -> State:
    """End all processes, and tear what was not synced."""
    for process in range(len(s.processes)):
        s = kill(w, s, process)
    return s._replace(entries=tuple("torn" if entry == "unsynced" else entry for entry in s.entries), locks=())


def lose_patience(w: World, s: State, t: int) -> Next:
    """End a thread's patience with the thread that it waits for."""
    one = s.threads[t]
    if not w.has_locks:
        return
    if one.at == "try_lock":
        found = holder(s, blob_lock(w, t), one.inode)
        if found is not None and not is_stopped(w, s, found):
            yield "loses patience with the blob's lock", move(s, t, "look_again", is_unlocked=True)
    elif one.at == "admit":
        found = holder(s, "admission", s.epoch)
        if found is not None and not is_stopped(w, s, found):
            yield "loses patience with admission", move(s, t, "scan", is_excused=True)
    elif one.at == "lock_bundle":
        found = holder(s, "bundle", s.epoch)
        if found is not None and not is_stopped(w, s, found):
            yield "loses patience with the bundle", move(s, t, "look_at_bundle")
    elif one.at == "scan":
        if len(list(permits(s))) >= w.jobs:
            yield "loses patience with the permits", move(s, t, "leave", is_excused=True)
    elif one.at == "fit" and not one.fits:
        yield "loses patience with memory", move(reserve(s, t, one.permit), t, "leave", is_excused=True)


def protocol(w: World, s: State) -> Iterator[tuple[str, State]]:
    """Yield each step of a thread that may come next, with a few words."""
    for t, one in enumerate(s.threads):
        if one.at in ("done", "dead", "unborn") or s.processes[w.process_of[t]].life != "live":
            continue
        for words, then in STEPS[one.at].run(w, s, t):
            yield f"{w.name(t)}: {words}", then
