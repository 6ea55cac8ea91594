"""Run real servers, each on a port of its own: nginx, Redis, moto's S3, and one that misbehaves."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support import wait_until

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
REDIS = shutil.which("redis-server")
needs_nginx = pytest.mark.skipif(not NGINX, reason="no nginx (Debian: nginx-light)")
needs_redis = pytest.mark.skipif(not REDIS, reason="no redis-server (Debian: redis-server)")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Server:
    """Runs a server as a process. The server can be killed and started again on its port, with its
    data."""

    url: str
    port: int
    argv: list[str]
    root: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.root / "log", "ab") as log:
            self.process = subprocess.Popen(self.argv, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: is_open(self.port), process=self.process, said=(self.root / "log").read_text)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM if "nginx" in self.argv[0] else signal.SIGKILL)
        if self.process:
            self.process.wait()


@contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


NGINX_CONF = """\
daemon off;
worker_processes 1;
pid {root}/pid;
error_log {root}/error.log;
{user}
events {{ }}
http {{
    access_log {root}/access.log;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {root}/objects;
        client_max_body_size 0;
        location / {{
            dav_methods PUT DELETE;
            create_full_put_path on;
        }}
    }}
}}
"""


def nginx(root: Path) -> Server:
    (root / "objects").mkdir(parents=True)
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (root / "nginx.conf").write_text(NGINX_CONF.format(root=root, port=port, user=user))
    argv = [str(NGINX), "-p", str(root), "-c", str(root / "nginx.conf"), "-e", str(root / "error.log")]
    return Server(f"http://127.0.0.1:{port}", port, argv, root)


def redis(root: Path) -> Server:
    root.mkdir(parents=True)
    port = free_port()
    argv = [str(REDIS), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "sesame"]
    return Server(f"redis://:sesame@127.0.0.1:{port}/0", port, argv, root)


def moto(root: Path) -> Server:
    root.mkdir(parents=True)
    port = free_port()
    program = "from moto.server import main; main()"
    server = Server("s3://shared/kernels", port, [sys.executable, "-c", program, "-p", str(port)], root)
    server.url += f"|endpoint=http://127.0.0.1:{port}"
    return server


def make_bucket(port: int) -> None:
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/shared", method="PUT"), timeout=10).close()


# -- one that misbehaves ---------------------------------------------------------------------------


@dataclass
class Hostile:
    """Describes an HTTP server that keeps objects as it should, except that it misbehaves as `mood`
    says on requests of a path that contains `only`."""

    objects: dict[str, bytes] = field(default_factory=dict)
    mood: str = ""
    only: str = ""
    methods: str = "GET HEAD PUT DELETE"
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    authorizations: list[str] = field(default_factory=list)
    url: str = ""
    elsewhere: str = ""
    ends: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hostile: Hostile

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        h = self.hostile
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        h.asked.append((self.command, self.path))
        h.authorizations.append(self.headers.get("Authorization", ""))
        is_moody = h.only in self.path and self.command in h.methods.split()
        getattr(self, f"_{h.mood}" if h.mood and is_moody else "_behave")(body)

    def _behave(self, body: bytes) -> None:
        objects = self.hostile.objects
        if self.command == "PUT":
            objects[self.path] = body
            self._say(201)
        elif self.command == "DELETE":
            self._say(204 if objects.pop(self.path, None) is not None else 404)
        elif self.path in objects:
            self._say(200, objects[self.path])
        else:
            self._say(404)

    def _say(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self._write(body)

    def _write(self, body: bytes) -> None:
        try:
            self.wfile.write(body)
            self.hostile.sent += len(body)
        except OSError:
            self.close_connection = True

    def _stall(self, body: bytes) -> None:
        self.hostile.ends.wait(30)
        self.close_connection = True

    def _stall_within(self, body: bytes) -> None:
        whole = self.hostile.objects.get(self.path, b"x" * 100)
        self._say(200, whole[: len(whole) // 2], len(whole))
        self.wfile.flush()
        self._stall(body)

    def _drip(self, body: bytes) -> None:
        """Send a byte now and then, each well within the time limit for progress."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.hostile.ends.wait(0.1):
            try:
                self.wfile.write(b"x")
                self.wfile.flush()
            except OSError:
                break
        self.close_connection = True

    def _truncate(self, body: bytes) -> None:
        whole = self.hostile.objects.get(self.path, b"x" * 100)
        self._say(200, whole[: len(whole) // 2], len(whole))
        self.close_connection = True

    def _shorten(self, body: bytes) -> None:
        whole = self.hostile.objects.get(self.path, b"")
        self._say(200, whole[: len(whole) // 2])

    def _garbage(self, body: bytes) -> None:
        whole = self.hostile.objects.get(self.path, b"")
        self._say(200, bytes(255 - b for b in whole) or b"\0garbage")

    def _nonsense(self, body: bytes) -> None:
        self._write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        self.close_connection = True

    def _fail(self, body: bytes) -> None:
        self._say(500, b"oh")

    def _full(self, body: bytes) -> None:
        self._say(507)

    def _oversize(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self._write(self.hostile.objects.get(self.path, b""))
        for _ in range(2000):
            if self.close_connection:
                break
            self._write(b"\0" * (1 << 20))
        self.close_connection = True

    def _redirect(self, body: bytes) -> None:
        self._say(302, Location=self.path)

    def _bazel(self, body: bytes) -> None:
        """Behave like bazel-remote, which has no DELETE and whose HEAD does not tell the size."""
        if self.command == "DELETE":
            self._say(405)
        elif self.command == "HEAD" and self.path in self.hostile.objects:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
        else:
            self._behave(body)

    def _elsewhere(self, body: bytes) -> None:
        self._say(302, Location=self.hostile.elsewhere + self.path)

    def _back(self, body: bytes) -> None:
        self._say(302, Location=self.hostile.elsewhere + self.path.removeprefix("/first"))

    def _hop(self, body: bytes) -> None:
        """Redirect from /hop0/x to /hop1/x and so on. The last redirect leads to the object."""
        first, _, rest = self.path[1:].partition("/")
        number, last = int(first.removeprefix("hop")) + 1, int(self.hostile.elsewhere)
        self._say(302, Location=f"/hop{number}/{rest}" if number < last else f"/{last}/{rest}")

    def _unpack(self, body: bytes) -> None:
        import gzip

        self._say(200, gzip.compress(b"[" * (50 << 20)), None, **{"Content-Encoding": "gzip"})


@contextmanager
def hostile_server(tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Hostile]:
    """Run a hostile server, over TLS if there is a certificate."""
    hostile = Hostile()
    handler = type("Handler", (_Handler,), {"hostile": hostile})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    hostile.url = f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hostile
    finally:
        hostile.ends.set()
        server.shutdown()
        server.server_close()
        thread.join()
