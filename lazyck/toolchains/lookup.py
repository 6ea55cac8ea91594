"""Find real compilers, by a variable's words or on PATH, and recognise their names: `g++-12`,
`clang++-19`, `x86_64-linux-gnu-g++`. Shims and stand-ins of compiler caches do not count."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lazyck import proc
from lazyck.errors import UsageError
from lazyck.proc import is_program as is_program

# Programs that stand in for a compiler under its name, or that are written before it.
LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc", "colorgcc", "buildcache", "pump", "gomacc", "recc"})
FAMILIES = ("c++", "g++", "gcc", "cc", "clang++", "clang")
_FAMILY = "|".join(map(re.escape, FAMILIES))
_NAME = re.compile(rf"(?P<target>[a-z0-9_]+-(?:[a-z0-9_.]+-){{1,2}})?(?P<family>{_FAMILY})(?:-[0-9][0-9.]*)?")


def conf_of(program: str) -> Path:
    """Return the path of the configuration of `program` if it is a shim."""
    return Path(program).parent / ".lazyck" / f"{Path(program).name}.conf"


def is_shim(program: str) -> bool:
    """Return whether `program` is a shim of lazyck, directly or through links, of any set-up."""
    return conf_of(program).exists() or conf_of(str(Path(program).resolve())).exists()


def is_binary(program: str) -> bool:
    """Return whether `program` is machine code, as far as it can be read, rather than a script."""
    try:
        with open(program, "rb") as f:
            return f.read(4) == b"\x7fELF"
    except OSError:
        return False


def is_launcher(program: str) -> bool:
    """Return whether `program` is a compiler cache or distributor, by name or link target."""
    return Path(program).name in LAUNCHERS or Path(program).resolve().name in LAUNCHERS


def which(name: str, env: Mapping[str, str], *, launchers: bool = False) -> str | None:
    """Return the absolute path of `name` in the absolute parts of PATH (see `lazyck.proc`). Shims
    are passed over, and launchers too unless they are wanted."""
    for directory in proc.search_path(env):
        path = str(Path(directory) / name)
        if is_program(path) and not is_shim(path) and (launchers or not is_launcher(path)):
            return path
    return None


def _names_on_path(pattern: re.Pattern[str], env: Mapping[str, str]) -> Iterator[re.Match[str]]:
    for directory in proc.search_path(env):
        with contextlib.suppress(OSError):
            yield from (match for name in os.listdir(directory) if (match := pattern.fullmatch(name)))


def host_names(env: Mapping[str, str]) -> list[str]:
    """Return the names on PATH that are those of a gcc or clang, also with a version or target."""
    return sorted({match[0] for match in _names_on_path(_NAME, env)})


def with_versions(names: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Return `names`, and those on PATH with a version behind, such as `clang-19`, newest first."""
    pattern = re.compile(f"({'|'.join(map(re.escape, names))})-([0-9]+)")
    found = {match[0]: int(match[2]) for match in _names_on_path(pattern, env)}
    return [*names, *sorted(found, key=lambda n: (-found[n], n))]


def is_compiler(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_c_driver(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and match["family"] in ("cc", "gcc", "clang")


def is_cxx_driver(name: str) -> bool:
    """Return whether a driver of that name takes a file of C for one of C++."""
    match = _NAME.fullmatch(name)
    return match is not None and match["family"] in ("c++", "g++", "clang++")


def target_of(name: str) -> str:
    """Return the target triple that a compiler's name begins with, or an empty string."""
    match = _NAME.fullmatch(name)
    return (match["target"] or "").rstrip("-") if match else ""


def compiler_of(variable: str, env: Mapping[str, str], names: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the words of a variable without launchers (see `resolve`), or else the first of
    `names` on PATH; () if there is neither."""
    words = without_launchers(resolve(variable, env))
    return words or next(((path,) for name in names if (path := which(name, env))), ())


def resolve(variable: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of a variable such as `CXX`, its programs as absolute paths; () if it is
    unset, if a program is missing, or if it is a shim.

    `ccache g++ -m64` becomes `/usr/bin/ccache /usr/bin/g++ -m64`; a masquerading g++ becomes the
    real one.
    """
    text = env.get(variable, "").strip()
    if not text:
        return ()
    # A path with spaces that exists as a whole is one word, as CMake and most builds see it.
    try:
        words = [text] if is_program(text) else shlex.split(text)
    except ValueError as e:
        raise UsageError(f"{variable}={text!r}: {e}", f"correct or unset {variable}") from e
    found: list[str] = []
    for i, word in enumerate(words):
        launcher = Path(word).name in LAUNCHERS
        path = _program(word, env, launcher)
        if path is None:
            return ()
        found.append(path)
        if not launcher:
            return (*found, *words[i + 1 :])
    return ()


def _program(word: str, env: Mapping[str, str], launcher: bool) -> str | None:
    if "/" not in word:
        return which(word, env, launchers=launcher)
    path = str(Path(word).absolute())  # symlinks stay: drivers know themselves by their name
    if not is_program(path) or is_shim(path):
        return None
    if not launcher and is_launcher(path):  # a masquerade that is named by its path
        return which(Path(path).name, env)
    return path


def without_launchers(words: tuple[str, ...]) -> tuple[str, ...]:
    for i, word in enumerate(words):
        if not is_launcher(word):
            return words[i:]
    return words
