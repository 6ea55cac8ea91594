"""The only module of lazyck's Python that starts processes: argv lists, no shell, output kept for
errors.

It also decides which program a name stands for. Only the absolute parts of PATH are searched:
a user who can write to the working directory could put a program into a relative or empty one. A
process that lazyck starts for itself gets a PATH with only those parts.

The commands of the user and of the project's build must find what they would find without lazyck.
`passthrough`, which starts the user's own command, therefore changes nothing, and `anchored` is for
commands of the build that lazyck repeats.
"""

import contextlib
import errno
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from lazyck.errors import CommandError, ToolchainError
from lazyck.settings.environment import environment


@dataclass(frozen=True)
class Result:
    """The result of a command. `status` is its exit status, or minus the signal's number."""

    status: int
    stdout: str
    stderr: str


def search_path(env: Mapping[str, str] | None = None) -> list[str]:
    """Return the directories in which programs are looked up: the absolute parts of PATH."""
    parts = (environment() if env is None else env).get("PATH", os.defpath).split(os.pathsep)
    return [part for part in parts if os.path.isabs(part)]


def find_program(name: str, env: Mapping[str, str] | None = None) -> str | None:
    """Return the absolute path of the program `name`, which is not a path, or None."""
    paths = (os.path.join(directory, name) for directory in search_path(env))
    return next((path for path in paths if is_program(path)), None)


def is_program(path: str) -> bool:
    """Return whether `path` is an executable file."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def anchored(env: Mapping[str, str], cwd: str | Path | None = None) -> dict[str, str]:
    """Return `env` for a command of the project's own build. Relative parts of PATH become absolute
    ones below `cwd`, where the build would have looked."""
    if "PATH" not in env:
        return dict(env)
    below = os.path.abspath(cwd or ".")
    return {**env, "PATH": os.pathsep.join(os.path.join(below, p) for p in env["PATH"].split(os.pathsep))}


def _own(argv: Sequence[str], env: Mapping[str, str] | None) -> tuple[list[str], dict[str, str]]:
    """Return words and environment of a command that lazyck needs. Raises `FileNotFoundError`."""
    full = environment() if env is None else dict(env)
    if "PATH" in full:
        # An empty PATH would mean the working directory.
        full["PATH"] = os.pathsep.join(search_path(full)) or os.defpath
    program = argv[0] if "/" in argv[0] else find_program(argv[0], full)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    return [program, *argv[1:]], full


def run(
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> Result:
    """Run `argv` to its end. A non-zero status is not an error. Raises `ToolchainError` if the
    program cannot be started, or takes longer than `timeout` seconds."""
    try:
        words, full = _own(argv, env)
        done = subprocess.run(
            words,
            cwd=cwd,
            env=full,
            input=None if stdin is None else stdin.encode("utf-8", "surrogateescape"),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except OSError as e:
        if cwd is not None and not os.path.isdir(cwd):
            raise ToolchainError(
                f"cannot start {argv[0]!r} in {cwd}: {os.strerror(e.errno or 0)}",
                "its working directory is gone: build again, or make the directory",
            ) from e
        raise _cannot_start(argv, e, "check that the program exists and is executable") from e
    except subprocess.TimeoutExpired as e:
        raise ToolchainError(f"{argv[0]!r} did not end within {timeout:g} s") from e
    stdout, stderr = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    return Result(done.returncode, stdout, stderr)


def check(
    what: str,
    argv: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    hint: str = "",
) -> Result:
    """Run as `run` does. A non-zero status raises `CommandError`, which begins with `what`."""
    result = run(argv, cwd=cwd, env=env)
    if result.status != 0:
        raise CommandError(what, argv, result.status, result.stdout + result.stderr, hint)
    return result


def passthrough(argv: Sequence[str], *, cwd: str | Path | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run `argv`, a command of the user's, on lazyck's own stdin, stdout and stderr. Returns its
    status as a shell reports it (128 + signal)."""
    try:
        status = subprocess.run(list(argv), cwd=cwd, env=None if env is None else dict(env), check=False).returncode
    except OSError as e:
        raise _cannot_start(argv, e, "check the command after `--`") from e
    return 128 - status if status < 0 else status


def end_interrupted() -> NoReturn:
    """End by SIGINT, so that the parent process sees an interrupted child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("SIGINT is blocked")


class Commands:
    """Commands that threads run, until all of them are ended at once.

    Each has a session of its own, and ends with the processes that it has started.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Result | None:
        """Run `argv` to its end and return the result, whose `stdout` is all that it printed; None
        if `stop` has ended it, or was called before. Raises `ToolchainError`."""
        # A pipe could be held open by a process that the command leaves behind.
        with tempfile.TemporaryFile() as out:
            with self._lock:
                if self._is_stopped:
                    return None
                try:
                    words, full = _own(argv, env)
                    process = subprocess.Popen(
                        words, env=full, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )
                except OSError as e:
                    raise _cannot_start(argv, e, "check that it exists") from e
                self._running.add(process)
            status = process.wait()
            with self._lock:
                self._running.discard(process)
            if self._is_stopped and status < 0:
                return None
            out.seek(0)
            return Result(status, out.read().decode("utf-8", "replace"), "")

    def stop(self) -> None:
        """Terminate what runs, and start nothing more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)  # a shell's background commands ignore SIGINT


def _cannot_start(argv: Sequence[str], e: OSError, hint: str) -> ToolchainError:
    return ToolchainError(f"cannot start {argv[0]!r}: {os.strerror(e.errno or 0)}", hint)


class Conversation(subprocess.Popen[bytes]):
    """A program with which we talk through its standard input and output, in a session of its own.
    Its stderr is discarded. Raises `OSError` if it cannot be started."""

    def __init__(self, argv: Sequence[str]) -> None:
        words, variables = _own(argv, None)
        pipe = subprocess.PIPE
        super().__init__(
            words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=variables, start_new_session=True
        )
        assert self.stdin and self.stdout
        self.input, self.output = self.stdin, self.stdout

    def close(self) -> None:
        """Kill the program and close its pipes."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(1)
        for pipe in (self.input, self.output):
            with contextlib.suppress(OSError):
                pipe.close()
