"""What commands tell people on stderr: lines, warnings and errors, with colours where a terminal shows them."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from lazyck import abi
from lazyck.config import environment
from lazyck.visible import visible

_QUIET = frozenset({"error", "warn"})  # levels of LAZYCK_LOG that leave out what is no warning
_RED, _YELLOW, _CYAN, _PLAIN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[36m", "\x1b[0m"
_HINT = "  hint: "


def is_quiet() -> bool:
    """Whether only warnings and errors are wanted: by `--quiet`, or LAZYCK_LOG=warn or error."""
    return environment().get(abi.ENV_LOG, "") in _QUIET


def has_colours(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that shows colours, and nobody has asked for none (https://no-color.org)."""
    env = environment()
    return stream.isatty() and not env.get("NO_COLOR") and env.get("TERM", "") not in ("", "dumb")


def width_of(stream: TextIO) -> int:
    """The columns of the terminal; 80 where it does not know."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def say(line: str) -> None:
    """A line about what happens, unless only warnings are wanted."""
    if not is_quiet():
        _write(f"lazyck: {line}\n")


def warn(line: str) -> None:
    """A warning: one line, whatever is in it."""
    _write(f"lazyck: {_coloured('warning:', _YELLOW)} {visible(line)}\n")


def tell_error(text: str) -> None:
    """An error as `LazyckError.render` has it: what failed, then the hint."""
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
