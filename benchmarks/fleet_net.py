"""Make hosts from network namespaces of this machine: each has an address of its own on one bridge.

Needs root (or CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_PREFIX = f"lz{os.getpid() % 100000}"
_BRIDGE = f"{_PREFIX}br"


def missing() -> str:
    """Return what this machine lacks to make namespaces, or an empty string if nothing."""
    if not shutil.which("ip"):
        return "needs ip (Debian: iproute2)"
    name = f"{_PREFIX}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"needs network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


@dataclass(frozen=True)
class Host:
    """Describes a namespace, with one interface `eth0` and an address."""

    name: str
    address: str

    def argv(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs `words` within the namespace."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """Disconnect the host: no packet reaches it or leaves it."""
        _ip("link", "set", f"{self.name}v", "down")

    def join(self) -> None:
        """Connect the host again."""
        _ip("link", "set", f"{self.name}v", "up")

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that the host has received and sent."""
        text = subprocess.run(self.argv(["cat", "/proc/net/dev"]), capture_output=True, text=True, check=True).stdout
        found = re.search(r"eth0:\s*(.*)", text)
        assert found
        words = found[1].split()
        return int(words[0]), int(words[8])


@contextmanager
def network(count: int) -> Iterator[list[Host]]:
    """Make one host for the remote, which comes first, and `count` others. Remove them all at the
    end."""
    hosts = [Host(f"{_PREFIX}h{i}", f"10.77.{i // 250}.{i % 250 + 1}") for i in range(count + 1)]
    try:
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip("link", "add", f"{host.name}v", "type", "veth", "peer", "name", "eth0", "netns", host.name)
            _ip("link", "set", f"{host.name}v", "master", _BRIDGE, "up")
            _ip("-n", host.name, "addr", "add", f"{host.address}/16", "dev", "eth0")
            _ip("-n", host.name, "link", "set", "eth0", "up")
            _ip("-n", host.name, "link", "set", "lo", "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
            subprocess.run(["ip", "link", "del", f"{host.name}v"], capture_output=True)
        subprocess.run(["ip", "link", "del", _BRIDGE], capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
