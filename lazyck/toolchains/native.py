"""Replaces options that mean the CPU of the machine that builds by what they mean to the compiler.
A blob's recipe says the same everywhere, and so does its key. For CPUs that lack what such options
mean, they are replaced by a level that these CPUs have."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from lazyck import proc
from lazyck.toolchains.options import CommandItem, join

_NATIVE = re.compile(r"-m(arch|tune|cpu)=native")
_CODE = re.compile(r"-m(arch|cpu)=native")
_SWITCH = re.compile(r"^-m(no-)?|(?<!--param)=.*")


def names_native(words: Sequence[str]) -> bool:
    return any(_NATIVE.search(word) for word in words)


def needs_cpu(words: Sequence[str]) -> bool:
    """Return whether code may need this CPU. Options that only tune it do not make it so."""
    return any(_CODE.search(word) for word in words)


def portable(compiler: Sequence[str], items: Sequence[CommandItem], level: str | None = None) -> list[CommandItem]:
    """Return the options `items` of a compile by `compiler` (an argv prefix) without `native`, if
    there are others for which it makes the same code, or, with `level`, the option for a CPU (the
    compiler's own default if it is empty), if the compiler knows that."""
    if not any(_NATIVE.fullmatch(i.words[0]) for i in items):
        return list(items)
    machine = tuple(i.words[0] for i in items if i.words[0].startswith("-m") and len(i.words) == 1)
    if level is None:
        meant = _meaning(tuple(compiler), machine)
        return _replaced(items, meant) if meant else list(items)
    return _replaced(items, (level,) if level else ()) if _knows(tuple(compiler), level) else list(items)


def _replaced(items: Sequence[CommandItem], meant: tuple[str, ...]) -> list[CommandItem]:
    """Return `items` with `meant` in place of the first option that says `native`, and no other."""
    places = [n for n, item in enumerate(items) if _NATIVE.fullmatch(item.words[0])]
    head, tail = items[: places[0]], [i for n, i in enumerate(items) if n > places[0] and n not in places]
    return [*head, *([CommandItem(meant, meant[0])] if meant else []), *tail]


@lru_cache(maxsize=64)
def _knows(compiler: tuple[str, ...], level: str) -> bool:
    return not level or proc.run([*compiler, level, "-fsyntax-only", "-x", "c", "/dev/null"]).status == 0


@lru_cache(maxsize=64)
def _meaning(compiler: tuple[str, ...], machine: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the options that say `native` among the options `machine` mean; () if unknown."""
    native = [w for w in machine if _NATIVE.fullmatch(w)]
    wanted, usual = _told(compiler, machine), _told(compiler, ()).options
    words = [w for w in _told(compiler, native).options if w not in usual]
    if wanted.features:  # clang has no option of its own for each, and reads these after all others
        words = [f"-m{kind}={wanted.cpu}" for kind in ("arch", "cpu") if f"-m{kind}=native" in native]
        words += [w for f in sorted(wanted.features) for w in ("-Xclang", "-target-feature", "-Xclang", f)]
    if wanted.tuned:
        words.append(f"-mtune={wanted.tuned}")
    if not words:
        return ()
    items = _replaced([CommandItem((w,), w) for w in machine], tuple(words))
    return tuple(words) if _told(compiler, join(items)) == wanted else ()


@dataclass(frozen=True)
class _Told:
    """Holds what a driver tells its compiler proper of a CPU: gcc's in options of the driver's own
    names, clang's in names and features. All are empty if the driver does not say."""

    options: tuple[str, ...] = ()
    cpu: str = ""
    tuned: str = ""
    features: frozenset[str] = frozenset()


def _told(compiler: Sequence[str], words: Sequence[str]) -> _Told:
    # Without an assembler there is no temporary file, whose name may look like that of a program.
    shown = proc.run([*compiler, *words, "-###", "-x", "c", "-S", "/dev/null", "-o", "/dev/null"])
    lines = [line for line in shown.stderr.splitlines() if "cc1" in line]
    if shown.status != 0 or len(lines) != 1:
        return _Told()
    told = shlex.split(lines[0].replace("--param ", "--param="))
    if "-cc1" not in told:
        # gcc moves parameters to the front, and may leave out what a later option takes back.
        last: dict[str, str] = {}
        for word in reversed(told):
            if word.startswith(("-m", "--param=")):
                last.setdefault(_SWITCH.sub("", word), word)
        return _Told(tuple(sorted(reversed(list(last.values())), key=lambda w: w.startswith("--"))))
    pairs = list(pairwise(told))
    features = {value[1:]: value for name, value in pairs if name == "-target-feature"}
    return _Told((), dict(pairs).get("-target-cpu", ""), dict(pairs).get("-tune-cpu", ""), frozenset(features.values()))
