"""Serves the kernels of a lazy library over HTTP, and is ready once they are.

python server.py LIBRARY record PROFILE FACTOR...   calls kernels once, and appends them to PROFILE
python server.py LIBRARY serve PROFILE [PORT]       makes PROFILE's kernels ready, while it serves:
    GET /health                 200 when ready; before that 503 and how far the warm-up is
    GET /scale?factor=3&x=1&x=2 the numbers times the factor; 500 if the call was refused

Start it with LAZYCK_JIT=error, and a kernel that is not in the profile is refused instead of
compiled in the middle of a request; with LAZYCK_JIT=warn, it is compiled and reported.
"""

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import lazyck


class Kernels:
    """The functions of the library."""

    def __init__(self, path: str) -> None:
        self.lazy = lazyck.load(path)
        self._library = ctypes.CDLL(path)

    def scale(self, factor: int, values: Sequence[float]) -> list[float]:
        """Return the values times `factor`. Raises `RuntimeError`."""
        array = ctypes.c_float * len(values)
        out = array()
        error = ctypes.create_string_buffer(4096)
        if self._library.scale_by(factor, array(*values), out, len(values), error, len(error)):
            raise RuntimeError(error.value.decode(errors="replace"))
        return list(out)


class Warmup:
    """The warm-up: it makes the kernels of a profile ready, and then says that it is over."""

    def __init__(self, kernels: Kernels, profile: Path) -> None:
        self._job = kernels.lazy.prefetch(profile)
        self._state = "warming up"
        self._error = ""
        threading.Thread(target=self._finish, daemon=True).start()

    def _finish(self) -> None:
        try:
            self._job.wait()
        except lazyck.CompileError as e:
            self._state, self._error = "failed", str(e)
            return
        lazyck.drain()  # whatever else is being compiled is over, too
        lazyck.ready()
        self._state = "ready"

    @property
    def is_ready(self) -> bool:
        """Whether requests may come."""
        return self._state == "ready"

    def report(self) -> dict[str, Any]:
        """Return what the health endpoint says."""
        now = self._job.progress()
        said: dict[str, Any] = {"status": self._state, "ready": now.ready, "total": now.total}
        if self._state == "warming up" and now.seconds_left is not None:
            said["seconds_left"] = round(now.seconds_left, 1)
        return said | ({"error": self._error} if self._error else {})


class Server(ThreadingHTTPServer):
    """The server, at a port of this machine; 0 chooses a free one."""

    def __init__(self, kernels: Kernels, profile: Path, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.kernels = kernels
        self.warmup = Warmup(kernels, profile)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/health":
            self._answer(200 if self.server.warmup.is_ready else 503, self.server.warmup.report())
        elif url.path == "/scale":
            self._scale(parse_qs(url.query))
        else:
            self._answer(404, {"error": f"there is no {url.path}"})

    def _scale(self, query: dict[str, list[str]]) -> None:
        try:
            (factor,), values = map(int, query["factor"]), list(map(float, query["x"]))
        except (KeyError, ValueError):
            self._answer(400, {"error": "give one factor and some x: /scale?factor=3&x=1&x=2"})
            return
        try:
            self._answer(200, {"y": self.server.kernels.scale(factor, values)})
        except RuntimeError as e:
            self._answer(500, {"error": str(e)})

    def _answer(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main(words: Sequence[str]) -> int:
    if len(words) < 3 or words[1] not in ("record", "serve"):
        print(__doc__, file=sys.stderr)
        return 2
    path, action, profile, *rest = words
    try:
        kernels = Kernels(os.path.abspath(path))
        if action == "record":
            with kernels.lazy.record(profile):
                for factor in map(int, rest):
                    print(kernels.scale(factor, [1, 2, 3]))
            return 0
        server = Server(kernels, Path(profile), int(rest[0]) if rest else 8000)
    except lazyck.LazyckError as e:
        print(e.render(), file=sys.stderr)
        return 1
    except (OSError, ValueError, RuntimeError) as e:
        print(e, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what Kubernetes and systemd send
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
