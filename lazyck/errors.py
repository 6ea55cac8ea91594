"""The exceptions that lazyck raises on purpose. Each says what failed, on which file, and what to
do next. Only `cli.py` turns one into an exit status."""

import shlex
import traceback
from collections.abc import Sequence

from lazyck.visible import visible_lines


class LazyckError(Exception):
    """Something failed that the user can act on. `message` says what, and on which file; `hint`
    says what to do next; `exit_code` is the status with which the command line ends."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def render(self) -> str:
        """Return the text that the user sees: the message, then the hint."""
        return visible_lines(f"{self.message}\n  hint: {self.hint}" if self.hint else self.message)


def of_unexpected(error: Exception) -> LazyckError:
    """Return what to tell the user of a system error, or of one that is a bug of lazyck."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return LazyckError(f"{where}{error.strerror}", "check permissions and free space there")
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return LazyckError(
        f"a bug in lazyck: {type(error).__name__}: {error}{at}",
        "report it, with the command (LAZYCK_LOG=debug says more)",
    )


class UsageError(LazyckError):
    """The command line or an environment variable does not make sense."""

    exit_code = 2


class ToolchainError(LazyckError):
    """A compiler or toolchain home is missing or does not work."""


class FormatError(LazyckError):
    """A file is not what it should be: wrong magic, unknown version, or truncated."""


class BuildError(LazyckError):
    """A step of lazyck's own part of the build failed."""


class CommandError(BuildError):
    """A command that lazyck started has failed. The message shows it and the end of its output."""

    def __init__(self, what: str, argv: Sequence[str], status: int, output: str, hint: str = "") -> None:
        tail = output.strip().splitlines()[-40:]
        shown = shlex.join(argv)
        if len(shown) > 4000:
            shown = shown[:4000] + " ..."
        ended = f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"
        super().__init__("\n".join([f"{what}: the command {ended}:", f"  {shown}", *(f"  | {t}" for t in tail)]), hint)
        self.argv = tuple(argv)
        self.status = status
        self.output = output


class LinkError(BuildError):
    """The project's link has failed, or has made no file (`-Wl,--help`), or a source that it names
    does not compile. The tools have printed why; the build gets their status."""

    def __init__(self, what: str, status: int, command_file: str) -> None:
        ended = f"ended with status {status}" if status else "made no file"
        super().__init__(f"{what} {ended}; its command is in {command_file}")
        self.status = status


class CompileError(LazyckError, RuntimeError):
    """A blob could not be made ready.

    `str()` returns the runtime's message, with the compiler's first error, the path of the log and
    the command to repeat the compile. A failing *call* of a blob throws `lazyck::CompileError` in
    C++, which pybind11 and torch turn into a RuntimeError with that message.
    """


class RemoteError(LazyckError):
    """A remote cache cannot be used: it is down, or lacks a package or a setting."""
