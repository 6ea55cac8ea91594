"""Define what must hold in every state that can be reached. `search.py` looks for waits without
end."""

from collections.abc import Callable

from .change import process_of
from .state import State, World
from .steps import STEPS

Property = Callable[[World, State], str]  # returns what is wrong, or an empty string

# A thread is at one of these steps between the claim of a blob and its settling.
WORK = frozenset(STEPS) - {
    "start", "ask_in_guard", "claim", "wait", "notify", "load", "enter_loader", "leave_loader",
    "ask_loader", "ask_with_mutex", "record", "fork",
}  # fmt: skip


def entries_are_whole(w: World, s: State) -> str:
    """Check that an entry's path never holds a torn entry, not even after a power cut."""
    return next((f"the entry of blob {b} is torn" for b, entry in enumerate(s.entries) if entry == "torn"), "")


def who_was_told_has_it(w: World, s: State) -> str:
    """Check that a thread that loads has a whole entry, whatever happens to the cache."""
    bad = [t for t, one in enumerate(s.threads) if one.has in ("torn", "gone")]
    return f"{w.name(bad[0])} loads an entry that is {s.threads[bad[0]].has}" if bad else ""


def compiles_have_a_cause(w: World, s: State) -> str:
    """Check that a blob is compiled once, and once more for each compile that led to nothing and
    each entry that was removed."""
    if not w.has_locks:
        return ""
    bad = [b for b, count in enumerate(s.compiles) if count > 1]
    return f"blob {bad[0]} is compiled again without cause" if bad else ""


def one_holder(w: World, s: State) -> str:
    """Check that no two files of one name are locked, unless somebody emptied the cache."""
    names = [lock.name for lock in s.locks]
    bad = [name for name in names if names.count(name) > 1 + s.epoch]
    return f"{bad[0]} is held twice" if bad else ""


def one_thread_works(w: World, s: State) -> str:
    """Check that in each process only one thread works on a blob, and none that waited for
    another."""
    at_work: set[tuple[int, int]] = set()
    for t, one in enumerate(s.threads):
        if one.at not in WORK:
            continue
        mine, blob = w.process_of[t], w.task[t].blob
        if (mine, blob) in at_work:
            return f"two threads of process {mine} work on blob {blob}"
        if one.seen != s.processes[mine].attempts[blob]:
            return f"{w.name(t)} works on what it waited for"
        at_work.add((mine, blob))
    return ""


def jobs_are_kept(w: World, s: State) -> str:
    """Check that no more compilers run than there are jobs, and no more than memory allows, except
    that one may always run. A thread whose patience ended does not count."""
    running = sum(
        one.at == "run_compiler" and not one.is_excused and s.processes[w.process_of[t]].life != "killed"
        for t, one in enumerate(s.threads)
    )
    most = min(w.jobs, max(w.room, 1)) * (1 + s.epoch)
    return f"{running} compilers run, of {most}" if running > most else ""


def sources_stay(w: World, s: State) -> str:
    """Check that a compiler's sources stay while it runs, unless somebody emptied the cache."""
    if not w.has_archive or s.is_unpacked:
        return ""
    bad = [t for t, one in enumerate(s.threads) if one.at == "run_compiler" and s.epoch == 0]
    return f"the sources of {w.name(bad[0])} are gone" if bad else ""


def sleepers_admit_others(w: World, s: State) -> str:
    """Check that nobody sleeps while holding `admission`."""
    for lock in s.locks:
        if lock.name == "admission" and s.threads[lock.owner].at == "sleep":
            return f"{w.name(lock.owner)} sleeps with admission held"
    return ""


def children_keep_nothing(w: World, s: State) -> str:
    """Check that a forked child holds no lock of its parent."""
    kept = [lock.name for lock in s.locks if lock.is_kept]
    return f"a child keeps {kept[0]}" if kept else ""


def loader_is_asked_with_nothing_held(w: World, s: State) -> str:
    """Check that a thread that may enter the loader holds no lock of lazyck's."""
    for t, one in enumerate(s.threads):
        if one.at not in STEPS or not STEPS[one.at].asks_loader:
            continue
        process = process_of(w, s, t)
        held = [lock.name for lock in s.locks if lock.owner == t]
        held += ["busy"] if t in process.busy else []
        held += ["the mutex"] if process.mutex == t else []
        held += ["a static guard"] if process.guard == t else []
        if held:
            return f"{w.name(t)} may enter the loader with {', '.join(held)} held"
    return ""


PROPERTIES: dict[str, Property] = {
    "whole": entries_are_whole,
    "told": who_was_told_has_it,
    "cause": compiles_have_a_cause,
    "one holder": one_holder,
    "one thread": one_thread_works,
    "jobs": jobs_are_kept,
    "sources": sources_stay,
    "sleep": sleepers_admit_others,
    "fork": children_keep_nothing,
    "loader": loader_is_asked_with_nothing_held,
}
WAIT = "wait"  # nobody waits without end


def is_settled(w: World, s: State) -> bool:
    """Return whether every thread that lives and is not stopped has what it called for."""
    return all(
        one.at in ("done", "dead", "unborn") or s.processes[w.process_of[t]].life != "live"
        for t, one in enumerate(s.threads)
    )
