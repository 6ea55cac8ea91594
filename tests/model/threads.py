"""Define the steps that the threads of one process see of each other: `busy`, the mutex, the
loader's lock, fork."""

from .change import alter, may_enter_loader, move, process_of, put
from .state import DONE, NOBODY, State, World
from .step import Next, leave_call, step


@step("library/readiness.cpp make_ready", asks_loader=True)
def start(w: World, s: State, t: int) -> Next:
    """Asks the loader in advance all that the call and its compile will want to know (own_path,
    check_no_capture, ranges)."""
    if w.mutation == "loader asked in a static guard":
        guard = process_of(w, s, t).guard
        if guard == NOBODY:
            yield "enters the static guard", move(alter(s, w.process_of[t], guard=t), t, "ask_in_guard")
        elif guard == DONE:
            yield "finds the static made", move(s, t, "claim")
    elif may_enter_loader(w, s, t):
        yield "asks the loader", move(s, t, "claim")


@step("platform/gpu.cpp find_ranges", asks_loader=True)
def ask_in_guard(w: World, s: State, t: int) -> Next:
    """Asks the loader while other threads wait for the guard, in a mutation."""
    if may_enter_loader(w, s, t):
        yield "asks the loader, leaves the guard", move(alter(s, w.process_of[t], guard=DONE), t, "claim")


@step("library/entries.cpp obtain_entry")
def claim(w: World, s: State, t: int) -> Next:
    """Shares another thread's result, waits for one, or begins to work, in the first block under
    the mutex of States."""
    process, blob, me = process_of(w, s, t), w.task[t].blob, s.threads[t]
    if process.mutex not in (NOBODY, t):
        return
    seen = process.attempts[blob] if me.seen == NOBODY else me.seen
    owner, result = process.busy[blob], process.results[blob]
    is_ours = w.process_of[owner] == w.process_of[t] or w.mutation == "child waits for its parent's thread"
    if owner != NOBODY and is_ours and w.mutation != "busy not looked at":
        yield f"waits for thread {owner} of its process", move(s, t, "wait", seen=seen)
    elif result == "entry":
        yield "shares the entry", move(s, t, "load", seen=seen, has="entry")
    elif result == "failure" and process.attempts[blob] != seen and w.mutation != "waiters try again":
        yield "shares the failure", move(s, t, leave_call(w, t), seen=seen, has="failure")
    else:
        busy = put(process.busy, blob, t)
        yield "is the one who works on the blob", move(alter(s, w.process_of[t], busy=busy), t, "look", seen=seen)


@step("library/entries.cpp obtain_entry")
def wait(w: World, s: State, t: int) -> Next:
    """Sleeps in States::wait until `notify`."""
    yield from ()


@step("library/entries.cpp obtain_entry")
def settle(w: World, s: State, t: int) -> Next:
    """Tells the process's other threads the result (`settle`), under the mutex of States."""
    process, blob, has = process_of(w, s, t), w.task[t].blob, s.threads[t].has
    if process.mutex not in (NOBODY, t):
        return
    is_kept = w.mutation == "busy kept after a failure" and has == "failure"
    s = alter(
        s,
        w.process_of[t],
        busy=process.busy if is_kept else put(process.busy, blob, NOBODY),
        attempts=put(process.attempts, blob, process.attempts[blob] + 1),
        results=put(process.results, blob, has),
    )
    yield f"settles: {has}", move(s, t, "notify")


@step("library/entries.cpp obtain_entry")
def notify(w: World, s: State, t: int) -> Next:
    """Wakes the threads of its process that wait, for whichever blob (States::notify_all)."""
    if w.mutation != "notify forgotten":
        mine = w.process_of[t]
        s = s._replace(
            threads=tuple(
                one._replace(at="claim") if one.at == "wait" and w.process_of[i] == mine else one
                for i, one in enumerate(s.threads)
            )
        )
    yield "wakes the others", move(s, t, "load" if s.threads[t].has == "entry" else leave_call(w, t))


@step("library/loader.cpp open_blob", "dlopen", asks_loader=True)
def load(w: World, s: State, t: int) -> Next:
    """Loads the checked descriptor with dlopen, whatever the cache holds by then."""
    if not may_enter_loader(w, s, t):
        return
    has = "entry"
    if w.mutation == "load by path":
        has = {"whole": "entry", "unsynced": "entry", "": "gone"}.get(s.entries[w.task[t].blob], "torn")
    yield "loads the entry", move(s, t, leave_call(w, t), has=has)


@step("", asks_loader=True)
def enter_loader(w: World, s: State, t: int) -> Next:
    """Enters a dlopen of the program, whose constructor calls a lazy function with the loader's
    lock held."""
    if may_enter_loader(w, s, t):
        yield "enters dlopen, whose constructor calls", move(alter(s, w.process_of[t], loader=t), t, "start")


@step("")
def leave_loader(w: World, s: State, t: int) -> Next:
    """Leaves that dlopen and releases the loader's lock."""
    yield "leaves dlopen", move(alter(s, w.process_of[t], loader=NOBODY), t, "done")


@step("library/core.cpp stay_loaded", asks_loader=True)
def ask_loader(w: World, s: State, t: int) -> Next:
    """Pins the library before the mutex is taken."""
    if w.mutation == "loader asked with the mutex":
        process = process_of(w, s, t)
        if process.mutex == NOBODY:
            yield "takes the mutex", move(alter(s, w.process_of[t], mutex=t), t, "ask_with_mutex")
    elif may_enter_loader(w, s, t):
        yield "asks the loader", move(s, t, "record")


@step("library/core.cpp stay_loaded", asks_loader=True)
def ask_with_mutex(w: World, s: State, t: int) -> Next:
    """Asks the loader while every call wants the mutex, in a mutation."""
    if may_enter_loader(w, s, t):
        yield "asks the loader, frees the mutex", move(alter(s, w.process_of[t], mutex=NOBODY), t, "done")


@step("library/core.cpp start")
def record(w: World, s: State, t: int) -> Next:
    """Makes slots lazy again, under the mutex of States."""
    if process_of(w, s, t).mutex == NOBODY:
        yield "records", move(s, t, "done")


@step("library/library.cpp after_fork_in_child")
def fork(w: World, s: State, t: int) -> Next:
    """Forks, with the mutex of States held by before_fork. The child has one thread and no locks,
    and it knows what its parent knew."""
    process = process_of(w, s, t)
    if process.mutex != NOBODY:
        return
    copy = next(i for i, one in enumerate(s.threads) if one.at == "unborn")
    # The C library gives the child a loader's lock that nobody holds.
    jobs = process.jobs if w.mutation == "child keeps its parent's jobs" else w.jobs
    s = alter(s, w.process_of[copy], **process._replace(loader=NOBODY, jobs=jobs)._asdict())
    if w.mutation == "child keeps the locks":
        mine = w.process_of[t]
        s = s._replace(locks=tuple(k._replace(is_kept=w.process_of[k.owner] == mine) for k in s.locks))
    yield "forks", move(move(s, copy, "start"), t, "start")
