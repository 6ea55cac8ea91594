"""Reads the environment and the user's file of settings, in one place, as typed values."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from _lazyck import abi
from _lazyck.errors import UsageError
from _lazyck.quantities import seconds_of
from _lazyck.user_file import read_user_file
from _lazyck.variables import BY_NAME, NO, YES, unknown_variables


def number(env: Mapping[str, str], name: str, default: int) -> int:
    """Return a positive whole number from the environment. Raises `UsageError` that names the
    variable."""
    text = env.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(f"{name}={text!r}: not a whole number of at least 1", f"correct or unset {name}")
    return int(text)


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Return a positive number of seconds from the environment. Raises `UsageError` that names the
    variable."""
    text = env.get(name, "")
    if not text:
        return default
    found = seconds_of(text)
    if not found:
        raise UsageError(f"{name}={text!r}: not a number of seconds above 0", f"correct or unset {name}")
    return found


def switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether a variable of the environment is on. Raises `UsageError` that names the
    variable."""
    text = env.get(name, "")
    if not text:
        return default
    if text not in (*YES, *NO):
        raise UsageError(f"{name}={text!r}: neither 0 nor 1", f"correct or unset {name}")
    return text in YES


def environment() -> dict[str, str]:
    """Return the environment of the process, with values from the user's file for variables that it
    lacks.

    Only this module of lazyck's Python reads the environment.
    """
    own = own_environment()
    return {**read_user_file(own).values, **own}


def own_environment() -> dict[str, str]:
    """Return the environment of the process, without the user's file."""
    return dict(os.environ)


def environment_problems() -> list[str]:
    """Return what the user of any command should be told: variables that lazyck does not have, and
    parts of the user's file that were not read."""
    env = own_environment()
    file = read_user_file(env)
    unknown = [f"{file.path}: {text}" for text in unknown_variables(file.values).values()]
    return [*unknown_variables(env).values(), *file.problems, *unknown]


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment within the block, which also affects libraries that are
    loaded meanwhile."""
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
    """Return where the runtime caches the blobs of a library that has no cache name built in, or
    None if no variable says where.

    The rules are the runtime's (runtime/src/platform/config.cpp). Raises `UsageError` for a place
    that the runtime refuses.
    """
    for name in (abi.ENV_CACHE_DIR, abi.ENV_NAME):
        if problem := BY_NAME[name].problem(env.get(name, "")):
            raise UsageError(f"{name}={env[name]!r}: {problem}", f"correct or unset {name}")
    place, base = env.get(abi.ENV_CACHE_DIR, ""), _user_caches(env)
    if not place and base:
        place = f"{base}/{env.get(abi.ENV_NAME) or abi.DEFAULT_CACHE_NAME}"
        if problem := BY_NAME[abi.ENV_CACHE_DIR].problem(place):
            hint = f"correct XDG_CACHE_HOME or HOME, or set {abi.ENV_CACHE_DIR}"
            raise UsageError(f"XDG_CACHE_HOME or HOME gives the cache {place!r}: it {problem}", hint)
    return Path("/", place.lstrip("/")) if place else None  # Python keeps two slashes at the beginning


def tools_dir(env: Mapping[str, str]) -> Path:
    """Return the user's directory for what lazyck compiles for itself: `lazyck-rt`, objects of the
    runtime, the shim."""
    return Path(_user_caches(env) or "/nonexistent") / "lazyck-tools"


def _user_caches(env: Mapping[str, str]) -> str:
    """Return the directory of the user's caches, or an empty string if nobody tells. A relative
    path does not count, since programs in the working directory are not ours."""
    xdg, home = env.get("XDG_CACHE_HOME", ""), env.get("HOME", "")
    if not home.startswith("/"):
        with suppress(KeyError):
            home = pwd.getpwuid(os.geteuid()).pw_dir
    return xdg if xdg.startswith("/") else f"{home}/.cache" if home.startswith("/") else ""


def runtime_source() -> Path:
    """Return the directory of the runtime's sources: `LAZYCK_RUNTIME_SRC`, else the package's own.
    Raises `UsageError` if the variable names no directory."""
    given = environment().get(abi.ENV_RUNTIME_SRC, "")
    if given:
        path = Path(given).absolute()
        if not path.is_dir():
            raise UsageError(f"{abi.ENV_RUNTIME_SRC}={given!r}: no such directory", f"unset {abi.ENV_RUNTIME_SRC}")
        return path
    return Path(__file__).parent / "runtime" / "src"
