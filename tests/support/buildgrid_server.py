"""Runs BuildGrid's server, and workers for it, as real processes. BuildGrid is in a virtual
environment of its own, which is made once for all test runs."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from lazyck.files import private_directory
from lazyck.settings.environment import tools_dir
from support import wait_until
from support.servers import is_open

# The last versions need PostgreSQL; this one keeps its jobs in SQLite.
VERSION = "0.1.5"
KEEPALIVE = 5  # seconds after which a worker that says nothing counts as dead
_CONFIG = """\
server:
  - !channel
    address: "127.0.0.1:{port}"
    insecure-mode: true
authorization:
  method: none
monitoring:
  enabled: false
thread-pool-size: 60
connections:
  - !sql-connection &sql
    connection-string: "sqlite:///{directory}/jobs.db"
    automigrate: yes
storages:
  - !disk-storage &storage
    path: "{directory}/storage"
caches:
  - !lru-action-cache &results
    storage: *storage
    max-cached-refs: 256
    allow-updates: true
    cache-failed-actions: false
schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    storage: *storage
    action-cache: *results
    poll-interval: 0.1
    property-keys: ["pool"]
    bot-session-keepalive-timeout: {keepalive}
    max-job-attempts: 5
instances:
  - name: ""
    services:
      - !action-cache
        cache: *results
      - !execution
        scheduler: *scheduler
      - !cas
        storage: *storage
      - !bytestream
        storage: *storage
"""


def buildgrid_home() -> Path | None:
    """Return the virtual environment with BuildGrid, or None if it cannot be fetched."""
    home = private_directory(tools_dir(os.environ)) / f"test-buildgrid-{VERSION}"
    with FileLock(f"{home}.lock"):
        if not (home / "ready").exists():
            if subprocess.run([sys.executable, "-m", "venv", "--clear", home], capture_output=True).returncode:
                return None
            argv = [str(home / "bin" / "pip"), "install", "-q", f"buildgrid=={VERSION}"]
            if subprocess.run(argv, capture_output=True).returncode:
                return None
            (home / "ready").touch()
    return home


@dataclass
class BuildGrid:
    """A server and its workers. Workers are started and killed by name."""

    home: Path
    directory: Path
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the value for `--executor`."""
        return f"grpc://127.0.0.1:{self.port}|trusted"

    def start(self) -> "BuildGrid":
        """Start the server."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = int(s.getsockname()[1])
        config = self.directory / "server.yml"
        (self.directory / "storage").mkdir()
        config.write_text(_CONFIG.format(port=self.port, directory=self.directory, keepalive=KEEPALIVE))
        self._spawn("server", [self.home / "bin" / "bgd", "server", "start", config, "-v"])
        wait_until(lambda: is_open(self.port), process=self.processes["server"], said=lambda: self.log("server"))
        return self

    def add(self, name: str, *, fault: int = 0) -> None:
        """Start a worker. `fault` is the status that it reports in place of its outputs."""
        bot = Path(__file__).parent / "reapi_bot.py"
        words = [str(self.port), name, self.directory / name, str(fault)]
        self._spawn(name, [self.home / "bin" / "python", bot, *words], {"PATH": os.environ["PATH"]})
        self.wait_for(name, r"^ready")

    def kill(self, name: str) -> None:
        """Kill a worker with the action that it runs, as the kernel does when memory runs out."""
        for number in re.findall(r"^begin (\d+)", self.log(name), re.M)[-1:]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(number), signal.SIGKILL)
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        """Stop all processes."""
        for name in list(self.processes):
            self.kill(name)

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    @property
    def begun(self) -> int:
        """Return how many actions workers have begun."""
        return sum(len(re.findall(r"^begin ", self.log(name), re.M)) for name in self.processes if name != "server")

    def wait_for(self, name: str, pattern: str) -> None:
        """Wait until a process has printed a line that matches."""
        wait_until(
            lambda: re.search(pattern, self.log(name), re.M),
            process=self.processes[name],
            said=lambda: self.log(name),
        )

    def _spawn(self, name: str, argv: list[object], env: Mapping[str, str] | None = None) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in argv], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
