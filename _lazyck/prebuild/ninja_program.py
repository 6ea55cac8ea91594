"""Find the program that the Python package `ninja` contains."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import ninja

from _lazyck import proc
from _lazyck.errors import ToolchainError


def find_ninja(env: Mapping[str, str]) -> Path:
    """Return the absolute path of `ninja`: the package's own program, or else the first on the PATH
    of `env`.

    `ninja.BIN_DIR` is empty if the package lies outside this interpreter's own packages: named by
    PYTHONPATH, or installed by `pip --target`. In these cases, its list of files and the `bin`
    beside it are searched. Raises `ToolchainError` if there is none.
    """
    for program in _of_the_package():
        if program.is_file() and os.access(program, os.X_OK):
            return program
    found = proc.find_program("ninja", env)
    if found is None:
        raise ToolchainError(
            f"no `ninja`: the Python package in {Path(ninja.__file__).parent} lacks it, and PATH leads to none",
            "install it again: python -m pip install --force-reinstall ninja (or Debian's ninja-build)",
        )
    return Path(found)


def _of_the_package() -> Iterator[Path]:
    if ninja.BIN_DIR:
        yield Path(ninja.BIN_DIR) / "ninja"
    with suppress(PackageNotFoundError):
        yield from (Path(os.path.abspath(f.locate())) for f in files("ninja") or () if f.name == "ninja")
    yield Path(ninja.__file__).absolute().parents[1] / "bin" / "ninja"
