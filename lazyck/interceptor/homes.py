"""Shim homes: directories that look like a toolchain's home, in which its compilers are shims."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from lazyck.toolchains import lookup

_SYSTEM = ("/", "/usr", "/usr/local")


def is_system(home: str) -> bool:
    """Whether `home` holds far more than a toolchain, so that its `bin` must not come first on PATH."""
    return os.path.normpath(home) in _SYSTEM


def programs_in(home: str, programs: Iterable[str]) -> dict[str, str]:
    """Which of `programs` (paths below a home) are in `home`: canonical path → the path that it was asked by.

    Canonical: `llvm/bin/clang++` is `lib/llvm/bin/clang++` where `llvm` links to `lib/llvm`. Only the directories'
    links are followed, since drivers know themselves by their name. What a link leads out of the home stays as it is.
    """
    found: dict[str, str] = {}
    for program in programs:
        path = f"{home}/{program}"
        if lookup.is_program(path) and not lookup.is_shim(path):
            found.setdefault(_canonical(Path(home), program), program)
    return found


def mirror(real: Path, shim_home: Path, places: Iterable[str], *, hidden: Collection[str] = ()) -> None:
    """Make `shim_home` look like `real`, but for the canonical `places`, which it lacks: shims go there.

    The directories that hold them are real ones, so that `realpath` does not lead from a shim to what it stands for.
    `hidden` are further names that its `bin` is to lack.
    """
    if shim_home.exists():
        shutil.rmtree(shim_home)  # does not follow links
    (shim_home / "bin").mkdir(parents=True)
    left_out = {*places, *(f"bin/{name}" for name in hidden)}
    directories = {"", "bin"}
    for place in left_out:
        directories |= {str(p) for p in Path(place).parents if str(p) != "."}
    _mirror_directory(real, shim_home, "", directories, left_out)


def on_path(home: str, env: Mapping[str, str]) -> set[str]:
    """The names in `home/bin` that PATH finds elsewhere: a `bin` that comes first on PATH must not hold them."""
    if is_system(home):
        return {e.name for e in Path(home, "bin").iterdir()}
    return {e.name for e in Path(home, "bin").iterdir() if _found_elsewhere(e, env)}


def hides_nothing(home: Path, tools: Iterable[str], env: Mapping[str, str]) -> bool:
    """Whether `home/bin` first on PATH would change no look-up: of `tools`, nor of anything else."""
    if is_system(str(home)):
        return False
    own = set(tools)
    return not any(_found_elsewhere(e, env) for e in (home / "bin").iterdir() if e.name not in own) and all(
        lookup.which(t, env) in (None, str(home / "bin" / t)) for t in own
    )


def _found_elsewhere(entry: Path, env: Mapping[str, str]) -> bool:
    found = lookup.which(entry.name, env, launchers=True)
    return found is not None and found != str(entry)


def _canonical(home: Path, program: str) -> str:
    place = home / program
    inside = _below(place.parent, home)
    return program if inside is None else os.path.normpath(f"{inside}/{place.name}")


def _below(path: Path, home: Path) -> str | None:
    """`path`, links followed, relative to `home`; None if that is elsewhere."""
    try:
        inside = str(path.resolve().relative_to(home.resolve()))
    except ValueError:
        return None
    return "" if inside == "." else inside


def _mirror_directory(real: Path, shim_home: Path, at: str, directories: set[str], left_out: set[str]) -> None:
    for entry in (real / at).iterdir():
        place = f"{at}/{entry.name}" if at else entry.name
        target = shim_home / place
        if place in left_out:
            continue
        if place in directories:
            target.mkdir(exist_ok=True)
            _mirror_directory(real, shim_home, place, directories, left_out)
            continue
        leads_to = _below(entry, real) if entry.is_symlink() and entry.is_dir() else None
        if leads_to is not None and leads_to in directories:  # `llvm` → `lib/llvm`: the shim home's own
            target.symlink_to(os.path.relpath(shim_home / leads_to, target.parent))
        else:
            target.symlink_to(entry)
