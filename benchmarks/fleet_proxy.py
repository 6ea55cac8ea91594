"""Pass HTTP requests on to a server, and spoil every second answer to a GET.

python benchmarks/fleet_proxy.py garbage|truncated|errors|stalls PORT TO_PORT
"""

import http.client
import itertools
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_STALL = 30.0
_count = itertools.count()


class Handler(BaseHTTPRequestHandler):
    """Handles one request."""

    protocol_version = "HTTP/1.1"
    how = ""
    to_port = 0

    def do_GET(self) -> None:
        self._pass_on()

    do_PUT = do_HEAD = do_DELETE = do_GET

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        inner = http.client.HTTPConnection("127.0.0.1", self.to_port)
        inner.request(self.command, self.path, body)
        answer = inner.getresponse()
        data, status = answer.read(), answer.status
        length = int(answer.getheader("Content-Length") or len(data))
        is_bad = self.command == "GET" and next(_count) % 2 == 0
        if is_bad and self.how == "stalls":
            time.sleep(_STALL)
        if is_bad and self.how == "errors":
            status, data = 500, b"no"
            length = len(data)
        if is_bad and self.how == "garbage":
            status, data = 200, os.urandom(5000)
            length = len(data)
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if is_bad and self.how == "truncated":
            data = data[: len(data) // 2]
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """Has a queue long enough for a fleet that connects at once."""

    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    Handler.how, port, Handler.to_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    Server(("0.0.0.0", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
