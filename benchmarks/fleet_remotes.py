"""Run real remotes, each in a namespace: nginx, Redis, moto's S3, and nginx behind a faulty proxy.

Nginx runs with examples/deploy/nginx.conf.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from common import REPOSITORY
from fleet_net import Host

PORT = 8080
_INNER = 8081  # nginx's port where the faulty proxy has PORT


@dataclass
class Remote:
    """Describes a server: `url` is the value of LAZYCK_REMOTE, `env` has the other variables that
    its clients need."""

    host: Host
    directory: Path
    url: str = ""
    env: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start the server; return when it answers."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    def requests(self) -> int:
        """Return how many requests the server has had."""
        raise NotImplementedError

    def _spawn(self, *words: str, env: dict[str, str] | None = None) -> None:
        with (self.directory / "server.log").open("ab") as log:
            argv = self.host.argv(words)
            self.processes.append(subprocess.Popen(argv, env={**os.environ, **(env or {})}, stdout=log, stderr=log))

    def _wait(self, port: int = PORT) -> None:
        probe = f"import socket; socket.create_connection(('{self.host.address}', {port}), 1)"
        for _ in range(100):
            if not subprocess.run(self.host.argv([sys.executable, "-c", probe]), capture_output=True).returncode:
                return
            time.sleep(0.1)
        sys.exit(f"the server does not answer:\n{(self.directory / 'server.log').read_text()}")


class Nginx(Remote):
    """Runs the configuration that operators start from, with its paths replaced."""

    port = PORT

    @property
    def storage(self) -> Path:
        """Return the directory of its objects."""
        return self.directory

    def start(self) -> None:
        self.url = f"http://{self.host.address}:{PORT}"
        for name in ("cache", "uploads"):
            (self.storage / name).mkdir(exist_ok=True)
        text = (REPOSITORY / "examples" / "deploy" / "nginx.conf").read_text()
        for ours, here in (
            ("/srv/lazyck", str(self.storage)), ("/run/", f"{self.directory}/"), ("listen 8080", f"listen {self.port}"),
            ("/var/log/nginx/", f"{self.directory}/"), ("access_log off;", self._access_log()),
        ):  # fmt: skip
            text = text.replace(ours, here)
        text = f"daemon off;\nuser root;\n{text}"
        (self.directory / "nginx.conf").write_text(text)
        self._spawn("nginx", "-c", str(self.directory / "nginx.conf"))
        self._wait(self.port)

    def _access_log(self) -> str:
        return f"log_format short '$request_method $status $body_bytes_sent'; access_log {self.directory}/access short;"

    def kill(self) -> None:
        # The workers are the master's children. Killing the master alone would leave them running.
        pid = self.directory / "lazyck-nginx.pid"
        children = subprocess.run(["pgrep", "-P", pid.read_text().strip()], capture_output=True, text=True).stdout
        super().kill()
        for child in children.split():
            subprocess.run(["kill", "-9", child], capture_output=True)

    def requests(self) -> int:
        log = self.directory / "access"
        return len(log.read_text().splitlines()) if log.exists() else 0


class FullNginx(Nginx):
    """Has a file system with room for two or three entries."""

    @property
    def storage(self) -> Path:
        return self.directory / "disk"

    def start(self) -> None:
        self.storage.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(self.storage)], check=True)
        super().start()

    def kill(self) -> None:
        super().kill()
        subprocess.run(["umount", "-l", str(self.storage)], check=True)


class BadNginx(Nginx):
    """Runs nginx behind a proxy that spoils every second answer: `how` is garbage, truncated,
    errors or stalls."""

    port = _INNER
    how = "garbage"

    def start(self) -> None:
        super().start()
        script = Path(__file__).with_name("fleet_proxy.py")
        self._spawn(sys.executable, str(script), self.how, str(PORT), str(self.port))
        self._wait()


class TruncatedNginx(BadNginx):
    """Cuts answers short."""

    how = "truncated"


class FailingNginx(BadNginx):
    """Answers with status 500."""

    how = "errors"


class StallingNginx(BadNginx):
    """Sends nothing for 30 seconds."""

    how = "stalls"


class Redis(Remote):
    """Runs Redis without persistence. The commands at the beginning of a connection count as
    requests here."""

    before: int = 0  # requests before it was killed

    def start(self) -> None:
        self.url = f"redis://{self.host.address}:{PORT}/0"
        words = ["--port", str(PORT), "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--appendonly", "no"]
        self._spawn("redis-server", *words, "--dir", str(self.directory))
        self._wait()

    def requests(self) -> int:
        argv = self.host.argv(["redis-cli", "-h", self.host.address, "-p", str(PORT), "info", "stats"])
        shown = subprocess.run(argv, capture_output=True, text=True).stdout
        found = re.search(r"total_commands_processed:(\d+)", shown)
        return self.before + (int(found[1]) if found else 0)

    def kill(self) -> None:
        self.before = self.requests()
        super().kill()


class S3(Remote):
    """Runs moto's S3 server, which is one Python process and slow."""

    def start(self) -> None:
        address = f"http://{self.host.address}:{PORT}"
        self.url = f"s3://lazyck|endpoint={address}"
        self.env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        self._spawn(str(Path(sys.executable).with_name("moto_server")), "-H", "0.0.0.0", "-p", str(PORT))
        self._wait()
        put = f"import urllib.request as u; u.urlopen(u.Request('{address}/lazyck', method='PUT'))"
        subprocess.run(self.host.argv([sys.executable, "-c", put]), check=True)

    def requests(self) -> int:
        return len(re.findall(r'"(?:GET|PUT|HEAD|DELETE|POST) ', (self.directory / "server.log").read_text()))
