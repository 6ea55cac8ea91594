"""The environment and the user's file of settings, read in one place and typed."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.user_file import read_user_file
from lazyck.variables import NO, YES, unknown_variables


def number(env: Mapping[str, str], name: str, default: int) -> int:
    """A positive whole number from the environment. Raises `UsageError` naming the variable."""
    text = env.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"{name}={text!r}: not a whole number of at least 1", f"unset {name} or give it such a number")
    return int(text)


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """A positive number of seconds from the environment. Raises `UsageError` naming the variable."""
    text = env.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"\d{1,7}(\.\d{1,9})?", text, re.ASCII) or not float(text):
        raise UsageError(f"{name}={text!r}: not a number of seconds above 0", f"unset {name} or give it such a number")
    return float(text)


def switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether something is wanted, from the environment. Raises `UsageError` naming the variable."""
    text = env.get(name, "")
    if not text:
        return default
    if text not in (*YES, *NO):
        raise UsageError(f"{name}={text!r}: neither 0 nor 1", f"unset {name} or give it one of these")
    return text in YES


def environment() -> dict[str, str]:
    """The process's environment, with what the user's file says of variables that it lacks: the one place where
    lazyck's Python reads it."""
    own = own_environment()
    return {**read_user_file(own).values, **own}


def own_environment() -> dict[str, str]:
    """The process's environment without the user's file."""
    return dict(os.environ)


def environment_problems() -> list[str]:
    """What a user of any command is to be told: variables that lazyck does not have, and what of the user's file was
    not read."""
    env = own_environment()
    file = read_user_file(env)
    unknown = [f"{file.path}: {text}" for text in unknown_variables(file.values).values()]
    return [*unknown_variables(env).values(), *file.problems, *unknown]


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """Within it the process's environment says so, for libraries that are loaded meanwhile too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def cache_dir(env: Mapping[str, str]) -> Path | None:
    """Where the runtime caches blobs of libraries that bake in no name of their own; None if nothing says where."""
    if env.get(abi.ENV_CACHE_DIR):
        return Path(env[abi.ENV_CACHE_DIR])
    xdg, home = env.get("XDG_CACHE_HOME", ""), env.get("HOME", "")
    if not home.startswith("/"):
        with suppress(KeyError):
            home = pwd.getpwuid(os.geteuid()).pw_dir
    base = xdg if xdg.startswith("/") else f"{home}/.cache" if home.startswith("/") else ""
    return Path(base) / (env.get(abi.ENV_NAME) or abi.DEFAULT_CACHE_NAME) if base else None


def tools_dir(env: Mapping[str, str]) -> Path:
    """Where what lazyck compiles for itself is kept, per user: `lazyck-rt`, the runtime's objects, the shim."""
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    base = base if base.startswith("/") else ""  # programs of the working directory are not ours
    return Path(base or "/nonexistent") / "lazyck-tools"


def runtime_source() -> Path:
    """The runtime's sources: `LAZYCK_RUNTIME_SRC`, else the package's own."""
    given = environment().get(abi.ENV_RUNTIME_SRC, "")
    if given:
        path = Path(given).absolute()
        if not path.is_dir():
            raise UsageError(f"{abi.ENV_RUNTIME_SRC}={given!r}: no such directory", f"unset {abi.ENV_RUNTIME_SRC}")
        return path
    return Path(__file__).parent / "runtime" / "src"
