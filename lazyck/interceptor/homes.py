"""Shim homes: directories that look like a toolchain's home, in which its compiler is the shim."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from lazyck.toolchains import lookup

_SYSTEM = ("/", "/usr", "/usr/local")


def is_system(home: str) -> bool:
    """Whether `home` holds far more than a toolchain, so that its `bin` must not come first on PATH."""
    return os.path.normpath(home) in _SYSTEM


def mirror(real: Path, shim_home: Path, tools: Iterable[str]) -> None:
    """Make `shim_home` look like `real`, except that `bin` is a real directory and lacks `tools`."""
    _fresh(shim_home)
    _link_entries(real, shim_home, {"bin"})
    _link_entries(real / "bin", shim_home / "bin", set(tools))


def mirror_for_path(real: Path, shim_home: Path, tools: Iterable[str], env: Mapping[str, str]) -> None:
    """Like `mirror`, but `bin`, which comes first on PATH, hides nothing that PATH has: it holds no name that is
    found elsewhere. (Builds take the directory above a compiler found on PATH for its home.)"""
    _fresh(shim_home)
    _link_entries(real, shim_home, {"bin"})
    if is_system(str(real)):
        return
    taken = {e.name for e in (real / "bin").iterdir() if _found_elsewhere(e, env)}
    _link_entries(real / "bin", shim_home / "bin", taken | set(tools))


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


def _fresh(directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)  # does not follow links
    (directory / "bin").mkdir(parents=True)


def _link_entries(real: Path, into: Path, without: set[str]) -> None:
    for entry in real.iterdir():
        if entry.name not in without:
            (into / entry.name).symlink_to(entry)
