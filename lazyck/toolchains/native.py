"""Replaces options that mean the CPU of the machine that builds by what they mean to the compiler.
A blob's recipe says the same everywhere, and so does its key."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from lazyck import proc
from lazyck.toolchains.options import CommandItem, join

_NATIVE = re.compile(r"-m(arch|tune|cpu)=native")
_SWITCH = re.compile(r"^-m(no-)?|(?<!--param)=.*")


def names_native(words: Sequence[str]) -> bool:
    return any(_NATIVE.search(word) for word in words)


def portable(compiler: Sequence[str], items: Sequence[CommandItem]) -> list[CommandItem]:
    """Return the options `items` of a compile by `compiler` (an argv prefix) without `native`, if
    there are others for which it makes the same code."""
    if not any(_NATIVE.fullmatch(i.words[0]) for i in items):
        return list(items)
    machine = tuple(i.words[0] for i in items if i.words[0].startswith("-m") and len(i.words) == 1)
    meant = _meaning(tuple(compiler), machine)
    return _replaced(items, CommandItem(meant, meant[0])) if meant else list(items)


def _replaced(items: Sequence[CommandItem], meant: CommandItem) -> list[CommandItem]:
    """Return `items` with `meant` in place of the first option that says `native`, and no other."""
    places = [n for n, item in enumerate(items) if _NATIVE.fullmatch(item.words[0])]
    return [meant if n == places[0] else item for n, item in enumerate(items) if n not in places[1:]]


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
    items = _replaced([CommandItem((w,), w) for w in machine], CommandItem(tuple(words), words[0]))
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
    shown = proc.run([*compiler, *words, "-###", "-x", "c", "-c", "/dev/null", "-o", "/dev/null"])
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
