"""Define the steps that other processes see: the blob's lock, the permits, the compile and the
publish."""

from .change import (
    alter,
    count_compile,
    drop,
    holder,
    is_stopped,
    may_enter_loader,
    move,
    permits,
    process_of,
    put,
    reserve,
    take,
)
from .state import State, World
from .step import Next, blob_lock, is_whole, step


@step("store/store.cpp find", "look")
def look(w: World, s: State, t: int) -> Next:
    """Looks up the entry without a lock (look_up_entry). A whole entry is a hit."""
    if is_whole(w, s, t):
        yield "finds the entry", move(s, t, "settle", has="entry")
    else:
        yield "finds no entry", move(s, t, "open_lock")


@step("platform/lock.cpp FileLock", "open lock")
def open_lock(w: World, s: State, t: int) -> Next:
    """Opens, with O_CREAT, the file that has the lock's name at present."""
    yield "opens the blob's lock file", move(s, t, "try_lock", inode=s.inodes[w.task[t].blob], epoch=s.epoch)


@step("platform/lock.cpp BlobLock", "flock lock")
def try_lock(w: World, s: State, t: int) -> Next:
    """Locks the blob with FileLock::retry, flock(LOCK_EX | LOCK_NB). Passes over a holder that is
    stopped."""
    name, inode = blob_lock(w, t), s.threads[t].inode
    found = holder(s, name, inode)
    if not w.has_locks:
        yield "finds that flock does not work", move(s, t, "look_again", is_unlocked=True)
    elif found is None:
        yield "locks the blob", move(take(s, t, name, inode), t, "look_again")
    else:
        if is_stopped(w, s, found) and w.mutation != "no patience for the blob's lock":
            yield "loses patience with a stopped holder", move(s, t, "look_again", is_unlocked=True)
        yield "finds the blob locked", move(s, t, "peek")


@step("platform/lock.cpp BlobLock")
def peek(w: World, s: State, t: int) -> Next:
    """Looks for the entry (is_made) before each new attempt to lock."""
    if is_whole(w, s, t):
        yield "finds the entry while it waits", move(s, t, "settle", has="entry")
    else:
        yield "finds no entry yet", move(s, t, "try_lock")


@step("store/store.cpp fill_under_lock", "look")
def look_again(w: World, s: State, t: int) -> Next:
    """Looks up the entry again under the lock, because somebody may have published it since the
    first look."""
    if is_whole(w, s, t) and w.mutation != "no second look":
        keeps = w.mutation == "lock kept after the second look"
        yield "finds the entry after all", move(s, t, "settle" if keeps else "unlock", has="entry")
    else:
        yield "finds no entry still", move(s, t, "find_bundle" if w.has_archive else "take_job")


@step("store/sources.cpp unpacked")
def find_bundle(w: World, s: State, t: int) -> Next:
    """Uses the sources (is_made) if they are unpacked already."""
    if s.is_unpacked:
        yield "finds the sources unpacked", move(s, t, "take_job")
    else:
        yield "finds no sources", move(s, t, "lock_bundle")


@step("store/sources.cpp unpacked")
def lock_bundle(w: World, s: State, t: int) -> Next:
    """Takes the bundle's BlobLock in order to unpack. Passes over the lock if its holder is stopped
    or locks do not work."""
    found = holder(s, "bundle", s.epoch)
    if not w.has_locks:
        yield "unpacks without a lock", move(s, t, "look_at_bundle")
    elif found is None:
        yield "locks the bundle", move(take(s, t, "bundle", s.epoch), t, "look_at_bundle")
    else:
        if is_stopped(w, s, found):
            yield "loses patience with a stopped holder of the bundle", move(s, t, "look_at_bundle")
        yield "finds the bundle locked", move(s, t, "find_bundle")


@step("store/sources.cpp unpacked")
def look_at_bundle(w: World, s: State, t: int) -> Next:
    """Looks for the sources again under the lock (is_made), because somebody may have unpacked them
    since."""
    if s.is_unpacked:
        yield "finds the sources after all", move(drop(s, t, "bundle"), t, "take_job")
    else:
        yield "unpacks in its staging directory", move(s, t, "put_bundle")


@step("store/sources.cpp unpack")
def put_bundle(w: World, s: State, t: int) -> Next:
    """Shows the sources with renameat, unless others are there, which compilers may be reading."""
    if w.mutation == "bundle replaced unseen":
        yield "removes what sources there are", move(s._replace(is_unpacked=False), t, "put_after_all")
    elif s.is_unpacked:
        yield "finds the sources there by now", move(drop(s, t, "bundle"), t, "take_job")
    else:
        yield "shows the sources", move(drop(s._replace(is_unpacked=True), t, "bundle"), t, "take_job")


@step("store/sources.cpp unpack")
def put_after_all(w: World, s: State, t: int) -> Next:
    """Puts its own sources in place of the others, in a mutation."""
    yield "shows the sources", move(drop(s._replace(is_unpacked=True), t, "bundle"), t, "take_job")


@step("store/permits.cpp HeldPermit")
def take_job(w: World, s: State, t: int) -> Next:
    """Takes one of the process's own permits (ProcessPermits)."""
    free = process_of(w, s, t).jobs
    if free > 0:
        yield "takes a permit of its process", move(alter(s, w.process_of[t], jobs=free - 1), t, "admit")


@step("store/permits.cpp HostPermit", "flock admission")
def admit(w: World, s: State, t: int) -> Next:
    """Takes the FileLock `admission`, to be alone in deciding. Passes over a holder that is
    stopped."""
    found = holder(s, "admission", s.epoch)
    if not w.has_locks:
        yield "decides alone", move(s, t, "stage", is_excused=True)
    elif w.mutation == "no admission":
        yield "does not ask for admission", move(s, t, "scan")
    elif found is None:
        yield "is admitted", move(take(s, t, "admission", s.epoch), t, "scan")
    elif is_stopped(w, s, found) and w.mutation != "no patience for admission":
        yield "passes over a stopped holder of admission", move(s, t, "scan", is_excused=True)


@step("store/permits.cpp try_once", "flock slot")
def scan(w: World, s: State, t: int) -> Next:
    """Takes the first free permit in a loop, and reads what the others have reserved."""
    taken = {lock.name: lock for lock in permits(s)}
    free = [f"permit {i}" for i in range(w.jobs) if f"permit {i}" not in taken]
    if free:
        fits = not taken or w.room - sum(lock.is_reserved for lock in taken.values()) >= 1
        yield f"locks {free[0]}", move(take(s, t, free[0], s.epoch), t, "fit", permit=free[0], fits=fits)
        return
    if any(is_stopped(w, s, lock) for lock in taken.values()) and w.mutation != "no patience for permits":
        yield "overlooks a stopped permit", move(s, t, "leave", is_excused=True)
    yield "finds no permit free", nap(w, s, t)


@step("store/permits.cpp try_once", "write slot")
def fit(w: World, s: State, t: int) -> Next:
    """Reserves memory after the loop if there is enough or nobody else compiles."""
    me = s.threads[t]
    if me.fits:
        yield "reserves memory", move(reserve(s, t, me.permit), t, "leave")
        return
    others = (lock for lock in permits(s) if lock.owner != t)
    if any(is_stopped(w, s, lock) for lock in others) and w.mutation != "no patience for permits":
        yield "overlooks a stopped permit's memory", move(reserve(s, t, me.permit), t, "leave", is_excused=True)
    yield "finds no memory free", nap(w, drop(s, t, me.permit), t)


def nap(w: World, s: State, t: int) -> State:
    """Lets others decide, then sleeps and begins anew."""
    then = "sleep" if w.mutation == "admission kept in a sleep" else "give_way"
    return move(s, t, then, permit="", fits=False, is_excused=False)


@step("store/permits.cpp HostPermit", "unlock admission")
def give_way(w: World, s: State, t: int) -> Next:
    """Releases `admission` before the sleep, so that others may decide."""
    yield "leaves admission", move(drop(s, t, "admission"), t, "sleep")


@step("store/permits.cpp HostPermit")
def sleep(w: World, s: State, t: int) -> Next:
    """Waits with sleep_for(pause) until a permit or memory may be free."""
    keeps = w.mutation == "admission kept in a sleep"
    yield "sleeps a moment", move(s, t, "scan" if keeps else "admit")


@step("store/permits.cpp HostPermit", "unlock admission")
def leave(w: World, s: State, t: int) -> Next:
    """Releases `admission`, because others can see the permit and may decide."""
    then = {"loader asked while busy": "ask_while_busy", "permit freed before the compile": "free_permit_early"}
    yield "leaves admission", move(drop(s, t, "admission"), t, then.get(w.mutation, "stage"))


@step("platform/gpu.cpp Range", asks_loader=True)
def ask_while_busy(w: World, s: State, t: int) -> Next:
    """Asks the loader for the profilers' functions with all locks held, in a mutation."""
    if may_enter_loader(w, s, t):
        yield "asks the loader", move(s, t, "stage")


@step("store/permits.cpp HostPermit")
def free_permit_early(w: World, s: State, t: int) -> Next:
    """Frees the permit too early, in a mutation: others think that they may compile."""
    yield "frees its permit", move(drop(s, t, s.threads[t].permit), t, "stage")


@step("platform/process.cpp run_command", "spawn")
def stage(w: World, s: State, t: int) -> Next:
    """Stages the compile and starts it. A blob may be compiled once, and again only with a
    cause."""
    me = s.threads[t]
    is_unlocked = me.is_unlocked or me.epoch != s.epoch
    if not is_unlocked:
        s = count_compile(s, w.task[t].blob, 1)
    s = move(s, t, "run_compiler", epoch=s.epoch, is_unlocked=is_unlocked)
    if w.mutation == "lock freed before the publish":
        s = drop(s, t, blob_lock(w, t))
    yield "starts the compiler", s


@step("store/compile.cpp run_step")
def run_compiler(w: World, s: State, t: int) -> Next:
    """Waits for the compiler, which leaves a library in the staging directory. The compiler's
    failure is a fault."""
    yield "the compiler ends", move(s, t, "publish" if w.mutation == "publish before the sync" else "seal")


@step("cache/entry.cpp seal_entry", "fsync")
def seal(w: World, s: State, t: int) -> Next:
    """Writes the trailer and syncs, so that a published entry outlives a power cut."""
    if w.mutation == "publish before the sync":
        blob = w.task[t].blob
        entries = put(s.entries, blob, "whole") if s.entries[blob] == "unsynced" else s.entries
        yield "syncs what is published", move(s._replace(entries=entries), t, "free_permit", has="entry")
    else:
        yield "seals and syncs", move(s, t, "publish")


@step("cache/cache.cpp publish", "rename")
def publish(w: World, s: State, t: int) -> Next:
    """Shows the entry to all with renameat, in one step."""
    blob = w.task[t].blob
    if s.threads[t].epoch != s.epoch:
        yield "finds its staging directory gone", move(s, t, "free_permit")
    elif w.mutation == "publish by writing":
        yield "opens the entry's path to write", move(s._replace(entries=put(s.entries, blob, "torn")), t, "fill")
    elif w.mutation == "publish before the sync":
        yield "renames", move(s._replace(entries=put(s.entries, blob, "unsynced")), t, "seal")
    else:
        yield "renames", move(s._replace(entries=put(s.entries, blob, "whole")), t, "free_permit", has="entry")


@step("cache/cache.cpp publish")
def fill(w: World, s: State, t: int) -> Next:
    """Completes the entry at its own path, in a mutation."""
    entries = put(s.entries, w.task[t].blob, "whole")
    yield "has written the entry", move(s._replace(entries=entries), t, "free_permit", has="entry")


@step("store/permits.cpp ~HeldPermit", "unlock slot")
def free_permit(w: World, s: State, t: int) -> Next:
    """Ends HostPermit and HeldPermit, so that another compile may begin."""
    me, process = s.threads[t], process_of(w, s, t)
    if not (w.mutation == "job kept after a failure" and me.has == "failure"):
        s = alter(s, w.process_of[t], jobs=process.jobs + 1)
    yield "frees its permit", move(drop(s, t, me.permit), t, "unlock", permit="", fits=False, is_excused=False)


@step("platform/lock.cpp ~FileLock", "unlock lock")
def unlock(w: World, s: State, t: int) -> Next:
    """Ends BlobLock. Begins anew if the cache was emptied meanwhile (Store::compile_somewhere)."""
    blob = w.task[t].blob
    if w.mutation == "lock file unlinked":
        s = s._replace(inodes=put(s.inodes, blob, s.inodes[blob] + 1))
    then = "settle" if s.threads[t].has else "open_lock"
    yield "unlocks the blob", move(drop(s, t, blob_lock(w, t)), t, then, is_unlocked=False)
