"""`lazyck-remote entry`, which a lazy library starts on a local miss if LAZYCK_REMOTE is set.
It is not for users. (`lazyck-remote compile` is in lazyck/commands/remote_program.py.)

    lazyck-remote entry --key <32 hex> --name <path below v1/> --cache <cache>
                        [--wait SECONDS] [--only-fetch]

It goes on in a process of its own, which has begun when the first process ends. It works in the
working directory, which is the caller's for this one entry, and talks over the socket that is its
standard input. Lines are UTF-8, of at most 4,000 bytes including their end:

    to the caller                                       from the caller
    pid <number>            the first line: who goes on
    note info|warn <text>   to be logged                made <path>   compiled and published there
    refused <text>          an entry was not believed   kept          it is in the local cache
    skipped <text>          a tier is skipped           bad <text>    the fetched file is no good
    hit <label> <bytes>     it is in ./fetched.so       (end)         the caller failed, or has gone
    compile                 the caller must compile
    miss                    with --only-fetch: no tier has it

`hit` is followed by `kept` or `bad`, `bad` by `compile`, and `compile` by `made`. While the caller
compiles, the helper renews the entry's lease. After `made` and `kept` it fills the tiers, while the
caller goes on with its work.
"""

import contextlib
import itertools
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from lazyck import abi
from lazyck.errors import FormatError, LazyckError
from lazyck.remote.entry_name import EntryName
from lazyck.remote.lease import Lease, LeaseState
from lazyck.remote.remote import Fetched, Listener, Remote
from lazyck.remote.tier_client import TierDown
from lazyck.settings.environment import environment
from lazyck.visible import visible

_LONGEST_LINE = 4000
_PATIENCE = 1200.0
_SHORTEST, _LONGEST = 0.2, 2.0  # seconds between two looks
_FIRST_WORD, _NEXT_WORD = 5.0, 30.0
_OPTIONS = (abi.OPTION_KEY, abi.OPTION_NAME, abi.OPTION_CACHE, abi.OPTION_WAIT, abi.OPTION_ONLY_FETCH)
_USAGE = "usage: lazyck-remote entry --key KEY --name NAME --cache DIR [--wait SECONDS] [--only-fetch]"


@dataclass(frozen=True)
class Arguments:
    entry: EntryName
    cache: Path
    patience: float
    only_fetch: bool


class CallerGone(Exception):
    """The caller has ended, or closed the connection."""


class Caller:
    """The other end of the socket. A thread reads its lines, so its end is noticed at any time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()
        self._is_gone = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *words: str) -> None:
        """Send a line. If the caller has gone, that is noticed by the methods that wait for it."""
        line = visible(" ".join(words)).encode("utf-8", "replace")[: _LONGEST_LINE - 1].decode("utf-8", "ignore")
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(line.encode() + b"\n")

    def receive(self) -> tuple[str, str]:
        """Return the first word of the next line, and the rest. Raises `CallerGone`."""
        line = self._lines.get()
        if not line:
            raise CallerGone
        word, _, rest = line.partition(" ")
        return word, rest

    def check(self) -> None:
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds. Raises `CallerGone`."""
        if self._is_gone.wait(seconds):
            raise CallerGone

    def _read(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while (data := self._connection.recv(_LONGEST_LINE)) and len(buffer) <= _LONGEST_LINE:
                *lines, buffer = (buffer + data).split(b"\n")
                for line in filter(None, lines):
                    self._lines.put(line.decode("utf-8", "surrogateescape"))
        self._is_gone.set()
        self._lines.put("")


def parse(words: Sequence[str]) -> Arguments:
    """Parse the command line. Raises `LazyckError`."""
    given: dict[str, str] = {}
    rest = iter(words)
    try:
        if next(rest) != abi.REMOTE_ENTRY:
            raise ValueError
        for word in rest:
            if word not in _OPTIONS:
                raise ValueError
            given[word] = "" if word == abi.OPTION_ONLY_FETCH else next(rest)
        patience = float(given.get(abi.OPTION_WAIT, _PATIENCE))
        entry = EntryName(given[abi.OPTION_KEY], given[abi.OPTION_NAME])
        return Arguments(entry, Path(given[abi.OPTION_CACHE]), max(patience, 0.0), abi.OPTION_ONLY_FETCH in given)
    except (KeyError, ValueError, StopIteration) as e:
        raise LazyckError(_USAGE) from e


def serve(arguments: Arguments, caller: Caller) -> None:
    """Serve one entry, from the first look to the last upload. Raises `CallerGone`."""
    try:
        listener = Listener(partial(caller.send, abi.LINE_REFUSED), partial(caller.send, abi.LINE_SKIPPED))
        remote = Remote.from_environment(environment(), arguments.cache, listener)
    except LazyckError as e:
        caller.send(abi.LINE_NOTE, abi.NOTE_WARN, e.render().replace("\n", ";"))
        remote = None
    target = Path.cwd() / abi.FETCHED_FILE
    fetched = remote.fetch(arguments.entry, target) if remote else None
    if fetched and remote and hand_over(remote, fetched, target, arguments, caller):
        return
    if arguments.only_fetch or remote is None:
        caller.send(abi.LINE_MISS if arguments.only_fetch else abi.LINE_COMPILE)
        return
    compile_there(remote, arguments, target, caller)


def hand_over(remote: Remote, fetched: Fetched, target: Path, arguments: Arguments, caller: Caller) -> bool:
    """Give the fetched file to the caller, then to the nearer tiers. Return whether it was good."""
    with open(target, "rb") as own:  # the caller moves it into its cache
        caller.send(abi.LINE_HIT, fetched.label.replace(" ", "%20"), str(fetched.record.size))
        word, why = caller.receive()
        if word == abi.LINE_KEPT:
            finish_what_is_begun()
            remote.fill(fetched, Path(f"/proc/self/fd/{own.fileno()}"))
            from lazyck.history.costs import keep_guess  # a guess for the blob's next build

            record = fetched.record
            keep_guess(arguments.cache, *arguments.entry.entry_path.cost_key, record.seconds, record.peak_kib)
            return True
    target.unlink(missing_ok=True)
    remote.refuse(fetched)
    caller.send(abi.LINE_NOTE, abi.NOTE_INFO, f"not used: the entry of {fetched.label} ({why})")
    return False


def compile_there(remote: Remote, arguments: Arguments, target: Path, caller: Caller) -> None:
    """Make sure that one host compiles the entry. If it is this one, share the result."""
    turn = wait_for_turn(remote, arguments, target, caller)
    if isinstance(turn, Fetched) and hand_over(remote, turn, target, arguments, caller):
        return
    lease = turn if isinstance(turn, Lease) else None
    is_made = False
    stop = threading.Event()

    def renew() -> None:
        while lease and not stop.wait(remote.times.lease / 3):
            with contextlib.suppress(TierDown):
                lease.renew()

    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        caller.send(abi.LINE_COMPILE)
        word, path = caller.receive()
        if word == abi.LINE_MADE:
            finish_what_is_begun()
            has_it = remote.push(arguments.entry, Path(path), *took(arguments))
            is_made = lease is not None and lease.client.label in has_it
    finally:
        stop.set()
        renewing.join(2 * remote.times.whole())
        if lease:
            with contextlib.suppress(TierDown):
                lease.release(is_made)


def wait_for_turn(remote: Remote, arguments: Arguments, to: Path, caller: Caller) -> Fetched | Lease | None:
    """Wait until the entry can be fetched, or this process may compile it, under a lease if there
    is one. Of many hosts that miss an entry together, one compiles, and the others wait.

    Raises `CallerGone`. A remote that fails meanwhile ends the waiting there.
    """
    began = time.monotonic()
    next_word = began + _FIRST_WORD
    # Each time a tier fails, the next one may do.
    for _ in remote.clients:
        lease = remote.lease(arguments.entry)
        if lease is None:
            break
        try:
            for look in itertools.count():
                state = lease.look()
                if state is LeaseState.HOPELESS:
                    return lease
                # A look for the entry is cheaper than taking the lease. The first round needs none,
                # since the caller has just looked.
                if look:
                    if lease.is_done:
                        remote.look_again(lease.client)
                    refusals = remote.refusals
                    if fetched := _fetch(remote, lease, arguments.entry, to):
                        return fetched
                    if lease.is_done and remote.refusals > refusals:
                        # The others' entries are not trusted here, or the tier damages them, so
                        # nothing is won by waiting for one after the other.
                        return None
                if state is LeaseState.FREE and lease.take():
                    # The last holder may have finished just before.
                    if fetched := _fetch(remote, lease, arguments.entry, to):
                        lease.release(True)
                        return fetched
                    return lease
                now = time.monotonic()
                if now - began > arguments.patience:
                    return lease
                if now > next_word:
                    next_word = now + _NEXT_WORD
                    who = lease.holder or "another host"
                    text = f"waiting for {who}, which is compiling it ({now - began:.0f} s)"
                    caller.send(abi.LINE_NOTE, abi.NOTE_INFO, text)
                caller.sleep(min(max(_SHORTEST, (now - began) / 10), _LONGEST) * random.uniform(0.5, 1.5))
        except TierDown as e:
            remote.listener.skipped(e.message)
    return None


def _fetch(remote: Remote, lease: Lease, entry: EntryName, to: Path) -> Fetched | None:
    return remote.fetch(entry, to) if remote.find(lease.client, entry) is not None else None


def end_at_once(_number: int, _frame: object) -> None:
    """Give back what is held, at SIGTERM, which tells a job's processes to end."""
    raise CallerGone


def finish_what_is_begun() -> None:
    """Ignore SIGTERM from now on, because what is sent next takes a bounded time."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def took(arguments: Arguments) -> tuple[float, int]:
    """Return what the compile took, from the cache's record, or zeros if it has none."""
    from lazyck.history.costs import read_last

    with contextlib.suppress(OSError):
        return read_last(arguments.cache, *arguments.entry.entry_path.cost_key) or (0.0, 0)
    return 0.0, 0


def run(prepare: Callable[[Sequence[str]], Callable[[Caller], None]]) -> NoReturn:
    """Serve a caller on the socket that is the standard input, by what `prepare` returns for the
    command line. The exit status tells nothing; the lines do."""
    status = 0
    try:
        serve_caller = prepare(sys.argv[1:])
        connection = socket.socket(fileno=0)
    except (FormatError, LazyckError, OSError) as e:
        sys.stderr.write(f"lazyck-remote: {e}\n")
        sys.exit(2)
    # The caller waits for this process to end, and would kill it at its own end, although there may
    # be something to send.
    if os.fork():
        os._exit(0)
    # A key at the terminal is for the program that called, not for processes that it waits for.
    with contextlib.suppress(OSError):
        os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_at_once)
    caller = Caller(connection)
    # A caller that is PID 1 becomes this process's parent, and has to reap it.
    caller.send(abi.LINE_PID, str(os.getpid()))
    try:
        serve_caller(caller)
    except CallerGone:
        (Path.cwd() / abi.FETCHED_FILE).unlink(missing_ok=True)
    except Exception as e:  # the caller compiles when this process ends
        sys.stderr.write(f"lazyck-remote: {type(e).__name__}: {e}\n")
        status = 1
    sys.stderr.flush()
    os._exit(status)  # does not wait for threads that were given up
