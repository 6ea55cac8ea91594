"""Starts `lazyck` commands for tests from a process that has imported lazyck already.

Importing it costs more than most commands of the tests do. Each command is a process of its own,
forked, with the arguments, environment, directory and pipes that it is given, as if it had been
started by `python -m lazyck`. A command whose environment the interpreter or the dynamic loader
reads when it starts is started in the ordinary way.
"""

import contextlib
import gc
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
MAIN = str(REPOSITORY / "lazyck" / "__main__.py")
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "COVERAGE_")
_OPTIONAL = ("lazyck.prebuild.farm.", "lazyck.prebuild.reapi.", "lazyck.library.", "lazyck.toolchains.irc")
_FOR_PROGRAMS = tuple(f"lazyck.{name}" for name in ("__main__", "pytest", "setuptools", "telemetry", "torch"))
_MARK = b"\n"


class CommandServer:
    """The client's side: starts the server with the first command, and commands through it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket = socket.socket()
        self._env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def run(
        self, words: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `lazyck` with `words` to its end. Raises `subprocess.TimeoutExpired`."""
        argv = [sys.executable, "-m", "lazyck", *words]
        if _read_at_start(env) != _read_at_start(self._env):
            return subprocess.run(
                argv, cwd=cwd, env=dict(env), input=stdin, capture_output=True, text=True, timeout=timeout
            )
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        request = json.dumps([list(words), str(cwd), dict(env)]).encode() + _MARK
        ours, other = socket.socketpair()
        with self._lock:
            self._start()
            socket.send_fds(self._socket, [b"+"], [other.fileno()])
        other.close()
        socket.send_fds(ours, [request[:1]], theirs)
        ours.sendall(request[1:])
        for fd in theirs:
            os.close(fd)
        said: list[bytes] = [b"", b""]
        readers = [threading.Thread(target=_read, args=(pipes[i + 1][0], said, i)) for i in (0, 1)]
        for reader in readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError), os.fdopen(pipes[0][1], "wb") as pipe:
            pipe.write(stdin.encode())
        answers = ours.makefile()
        ours.settimeout(timeout)
        pid = int(answers.readline())
        try:
            status = int(answers.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(argv, timeout) from None
        for reader in readers:
            reader.join()
        ours.close()
        out, err = (text.decode().replace("\r\n", "\n") for text in said)
        return subprocess.CompletedProcess(argv, status, out, err)

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        if self._process is not None:
            self._process.wait(10)

    def _start(self) -> None:
        if self._process is None:
            self._socket, other = socket.socketpair()
            argv = [sys.executable, "-c", "from support.command_server import serve; serve()", str(other.fileno())]
            env = {**self._env, "PYTHONPATH": f"{REPOSITORY}:{TESTS}"}
            self._process = subprocess.Popen(argv, env=env, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
            other.close()


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


def _read(fd: int, said: list[bytes], i: int) -> None:
    with os.fdopen(fd, "rb") as pipe:
        said[i] = pipe.read()


def serve() -> None:
    """Fork a process for each request until the client is gone."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_most()
    gc.freeze()  # the collector would write to the memory that forked processes share
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd → pid and who waits for it
    while True:
        ready, _, _ = select.select([requests.fileno(), *running], [], [])
        for pidfd in set(ready) & set(running):
            pid, client = running.pop(pidfd)
            os.close(pidfd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):
                client.sendall(f"{status}\n".encode())
            client.close()
        if requests.fileno() in ready:
            said, fds, _, _ = socket.recv_fds(requests, 1, 1)
            if not said:
                return
            client = socket.socket(fileno=fds[0])
            if (pid := os.fork()) == 0:
                requests.close()
                for pidfd, (_, other) in running.items():
                    os.close(pidfd)
                    other.close()
                _become(client)
            client.sendall(f"{pid}\n".encode())
            running[os.pidfd_open(pid)] = pid, client


def _import_most() -> None:
    """Import all that commands use, but what needs an optional package, some of which start
    threads."""
    import lazyck

    for module in pkgutil.walk_packages(lazyck.__path__, "lazyck."):
        if not module.name.startswith((*_OPTIONAL, *_FOR_PROGRAMS)):
            import_module(module.name)


def _become(client: socket.socket) -> NoReturn:
    """Be the process that `client` asks for, to its end."""
    request, fds, _, _ = socket.recv_fds(client, 65536, 3)
    while not request.endswith(_MARK):
        request += client.recv(65536)
    client.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words, cwd, env = json.loads(request)
    for i, fd in enumerate(fds):
        os.dup2(fd, i)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r", "strict"), _stream(1, "w", "strict"), _stream(2, "w", "")
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [MAIN, *words]
    sys.path[:] = [cwd, *(path for path in sys.path[1:] if path != str(TESTS))]
    from lazyck.cli import main

    main()


def _stream(fd: int, mode: str, errors: str) -> IO[str]:
    """Return what the interpreter opens for a standard stream that is a pipe."""
    raw = io.FileIO(fd, mode, closefd=False)
    buffered = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, "utf-8", errors or "backslashreplace", line_buffering=not errors)
