"""Talks in lines, over a socket, with the lazy library that started the helper."""

import contextlib
import queue
import socket
import threading

from _lazyck.visible import visible

LONGEST_LINE = 4000


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

    def say(self, *words: str) -> None:
        """Send a line. If the caller has gone, that is noticed by the methods that wait for it."""
        line = visible(" ".join(words)).encode("utf-8", "replace")[: LONGEST_LINE - 1].decode("utf-8", "ignore")
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(line.encode() + b"\n")

    def hear(self) -> tuple[str, str]:
        """Return the first word of the next line, and the rest. Raises `CallerGone`."""
        line = self._lines.get()
        if not line:
            raise CallerGone
        word, _, rest = line.partition(" ")
        return word, rest

    def check(self) -> None:
        """Raise `CallerGone` if the caller has gone."""
        self.sleep(0)

    def sleep(self, seconds: float) -> None:
        """Wait for so many seconds. Raises `CallerGone`."""
        if self._is_gone.wait(seconds):
            raise CallerGone

    def _read(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while (data := self._connection.recv(LONGEST_LINE)) and len(buffer) <= LONGEST_LINE:
                *lines, buffer = (buffer + data).split(b"\n")
                for line in filter(None, lines):
                    self._lines.put(line.decode("utf-8", "surrogateescape"))
        self._is_gone.set()
        self._lines.put("")
