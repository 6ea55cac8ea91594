"""Test how far a hostile server is read, and that an abandoned transfer ends. The tests measure
what the server could send, and the memory, threads and connections of the process that asked."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.driver import ENTRY, KEY, NAME, Host, entry_bytes, entry_file, python_path

from lazyck.remote import Remote
from lazyck.remote.bounded_socket import BoundedSocket, hold
from lazyck.remote.circuit_breaker import ALL, CircuitBreaker
from lazyck.remote.entry_record import EntryRecord, encode
from lazyck.remote.exchange import within
from lazyck.remote.tiers import Times

BUFFERS = 32 << 20  # bytes that two sockets of this machine hold at most while nobody reads them
LAST = 1 << 18  # bytes that count after the end: one part that was under way, and one into a closed connection
MIB = 1 << 20
Play = Callable[["Flood", socket.socket], None]


@dataclass
class Flood:
    """Plays a server that reads little and sends what its play says, until the other end is
    gone."""

    port: int = 0
    sent: int = 0
    opened: int = 0
    closed: int = 0
    ends: threading.Event = field(default_factory=threading.Event)

    def pour(self, to: socket.socket, data: bytes) -> None:
        """Send without end."""
        while not self.ends.is_set():
            self.sent += to.send(data)

    def drip(self, to: socket.socket, data: bytes) -> None:
        """Send a little now and then without end, each part well within the time limit for
        progress."""
        while not self.ends.wait(0.05):
            self.sent += to.send(data)


@contextlib.contextmanager
def flooding(play: Play) -> Iterator[Flood]:
    flood = Flood()

    def serve(connection: socket.socket) -> None:
        connection.settimeout(20)
        with connection, contextlib.suppress(OSError):
            play(flood, connection)
        flood.closed += 1

    def accept() -> None:
        while not flood.ends.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                flood.opened += 1
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        flood.port = listener.getsockname()[1]
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield flood
        finally:
            flood.ends.set()
            thread.join()


CLIENT = """
import contextlib, json, os, resource, sys, threading, time
from pathlib import Path
from lazyck.remote import EntryName, Listener, Remote

def sockets():
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")

def say(**more):
    peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    figures = {"kib": peak, "child_kib": child, "threads": threading.active_count(), "sockets": sum(sockets())}
    print(json.dumps({**figures, **more}), flush=True)

said = []
remote = Remote.from_environment(dict(os.environ), None, Listener(said.append, said.append), remembers=False)
for client in remote.clients:
    client.open()
say()
began = time.monotonic()
if sys.argv[1] == "fetch":
    found = remote.fetch(EntryName(sys.argv[2], sys.argv[3]), Path(sys.argv[4]))
else:
    found = remote.get_contents("ab" * 32, Path(sys.argv[4]))
say(said=said, took=time.monotonic() - began, is_found=bool(found))
for _ in sys.stdin:
    say()
"""


@dataclass(frozen=True)
class Asked:
    """Holds the result of a request, with figures from before it, after it, and after the threads
    have ended that it left, or could not end in time."""

    said: list[str]
    took: float
    before: dict[str, Any]
    after: dict[str, Any]
    later: dict[str, Any]
    still_sent: int

    @property
    def grown(self) -> int:
        """Return the growth of memory in bytes."""
        return 1024 * int(self.later["kib"] - self.before["kib"])


def ask(remote: str, tmp_path: Path, flood: Flood, method: str = "fetch", seconds: float = 0.4, **more: str) -> Asked:
    """Let a process ask once and stay. Return what came of it."""
    env = {**os.environ, "PYTHONPATH": python_path(), "LAZYCK_REMOTE": remote, **more}
    env["LAZYCK_REMOTE_TIMEOUT"] = str(seconds)
    argv = [sys.executable, "-c", CLIENT, method, KEY, NAME, str(tmp_path / "got")]
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        hangs = threading.Timer(20, process.kill)
        hangs.start()
        try:
            before, after = (json.loads(process.stdout.readline()) for _ in range(2))
            sent, end = flood.sent, time.monotonic() + 1
            later = after
            while (later["threads"] > 1 or later is after) and time.monotonic() < end:
                time.sleep(0.12)  # in which a server that is still heard sends twice
                process.stdin.write("\n")
                process.stdin.flush()
                later = json.loads(process.stdout.readline())
            still_sent = flood.sent - sent
        finally:
            hangs.cancel()
            process.kill()
    assert not (tmp_path / "got").exists()
    print(f"sent {flood.sent}, then {still_sent}; memory {1024 * (later['kib'] - before['kib'])}, of children",
          f"{1024 * later['child_kib']}; {after['took']:.2f} s; {after['said']}")  # fmt: skip
    return Asked(after["said"], after["took"], before, after, later, still_sent)


# -- what a server sends ---------------------------------------------------------------------------


def hear(connection: socket.socket, end: bytes) -> bytes:
    """Receive a request up to `end`."""
    heard = b""
    while end not in heard:
        data = connection.recv(65536)
        if not data:
            raise ConnectionError
        heard += data
    return heard


def over_http(head: bytes, data: bytes, is_slow: bool = False) -> Play:
    """Answer each request with the head and endless data."""

    def play(flood: Flood, connection: socket.socket) -> None:
        hear(connection, b"\r\n\r\n")
        connection.sendall(head)
        (flood.drip if is_slow else flood.pour)(connection, data)

    return play


def welcome(heard: bytes) -> bytes:
    """Return Redis's answer to the commands before the first question: HELLO, AUTH, CLIENT,
    SELECT."""
    if b"HELLO" in heard:
        return b"%1\r\n$5\r\nproto\r\n:3\r\n"
    return b"+OK\r\n" * heard.count(b"*")


def over_redis(head: bytes, data: bytes, is_slow: bool = False) -> Play:
    """Answer the first question for an object with the head and endless data."""

    def play(flood: Flood, connection: socket.socket) -> None:
        while True:
            heard = hear(connection, b"\r\n")
            if b"GETRANGE" in heard:
                break
            connection.sendall(welcome(heard))
        connection.sendall(head)
        (flood.drip if is_slow else flood.pour)(connection, data)

    return play


def without_a_word(head: bytes, data: bytes, is_slow: bool = False) -> Play:
    """Send the head and endless data as soon as somebody connects."""

    def play(flood: Flood, connection: socket.socket) -> None:
        connection.sendall(head)
        (flood.drip if is_slow else flood.pour)(connection, data)

    return play


ZEROS = bytes(1 << 16)
OK = b"HTTP/1.1 200 OK\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
BLOCK = bytes.fromhex("1f8b0800000000000003")  # a gzip header; what follows unpacks to a thousand times its size


def bomb() -> bytes:
    """Return packed zeros that begin with the header. More of them may follow."""
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(bytes(64 * MIB)) + packer.flush(zlib.Z_SYNC_FLUSH)


HTTP_PLAYS = {
    "body": (OK + b"\r\n", ZEROS),
    "length": (OK + b"Content-Length: 99999999999\r\n\r\n", ZEROS),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + ZEROS + b"\r\n"),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 1000),
    "headers": (OK, b"X: y\r\n" * 1000),
    "a header": (OK + b"X: ", b"x" * 65536),
    "status": (b"HTTP/1.1 200 ", b"x" * 65536),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "error": (b"HTTP/1.1 500 Oh\r\n\r\n", ZEROS),
    "absent": (b"HTTP/1.1 404 Not Found\r\n\r\n", ZEROS),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", ZEROS),
    "redirect, packed": (b"HTTP/1.1 302 Found\r\nLocation: /x\r\n" + GZIP + b"\r\n" + bomb(), bomb()),
    "error, packed": (b"HTTP/1.1 500 Oh\r\n" + GZIP + b"\r\n" + bomb(), bomb()),
}
REDIS_PLAYS = {
    "length": (b"$99999999999\r\n", ZEROS),
    "line": (b"+", b"x" * 65536),
    "array": (b"*99999999\r\n", b":1\r\n" * 10000),
    "nested": (b"", b"*1\r\n" * 10000),
    "pushes": (b"", b">2\r\n+message\r\n+x\r\n" * 1000),
}
SLOW_PLAYS = {
    "http headers": ("http", over_http(OK + b"X: ", b"x", True)),
    "http body": ("http", over_http(OK + b"Content-Length: 60000\r\n\r\n", b"x", True)),
    "http trailers": ("http", over_http(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", True)),
    "http continue": ("http", over_http(b"", b"HTTP/1.1 100 Continue\r\n\r\n", True)),
    "https hello": ("https", without_a_word(b"\x16\x03\x03\x40\x00", b"\x02", True)),
    "redis length": ("redis", over_redis(b"$60000\r\n", b"x", True)),
    "redis line": ("redis", over_redis(b"+", b"x", True)),
    "redis greeting": ("redis", without_a_word(b"+", b"x", True)),
    "rediss hello": ("rediss", without_a_word(b"\x16\x03\x03\x40\x00", b"\x02", True)),
    "s3 headers": ("s3", over_http(OK + b"X: ", b"x", True)),
    "s3 body": ("s3", over_http(OK + b"Content-Length: 60000\r\n\r\n", b"x", True)),
    "shelf": ("shelf", over_http(b"", b"x", True)),
}


def tier_of(scheme: str, port: int) -> str:
    """Return the settings of a tier at this port."""
    if scheme == "s3":
        return f"s3://shared/kernels|trusted|endpoint=http://127.0.0.1:{port}"
    if scheme == "shelf":
        return "shelf://bucket/kernels|trusted"
    return f"{scheme}://127.0.0.1:{port}/0|trusted"


@pytest.mark.parametrize(
    ("what", "method"),
    [
        *((what, "fetch") for what in HTTP_PLAYS),
        *((what, "get_contents") for what in ("headers", "continue", "redirect, packed", "error, packed")),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "s3"])
def test_a_web_server_that_sends_for_ever_is_read_no_further(
    scheme: str, what: str, method: str, tmp_path: Path
) -> None:
    with flooding(over_http(*HTTP_PLAYS[what])) as flood:
        asked = ask(tier_of(scheme, flood.port), tmp_path, flood, method)
        # After a HEAD, unread data stays in the sockets' buffers until the connection is used
        # again.
        is_kept = method == "get_contents"
        assert flood.sent < BUFFERS * (flood.opened if is_kept else 1)
        assert asked.still_sent <= (BUFFERS if is_kept else LAST)
        assert asked.grown < 24 * MIB
        assert asked.took < 3
        assert asked.later["threads"] == 1
        assert asked.later["sockets"] <= is_kept


@pytest.mark.parametrize("what", REDIS_PLAYS)
def test_a_redis_server_that_sends_for_ever_is_read_no_further(what: str, tmp_path: Path) -> None:
    with flooding(over_redis(*REDIS_PLAYS[what])) as flood:
        asked = ask(tier_of("redis", flood.port), tmp_path, flood)
        assert asked.said
        assert 0 < flood.sent < BUFFERS
        assert asked.still_sent <= LAST
        assert asked.grown < 24 * MIB
        assert asked.took < 3
        assert (asked.later["threads"], asked.later["sockets"]) == (1, 0)


@pytest.mark.parametrize("scheme", ["http", "s3", "redis"])
def test_contents_are_read_no_further_than_the_record_says(scheme: str, tmp_path: Path) -> None:
    """Even a large entry is not read all at once."""
    size = (2000 if scheme == "redis" else 64) * MIB
    record = encode(EntryRecord(ENTRY, "ab" * 32, size))

    def play(flood: Flood, connection: socket.socket) -> None:
        while True:
            heard = hear(connection, b"\r\n" if scheme == "redis" else b"\r\n\r\n")
            is_contents = b"cas/" in heard
            if scheme == "redis" and b"GETRANGE" not in heard:
                connection.sendall(welcome(heard))
            elif scheme == "redis" and not is_contents:
                part = record if b"\r\n$1\r\n0\r\n" in heard else b""  # only a read from the record's start
                connection.sendall(b"$%d\r\n%s\r\n" % (len(part), part))
            elif not is_contents:
                connection.sendall(OK + b"Content-Length: %d\r\n\r\n%s" % (len(record), record))
            else:
                connection.sendall(b"$99999999999\r\n" if scheme == "redis" else OK + b"\r\n")
                flood.pour(connection, ZEROS)

    with flooding(play) as flood:
        asked = ask(tier_of(scheme, flood.port), tmp_path, flood)
        assert asked.said
        assert flood.sent
        assert asked.grown < 24 * MIB
        # What an HTTP server sends goes to a file, as far as the record says.
        assert flood.sent < (0 if scheme == "redis" else size) + BUFFERS
        assert asked.still_sent <= LAST
        assert asked.later["threads"] == 1


def given_up(what: str, tmp_path: Path) -> tuple[Asked, int, int]:
    """Ask a server that sends a little now and then. Return what came of it, how much was sent, and
    how many connections stay open."""
    scheme, play = SLOW_PLAYS[what]
    tmp_path.mkdir()
    with flooding(play) as flood:
        asked = ask(tier_of(scheme, flood.port), tmp_path, flood, SHELF_FROM=str(flood.port))
        return asked, flood.sent, flood.opened - flood.closed


def test_a_transfer_that_was_given_up_ends(shelf: Path, tmp_path: Path) -> None:
    # Each takes more than a second, in which it waits: four wait at a time.
    with ThreadPoolExecutor(4) as pool:
        running = {what: pool.submit(given_up, what, tmp_path / what) for what in SLOW_PLAYS}
    for what, one in running.items():
        asked, sent, still_open = one.result()
        assert len(asked.said) == 1, what
        assert sent, what
        assert asked.took < 4, what
        assert asked.still_sent < 60, what  # two parts: one that was under way, and one into a closed connection
        assert (asked.later["threads"], asked.later["sockets"]) == (1, 0), what
        assert still_open == 0, what


def test_a_library_that_reads_for_ever_ends_with_its_process(shelf: Path, tmp_path: Path) -> None:
    with flooding(over_http(b"", ZEROS)) as flood:
        asked = ask(tier_of("shelf", flood.port), tmp_path, flood, seconds=4, SHELF_FROM=str(flood.port))
        assert len(asked.said) == 1
        assert flood.sent
        assert asked.grown < 8 * MIB
        assert asked.later["child_kib"] < 512 << 10
        assert asked.still_sent <= LAST
        assert asked.later["threads"] == 1


def test_an_upload_that_was_given_up_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes a little now and then."""
    monkeypatch.setattr("lazyck.remote.tiers._SLOWEST", 1 << 30)  # otherwise eight megabytes may take half a minute
    taken = [0]

    def play(flood: Flood, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        heard = hear(connection, b"\r\n\r\n")
        if not heard.startswith(b"PUT"):
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        while not flood.ends.wait(0.05) and connection.recv(16384):
            taken[0] += 1

    with flooding(play) as flood:
        remote = Remote.from_environment({"LAZYCK_REMOTE": f"http://127.0.0.1:{flood.port}|trusted",
                                          "LAZYCK_REMOTE_TIMEOUT": "0.6"}, remembers=False)  # fmt: skip
        assert remote
        before = threading.enumerate()
        began = time.monotonic()
        assert not remote.push(ENTRY, entry_file(tmp_path, body=os.urandom(8 * MIB)))
        assert time.monotonic() - began < 8
        assert 0 < taken[0] < 100
        assert not [t for t in threading.enumerate() if t not in before and "serve" not in t.name]


def test_who_waits_for_a_server_that_is_silent_is_woken() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threads = []

        def wait() -> bytes:
            threads.append(threading.current_thread())
            return BoundedSocket(hold(socket.create_connection(listener.getsockname()))).recv(1)  # has no timeout

        with pytest.raises(TimeoutError):
            within(0.2, 1, wait)
        threads[0].join(1)
        assert not threads[0].is_alive()


# -- what is no file -------------------------------------------------------------------------------


def put_there(what: str, path: Path) -> None:
    """Put something that is not a regular file at `path`."""
    path.unlink(missing_ok=True)
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to("/dev/zero")
    elif what == "directory":
        path.mkdir()
    elif what == "device":
        try:
            os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero
            path.open("rb").close()
        except PermissionError:
            pytest.skip("needs leave to make and open devices")
    else:
        with socket.socket(socket.AF_UNIX) as s:
            os.chdir(path.parent)
            s.bind(path.name)


@pytest.mark.parametrize("which", ["ac", "cas"])
@pytest.mark.parametrize("what", ["fifo", "link", "directory", "device", "socket"])
def test_what_is_no_file_in_a_shared_directory_is_not_read(
    what: str, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared").mkdir()
    remote = Remote.from_environment({"LAZYCK_REMOTE": f"{tmp_path}/shared|trusted"})
    assert remote and remote.push(ENTRY, entry_file(tmp_path))
    (path,) = (tmp_path / "shared" / which).iterdir()
    put_there(what, path)
    runtime = Host(tmp_path / "1", f"{tmp_path}/shared|trusted").miss("--only-fetch")
    assert runtime.verdict(10) == "miss"
    assert "has something there that is not a file" in runtime.of("skipped")[0]


@pytest.mark.parametrize("what", ["fifo", "link", "directory", "device"])
def test_what_is_no_file_where_tiers_that_are_down_are_remembered(what: str, tmp_path: Path) -> None:
    memory = CircuitBreaker(tmp_path, Times(10))
    memory.note("x", ALL, "refuses", 5)
    (path,) = (tmp_path / ".remote").iterdir()
    put_there(what, path)
    assert CircuitBreaker(tmp_path, Times(10)).why("x", ALL) == ""


@pytest.mark.parametrize("what", ["fifo", "link", "directory", "device"])
def test_what_is_no_file_where_compiles_are_recorded_or_published_is_not_read(what: str, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    host = Host(tmp_path / "1", f"{tmp_path}/shared|trusted")
    (host.cache / ".costs").mkdir()
    put_there(what, host.cache / ".costs" / ENTRY.entry_path.library)
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    assert Host(tmp_path / "2", f"{tmp_path}/shared|trusted").miss().verdict() == "hit"
    (tmp_path / "entry").mkdir()
    put_there(what, tmp_path / "entry" / "x.so")
    runtime = host.miss(name=NAME.replace("blob", "blub"))
    assert runtime.verdict() == "compile"
    runtime.say(f"made {tmp_path}/entry/x.so")
    runtime.end(5)
    assert len(list((tmp_path / "shared" / "cas").iterdir())) == 1


def test_the_process_that_goes_on_says_which_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    host = Host(tmp_path / "1", f"{tmp_path}/shared|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    assert runtime.helpers == [runtime.pid] != [runtime.process.pid]
    host.make(runtime)
    assert entry_bytes() == next((tmp_path / "shared" / "cas").iterdir()).read_bytes()
