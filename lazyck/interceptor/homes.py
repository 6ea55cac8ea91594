"""Make shim homes: directories that look like a toolchain's home, but whose compilers are shims."""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from lazyck.toolchains import lookup

_SYSTEM = ("/", "/usr", "/usr/local")


def is_system(home: str) -> bool:
    """Return whether `home` holds far more than a toolchain, so that its `bin` must not come first
    on PATH.
    """
    return os.path.normpath(home) in _SYSTEM


def programs_in(home: str, programs: Iterable[str]) -> dict[str, str]:
    """Find which of `programs` (paths below a home) are in `home`. Return their canonical paths,
    each with the path that was given for it.

    The canonical path of `llvm/bin/clang++` is `lib/llvm/bin/clang++` if `llvm` links to
    `lib/llvm`. Only links of directories are followed, since drivers recognize themselves by their
    name. A path stays as it is if a link leads out of the home.
    """
    found: dict[str, str] = {}
    for program in programs:
        path = f"{home}/{program}"
        if lookup.is_program(path) and not lookup.is_shim(path):
            found.setdefault(_canonical(Path(home), program), program)
    return found


def mirror(real: Path, shim_home: Path, places: Iterable[str], *, hidden: Collection[str] = ()) -> None:
    """Make `shim_home` look like `real`, but without the canonical `places`, where shims go.

    The directories that hold the places are real ones, so that `realpath` does not lead from a shim
    to the program that it stands for. `hidden` are further names that `bin` must not have.
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
    """Return the names in `home/bin` that PATH finds elsewhere: a `bin` that comes first on PATH
    must not hold them.
    """
    return {e.name for e in Path(home, "bin").iterdir() if is_system(home) or _found_elsewhere(e, env)}


def hides_nothing(home: Path, tools: Iterable[str], env: Mapping[str, str]) -> bool:
    """Return whether `home/bin` first on PATH would change no look-up, neither of `tools` nor of
    any other program.
    """
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
    """Return `path`, with links followed, relative to `home`; None if it is elsewhere."""
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
        if leads_to is not None and leads_to in directories:  # `llvm` → `lib/llvm`: links within the shim home
            target.symlink_to(os.path.relpath(shim_home / leads_to, target.parent))
        else:
            target.symlink_to(entry)
