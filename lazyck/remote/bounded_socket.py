"""Sockets that read no more than the exchange that uses them may (`lazyck.remote.exchange`).

Some libraries of protocols collect what a server sends without a limit: redis-py a whole answer,
requests the body of a redirect, botocore the body of an error. All of them read from a socket.
"""

import contextlib
import io
import os
import socket
from typing import Any

from lazyck.remote.exchange import current


class ConnectionEnder:
    """A second descriptor of a connection, which can end the connection from outside its library.
    It stays valid if the library closes its descriptor and the system reuses the number."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))

    def end(self) -> None:
        """End the connection, so that blocked reads and writes return."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Close this descriptor; the connection stays open."""
        self._socket.close()


def hold(connection: Any) -> Any:
    """Have the exchange end this new connection, even before its TLS begins, and return it."""
    try:
        current().hold(ConnectionEnder(connection.fileno()))
    except BaseException:
        connection.close()
        raise
    return connection


class BoundedSocket:
    """Replaces a connected socket. One exchange after the other may use it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._exchange: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int, *flags: int) -> bytes:
        exchange = self._use()
        data: bytes = self._connection.recv(exchange.may_read(size), *flags)
        exchange.has_read(len(data))
        return data

    def recv_into(self, buffer: Any, size: int = 0, *flags: int) -> int:
        exchange = self._use()
        found: int = self._connection.recv_into(buffer, exchange.may_read(size or memoryview(buffer).nbytes), *flags)
        exchange.has_read(found)
        return found

    def send(self, data: Any, *flags: int) -> int:
        self._use()
        return int(self._connection.send(data, *flags))

    def sendall(self, data: Any, *flags: int) -> None:
        self._use()
        self._connection.sendall(data, *flags)

    def makefile(self, mode: str = "r", buffering: int | None = None, **how: Any) -> Any:
        if mode != "rb":
            raise ValueError(f"mode {mode!r}")
        raw = _Reader(self, self._connection.makefile("rb", buffering=0))
        return raw if buffering == 0 else io.BufferedReader(raw)

    def _use(self) -> Any:
        """Return this thread's exchange, which can end the connection from now on."""
        exchange = current()
        exchange.check()
        if exchange is not self._exchange:
            exchange.hold(ConnectionEnder(self._connection.fileno()))
            self._exchange = exchange
        return exchange


class _Reader(io.RawIOBase):
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
