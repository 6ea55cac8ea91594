"""Starts a dask cluster of real processes on this machine, and makes bundles that its workers can
compile."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lazyck.toolchains.identity import compiler_identity
from support import HERE, REPOSITORY, wait_until
from support.bundles import Bundle, make_bundle


def farm_bundle(directory: Path, blobs: Sequence[str] | Mapping[str, str], *, compiler: str = HERE.cxx) -> Bundle:
    """Make a bundle whose recipe has the true identity of `compiler`."""
    identity = compiler_identity((compiler,), programs=(compiler,))
    bundle = make_bundle(directory, blobs, toolchain="host", toolchain_id=identity, programs=[compiler])
    script = directory / "cxx"
    script.write_text(script.read_text().replace(f"{HERE.cxx} ", f"{compiler} "))
    return bundle


@dataclass
class Cluster:
    """A scheduler, and workers that are started and killed by name. Each worker has a cache of its
    own."""

    directory: Path
    remote: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0
    host: str = "127.0.0.1"
    protocol: str = "tcp"  # with tls, every process has the certificates of `env`
    env: Mapping[str, str] = field(default_factory=dict)  # for all its processes

    @property
    def url(self) -> str:
        """Return the URL for `--executor`."""
        return f"{'dask+tls' if self.protocol == 'tls' else 'dask'}://{self.host}:{self.port}"

    def start(self, *words: str, env: Mapping[str, str] | None = None) -> "Cluster":
        """Start the scheduler."""
        words = ("--host", self.host, "--port", "0", "--protocol", self.protocol, "--no-dashboard", *words)
        self._spawn("scheduler", "scheduler", *words, env=env)
        self.port = int(self._wait_for("scheduler", rf"Scheduler at:\s+\w+://{re.escape(self.host)}:(\d+)"))
        return self

    def add(self, name: str, *more: str, threads: int = 1, env: Mapping[str, str] | None = None, port: int = 0) -> None:
        """Start a worker. `port` is the scheduler's port, or the port of a proxy before it."""
        address = f"{self.protocol}://{self.host}:{port or self.port}"
        words = ["worker", address, "--name", name, "--nthreads", str(threads), "--no-nanny", *more]
        words += ["--no-dashboard", "--host", self.host, "--local-directory", str(self.directory / f"{name}.dask")]
        self._spawn(name, *words, env={"LAZYCK_CACHE_DIR": str(self.directory / f"{name}.cache"), **(env or {})})
        self._wait_for(name, r"Registered to:\s+(\S+)")

    def kill(self, name: str) -> None:
        """Kill a process as the kernel does when memory runs out."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def entries(self, name: str) -> list[str]:
        """Return the blobs that a worker has in its cache."""
        found = (self.directory / f"{name}.cache").glob("v1/*/*/*.so")
        return sorted(p.name.rpartition("-")[0] for p in found)

    def _spawn(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        own = {**os.environ, "PYTHONPATH": str(REPOSITORY), **self.env, **(env or {})}
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]], env=own, stdout=log, stderr=log
            )

    def _wait_for(self, name: str, pattern: str) -> str:
        wait_until(
            lambda: re.search(pattern, self.log(name)), process=self.processes[name], said=lambda: self.log(name)
        )
        found = re.search(pattern, self.log(name))
        assert found
        return found[1]
