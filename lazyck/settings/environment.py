"""Reads the environment and the user's file of settings, in one place, as typed values."""

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.quantities import seconds_of
from lazyck.settings.user_file import read_user_file
from lazyck.settings.variables import BY_NAME, NO, YES, unknown_variables

T = TypeVar("T")


def _parsed(env: Mapping[str, str], name: str, default: T, parse: Callable[[str], T | None], problem: str) -> T:
    """Return a variable's value as `parse` returns it. Raises `UsageError` for None."""
    text = env.get(name, "")
    found = parse(text) if text else default
    if found is None:
        raise UsageError(f"{name}={text!r}: {problem}", f"correct or unset {name}")
    return found


def number(env: Mapping[str, str], name: str, default: int) -> int:
    """Return a positive whole number of the environment. Raises `UsageError`."""

    def parse(text: str) -> int | None:
        return int(text) or None if text.isascii() and text.isdigit() else None

    return _parsed(env, name, default, parse, "not a whole number of at least 1")


def cores() -> int:
    return len(os.sched_getaffinity(0)) or 1


def parallel_compiles(env: Mapping[str, str], jobs: int | None = None) -> int:
    """Return `jobs` (an option's value), else LAZYCK_JOBS, else the number of cores that this
    process may use. Raises `UsageError`."""
    row = BY_NAME[abi.ENV_JOBS]
    problem = row.problem(env.get(row.name, ""))
    return jobs or _parsed(env, row.name, cores(), lambda text: None if problem else int(text), problem)


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Return a positive number of seconds of the environment. Raises `UsageError`."""
    return _parsed(env, name, default, lambda text: seconds_of(text) or None, "not a number of seconds above 0")


def switch(env: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether a variable of the environment is on. Raises `UsageError`."""
    values = dict.fromkeys(YES, True) | dict.fromkeys(NO, False)
    return _parsed(env, name, default, values.get, "neither 0 nor 1")


def environment() -> dict[str, str]:
    """Return the environment, with values from the user's file for variables that it lacks. Only
    this module of lazyck's Python reads the environment."""
    own = own_environment()
    return {**read_user_file(own).values, **own}


def own_environment() -> dict[str, str]:
    """Return the environment of the process, without the user's file."""
    return dict(os.environ)


def environment_problems() -> list[str]:
    """Return unknown variables and unread parts of the user's file, as warnings of any command."""
    env = own_environment()
    file = read_user_file(env)
    unknown = [f"{file.path}: {text}" for text in unknown_variables(file.values).values()]
    return [*unknown_variables(env).values(), *file.problems, *unknown]


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment within the block, also for libraries loaded in it."""
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
    """Return where the runtime caches the blobs of a library without a cache name of its own, if a
    variable says where (see runtime/src/platform/config.cpp). Raises `UsageError` for a place that
    the runtime refuses."""
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
    """Return the user's directory for `lazyck-rt`, the shim, and objects of the runtime."""
    return Path(_user_caches(env) or "/nonexistent") / "lazyck-tools"


def _user_caches(env: Mapping[str, str]) -> str:
    """Return the directory of the user's caches, or an empty string if it is unknown. A relative
    path does not count, since programs in the working directory are not ours."""
    xdg, home = env.get("XDG_CACHE_HOME", ""), env.get("HOME", "")
    if not home.startswith("/"):
        with suppress(KeyError):
            home = pwd.getpwuid(os.geteuid()).pw_dir
    return xdg if xdg.startswith("/") else f"{home}/.cache" if home.startswith("/") else ""


def runtime_source() -> Path:
    """Return `LAZYCK_RUNTIME_SRC`, else the package's own sources. Raises `UsageError`."""
    given = environment().get(abi.ENV_RUNTIME_SRC, "")
    if given:
        path = Path(given).absolute()
        if not path.is_dir():
            raise UsageError(f"{abi.ENV_RUNTIME_SRC}={given!r}: no such directory", f"unset {abi.ENV_RUNTIME_SRC}")
        return path
    return Path(__file__).parent.parent / "runtime" / "src"
