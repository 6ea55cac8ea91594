"""Records the bytes that pass between two sockets, and serves a store that asks for a password."""

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Tap:
    """Stands before a port of this machine and keeps all bytes, of both directions."""

    host: str
    target: int
    port: int = 0
    seen: bytearray = field(default_factory=bytearray)

    def serve(self, listening: socket.socket) -> None:
        """Forward connections until the socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection((self.host, self.target))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                self.seen += part
                target.sendall(part)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def has(self, secret: str) -> bool:
        """Return whether `secret` has passed, as it is or as base64."""
        data = bytes(self.seen)
        forms = [secret.encode(), *(base64.b64encode(b"x" * i + secret.encode())[4:-4] for i in range(3))]
        return any(form in data for form in forms)


@contextmanager
def tapped(port: int, host: str = "127.0.0.1") -> Iterator[Tap]:
    """Run a tap before `port`."""
    with socket.create_server((host, 0)) as listening:
        tap = Tap(host, port, listening.getsockname()[1])
        threading.Thread(target=tap.serve, args=(listening,), daemon=True).start()
        yield tap


@contextmanager
def serving_cache(authorization: str) -> Iterator[str]:
    """Serve an HTTP store for clients that send this `Authorization`, and yield its `HOST:PORT`."""
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, data: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _handle(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != authorization:
                self._answer(401)
            elif self.command == "PUT":
                objects[self.path] = data
                self._answer(201)
            elif self.path in objects:
                self._answer(200, objects[self.path])
            else:
                self._answer(404)

        do_GET = do_PUT = do_HEAD = _handle

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
