"""Play the runtime: start the helper as the runtime does, and speak its protocol, with entries that
are made by hand."""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lazyck.remote import EntryName
from support import REPOSITORY, wait_until

KEY = "0123456789abcdef" * 2
NAME = "libx/gfx942-cc-1/blob-0123456789abcdef.so"
ENTRY = EntryName(KEY, NAME)


def python_path() -> str:
    """Return the PYTHONPATH for processes of tests, which finds lazyck and what a test has
    added."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def entry_bytes(key: str = KEY, body: bytes = b"\x7fELF and so on") -> bytes:
    """Return the bytes of an entry's file, as far as a remote looks into it."""
    high, low = int(key[:16], 16), int(key[16:], 16)
    return body + struct.pack("<8sIIQQQQQQ", b"LAZYCKEN", 1, 0, len(body), 1, 2, low, high, 0)


def entry_file(directory: Path, key: str = KEY, body: bytes = b"\x7fELF and so on") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "entry.so"
    path.write_bytes(entry_bytes(key, body))
    return path


@dataclass
class Runtime:
    """Plays the runtime in one local miss: holds the helper and what it has said so far."""

    cwd: Path
    process: subprocess.Popen[bytes]
    socket: socket.socket
    said: list[str] = field(default_factory=list)
    buffer: bytes = b""
    pid: int = 0

    def line(self, seconds: float = 20) -> str:
        """Return the helper's next line, or an empty string if it has closed its end."""
        self.socket.settimeout(seconds)
        while b"\n" not in self.buffer:
            data = self.socket.recv(4096)
            if not data:
                return ""
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        assert len(line) < 4000
        if not self.pid:  # the first line tells the process that goes on
            word, number = line.split(b" ")
            assert word == b"pid"
            self.pid = int(number)
            return self.line(seconds)
        self.said.append(line.decode())
        return self.said[-1]

    def verdict(self, seconds: float = 20) -> str:
        """Return the first word of the next line that decides something, or an empty string at the
        end."""
        while line := self.line(seconds):
            if line.split(" ")[0] in ("hit", "compile", "miss"):
                return line.split(" ")[0]
        return ""

    def of(self, word: str) -> list[str]:
        """Return the lines that begin with this word."""
        return [line for line in self.said if line.split(" ")[0] == word]

    def say(self, text: str) -> None:
        self.socket.sendall(text.encode() + b"\n")

    @property
    def helpers(self) -> list[int]:
        """Find the helper's processes. The helper goes on in a process of its own, whose parent has
        ended."""
        found = []
        for cwd in Path("/proc").glob("[0-9]*/cwd"):
            with contextlib.suppress(OSError):
                if os.readlink(cwd) == str(self.cwd):
                    found.append(int(cwd.parent.name))
        return found

    def end(self, seconds: float = 20) -> None:
        """Wait until the helper has closed its end and ended by itself."""
        while self.line(seconds):
            pass
        self.socket.close()
        self.wait(seconds)

    def wait(self, seconds: float = 20) -> None:
        """Wait until the helper has ended, without reading what it says."""
        assert self.process.wait(seconds) == 0
        wait_until(lambda: not self.helpers, seconds)

    def die(self) -> None:
        """End the runtime without a word."""
        self.socket.close()

    def kill(self) -> None:
        """Kill runtime and helper, as when a host fails."""
        assert self.pid in self.helpers
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        self.socket.close()


class Host:
    """Describes a machine with a cache and an environment of its own."""

    def __init__(self, directory: Path, remote: str, **env: str) -> None:
        self.directory = directory
        self.cache = directory / "cache"
        self.cache.mkdir(parents=True, exist_ok=True)
        self.env = {"LAZYCK_REMOTE": remote, "LAZYCK_REMOTE_TIMEOUT": "0.6", **env}
        self._count = 0

    def miss(self, *words: str, key: str = KEY, name: str = NAME, env: Mapping[str, str] | None = None) -> Runtime:
        """Start the helper for a local miss."""
        self._count += 1
        cwd = self.directory / f"staging-{self._count}"
        cwd.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        argv = [sys.executable, "-m", "lazyck.commands.remote_program", "entry", "--key", key, "--name", name,
                "--cache", str(self.cache), *words]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": python_path(), **self.env, **(env or {})}
        process = subprocess.Popen(argv, cwd=cwd, env=environment, stdin=theirs.fileno())
        theirs.close()
        return Runtime(cwd, process, ours)

    def make(self, runtime: Runtime, body: bytes = b"\x7fELF and so on") -> None:
        """Compile and publish, then wait for the helper's end."""
        runtime.say(f"made {entry_file(self.directory, body=body)}")
        runtime.end()

    def keep(self, runtime: Runtime) -> bytes:
        """Take what was fetched into the cache, then wait for the helper's end."""
        fetched = runtime.cwd / "fetched.so"
        data = fetched.read_bytes()
        assert fetched.stat().st_mode & 0o777 == 0o600
        fetched.unlink()
        runtime.say("kept")
        runtime.end()
        return data
