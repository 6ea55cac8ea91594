"""A connection that reads no more than the exchange that uses it may (`lazyck.remote.exchange`).

Libraries of protocols collect what a server sends, some without a limit: redis-py all of an answer, requests the body
of a redirect, botocore that of an error. Below them all there is a socket.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
from typing import Any

from lazyck.remote.exchange import current


class Cord:
    """A second descriptor of a connection, by which it is ended, whoever has the first one. The library may close its
    own meanwhile and the system give the number to another file: this one stays."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))

    def end(self) -> None:
        """Whoever reads or writes returns."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let go, the connection stays."""
        self._socket.close()


def hold(connection: Any) -> Any:
    """A connection that was made just now, which is ended with the exchange: before its TLS begins, too."""
    try:
        current().hold(Cord(connection.fileno()))
    except BaseException:
        connection.close()
        raise
    return connection


class BoundedSocket:
    """Stands in for a connected socket; one exchange after the other may use it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._exchange: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int, *flags: int) -> bytes:
        """As a socket's."""
        exchange = self._use()
        data: bytes = self._connection.recv(exchange.may_read(size), *flags)
        exchange.has_read(len(data))
        return data

    def recv_into(self, buffer: Any, size: int = 0, *flags: int) -> int:
        """As a socket's."""
        exchange = self._use()
        found: int = self._connection.recv_into(buffer, exchange.may_read(size or memoryview(buffer).nbytes), *flags)
        exchange.has_read(found)
        return found

    def send(self, data: Any, *flags: int) -> int:
        """As a socket's."""
        self._use()
        sent: int = self._connection.send(data, *flags)
        return sent

    def sendall(self, data: Any, *flags: int) -> None:
        """As a socket's."""
        self._use()
        self._connection.sendall(data, *flags)

    def makefile(self, mode: str = "r", buffering: int | None = None, **how: Any) -> Any:
        """As a socket's, to read from."""
        if mode != "rb":
            raise ValueError(f"mode {mode!r}")
        raw = _Reader(self, self._connection.makefile("rb", buffering=0))
        return raw if buffering == 0 else io.BufferedReader(raw)

    def _use(self) -> Any:
        """The exchange of this thread, by which the connection can be ended from now on."""
        exchange = current()
        exchange.check()
        if exchange is not self._exchange:
            exchange.hold(Cord(self._connection.fileno()))
            self._exchange = exchange
        return exchange


class _Reader(io.RawIOBase):
    """The file of a bounded socket."""

    def __init__(self, bounded: BoundedSocket, raw: Any) -> None:
        self._bounded = bounded
        self._raw = raw

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def readinto(self, buffer: Any) -> int | None:
        exchange = self._bounded._use()
        view = memoryview(buffer)
        found: int | None = self._raw.readinto(view[: exchange.may_read(view.nbytes)])
        exchange.has_read(found or 0)
        return found

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
