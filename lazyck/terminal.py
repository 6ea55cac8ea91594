"""Messages of commands on stderr: lines, warnings and errors, with colours on a terminal."""

import os
import sys
from typing import TextIO

from lazyck import abi
from lazyck.settings.environment import environment
from lazyck.visible import visible

_QUIET = frozenset({"error", "warn"})  # levels of LAZYCK_LOG that leave out everything but warnings and errors
_RED, _YELLOW, _CYAN, _PLAIN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[36m", "\x1b[0m"
_HINT = "  hint: "


def is_quiet() -> bool:
    """Return whether only warnings and errors are wanted, by `--quiet` or LAZYCK_LOG."""
    return environment().get(abi.ENV_LOG, "") in _QUIET


def has_colours(stream: TextIO) -> bool:
    """Return whether `stream` shows colours and the user allows them (https://no-color.org)."""
    env = environment()
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM", "") not in ("", "dumb")


def width_of(stream: TextIO) -> int:
    """Return the columns of the terminal, or 80 if they are unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def say(line: str) -> None:
    """Write a line about what happens, unless only warnings are wanted."""
    if not is_quiet():
        _write(f"lazyck: {line}\n")


def warn(line: str) -> None:
    """Write a warning, always as one line."""
    _write(f"lazyck: {_coloured('warning:', _YELLOW)} {visible(line)}\n")


def tell_error(text: str) -> None:
    """Write an error as `LazyckError.render` returns it: the message, then the hint."""
    lines = [
        f"  {_coloured('hint:', _CYAN)} {line.removeprefix(_HINT)}" if line.startswith(_HINT) else line
        for line in text.split("\n")
    ]
    _write(f"lazyck: {_coloured('error:', _RED)} " + "\n".join(lines) + "\n")


def _coloured(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}" if has_colours(sys.stderr) else text


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
