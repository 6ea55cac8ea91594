"""The user's file of settings: values for variables of lazyck that the environment lacks.

The file is `$XDG_CONFIG_HOME/lazyck/lazyck.env`, else `~/.config/lazyck/lazyck.env`. Its lines are
NAME=VALUE, and `#` begins a comment line. It is an env file, which Docker and systemd read as well.
Lazy libraries read it by the same rules (runtime/src/platform/environment.cpp).
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lazyck.directory import stranger_of

_LONGEST = 64 * 1024
_NAME = re.compile(r"LAZYCK_[A-Z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class UserFile:
    """The file: values and line numbers by variable, and why it or a line of it was not read."""

    path: Path | None
    values: Mapping[str, str]
    lines: Mapping[str, int]
    problems: tuple[str, ...]


def is_variable(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def read_user_file(env: Mapping[str, str]) -> UserFile:
    """Read the file that belongs to the environment `env`, if it exists. One that others could have
    written is not read, since LAZYCK_LAUNCHER in it would run their program."""
    config_home, home = (env.get(name, "") for name in ("XDG_CONFIG_HOME", "HOME"))
    base = config_home if config_home.startswith("/") else f"{home}/.config" if home.startswith("/") else ""
    if not base:
        return UserFile(None, {}, {}, ())
    path = Path(base) / "lazyck" / "lazyck.env"
    if not os.path.isfile(path):  # Path.is_file raises if a directory cannot be entered
        return UserFile(path, {}, {}, ())
    try:
        problem = _stranger_on_way(path)
        raw = b"" if problem else path.read_bytes()[:_LONGEST]
    except OSError as e:
        problem, raw = str(e.strerror), b""
    if problem:
        return UserFile(path, {}, {}, (f"{path} is not read: {problem}",))
    return parse(path, os.fsdecode(raw))


def parse(path: Path, text: str) -> UserFile:
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name = name.rstrip(" \t\r")
        if equals and is_variable(name):
            values[name], lines[name] = value.lstrip(" \t\r"), number
        else:
            problems.append(f"{path}:{number}: not LAZYCK_NAME=VALUE")
    return UserFile(path, values, lines, tuple(problems))


def _stranger_on_way(path: Path) -> str:
    """Return who else could put something at `path`, as the runtime's `stranger_on_way` does."""
    real = Path(os.path.realpath(path))
    for at in (real, *real.parents):
        info = at.lstat()
        is_sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        mode = info.st_mode & ~(stat.S_IWGRP | stat.S_IWOTH) if is_sticky else info.st_mode
        if stranger := stranger_of(os.stat_result((mode, *info[1:]))):
            return f"{at}: {stranger}"
    return ""
