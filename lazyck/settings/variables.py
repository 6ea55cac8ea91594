"""lazyck's environment variables: values, defaults, and suggestions for misspelt names."""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lazyck import abi
from lazyck.quantities import seconds_of, size_of
from lazyck.settings.user_file import is_variable

YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_ARCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:\S*)?", re.ASCII)


@dataclass(frozen=True)
class Variable:
    """One variable. `wanted` says in words what its value must be, `fits` checks a value, and
    `default` says what applies without one."""

    name: str
    default: str
    wanted: str
    fits: Callable[[str], bool]

    def problem(self, value: str) -> str:
        """Return what is wrong with `value`, or an empty string, also for an empty value."""
        return "" if not value or self.fits(value) else f"must be {self.wanted}"


def _is_cache(value: str) -> bool:
    parts = value.split("/")
    return value.startswith("/") and ".." not in parts and any(p not in ("", ".") for p in parts)


_Kind = tuple[str, Callable[[str], bool]]  # what a value must be, in words, and whether one is that


def _any(wanted: str) -> _Kind:
    return wanted, lambda _value: True


def _one_of(*words: str) -> _Kind:
    return f"{', '.join(words[:-1])} or {words[-1]}", words.__contains__


_CACHE = "an absolute path without `..`"
_TEXT, _PATH = _any("any text"), _any("a path")
_SWITCHED = ("0 or 1", (*YES, *NO).__contains__)
_TIME: _Kind = ("a number of seconds, 0 or more", lambda value: seconds_of(value) is not None)
_SIZE: _Kind = ("a size such as 4G or 512M, or 0", lambda value: size_of(value) is not None)

# The order is that of docs/environment.md, which says what each variable is for.
VARIABLES = (
    Variable(abi.ENV_CACHE_DIR, "$XDG_CACHE_HOME/NAME, else ~/.cache/NAME", _CACHE, _is_cache),
    Variable(
        abi.ENV_NAME, abi.DEFAULT_CACHE_NAME, "the name of a directory",
        lambda value: "/" not in value and not value.startswith("."),
    ),
    Variable(abi.ENV_ROOT, "lazyck/ beside the library", *_PATH),
    Variable(
        abi.ENV_ARCHS, "the GPU's", "archs such as gfx942;gfx950 or 80;90",
        lambda value: all(_ARCH.fullmatch(arch) for arch in re.split(r"[;, \t\n]+", value) if arch),
    ),
    Variable(
        abi.ENV_JOBS, "the number of cores", "a number from 1 to 4096",
        lambda value: value.isascii() and value.isdigit() and 1 <= int(value) <= 4096,
    ),
    Variable(abi.ENV_MEM_PER_JOB, "from what compiles took", *_SIZE),
    Variable(abi.ENV_COMPILE_TIMEOUT, "3600", *_TIME),
    Variable(abi.ENV_LAUNCHER, "none", *_any("words of a command")),
    Variable(abi.ENV_LOCK_TIMEOUT, "1200, or from what compiles took", *_TIME),
    Variable(abi.ENV_JIT, "on", *_one_of("on", "warn", "error", "off")),
    Variable(abi.ENV_BY_KERNEL, "whichever costs less", *_SWITCHED),
    Variable(abi.ENV_PREAMBLES, "1", *_SWITCHED),
    Variable(abi.ENV_TEXT_KEYS, "where it saves time", *_SWITCHED),
    Variable(abi.ENV_EXTRA_CACHE_KEY, "none", *_TEXT),
    Variable(abi.ENV_ON_ERROR, "throw", *_one_of("throw", "abort")),
    Variable(
        abi.ENV_CACHE_PATH, "none", f"paths separated by `:`, each {_CACHE}",
        lambda value: all(_is_cache(part) for part in value.split(":") if part),
    ),
    Variable(abi.ENV_CACHE_MAXSIZE, f"{abi.DEFAULT_CACHE_MAX_KIB >> 20}G", *_SIZE),
    Variable(abi.ENV_RECORD, "none", *_PATH),
    Variable(abi.ENV_PREFETCH, "none", *_PATH),
    Variable(abi.ENV_TRACE, "none", *_PATH),
    Variable(abi.ENV_LOG, "info", *_one_of("error", "warn", "info", "debug")),
    Variable(abi.ENV_LOG_FILE, "stderr", *_PATH),
    Variable(abi.ENV_LOG_FORMAT, "text", *_one_of("text", "json")),
    Variable(abi.ENV_REMOTE, "none", *_any("tiers: URL|attribute|…,URL|…")),
    Variable(abi.ENV_REMOTE_COMPILE, "none", *_any("a compile service or cluster: grpc://HOST:PORT|attribute|…")),
    Variable(abi.ENV_TRUST, "none", *_any("public keys or files of them")),
    Variable(abi.ENV_SIGN_KEY, "none", *_PATH),
    Variable(abi.ENV_REMOTE_TIMEOUT, "10", "a number of seconds above 0", lambda value: bool(seconds_of(value))),
    Variable(abi.ENV_REMOTE_HELPER, abi.REMOTE_HELPER, *_any("a program")),
    Variable(abi.ENV_RUNTIME_SRC, "the package's", *_PATH),
    Variable(abi.ENV_LAZY, "1", *_SWITCHED),
)  # fmt: skip
BY_NAME = {variable.name: variable for variable in VARIABLES}


def unknown_variables(names: Iterable[str]) -> dict[str, str]:
    """Return a message for each of `names` that looks like a variable of lazyck but is none."""
    others = tuple(abi.OTHER_VARIABLES.split())
    found = {}
    for name in names:
        if is_variable(name) and not name.startswith(others) and name not in BY_NAME:
            meant = difflib.get_close_matches(name, BY_NAME, n=1, cutoff=0.8)
            found[name] = f"{name} is not a variable of lazyck" + "".join(f"; did you mean {near}?" for near in meant)
    return found
