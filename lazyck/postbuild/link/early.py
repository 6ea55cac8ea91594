"""Knows which functions of a lazy library resolvers (IFUNC) of other files of the build may call:
while the loader relocates, when no blob can be compiled or loaded.

Such a file is linked after the library that it needs. So when the build has ended, a library with
such functions is linked once more, as it was, with their blobs as objects. What was found is kept,
for its next link.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from lazyck.errors import FormatError
from lazyck.files import encode, write_atomic
from lazyck.postbuild import state
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.postbuild.objects.reveal import plain_name

RECORD = "link.rec"  # in a library's directory: the record of its link
_FOUND = "early"  # in the tmp dir: a file for each library with such functions


def known(tmp: Path, directory: Path) -> frozenset[str]:
    """Return such functions of the library that `directory` belongs to."""
    try:
        return frozenset(map(os.fsdecode, (tmp / _FOUND / directory.name).read_bytes().split(b"\0")))
    except OSError:
        return frozenset()


def find(outputs: Iterable[str], tmp: Path) -> list[Path]:
    """Look into the `outputs` of a build's links for such functions of the lazy libraries of `tmp`,
    and keep them. Return the directories of libraries that have some of them lazy."""
    functions: dict[str, dict[Path, frozenset[str]]] = {}
    for directory in state.library_dirs(tmp):
        try:
            st = state.load(directory)
            soname = elf.read_shared(directory / st.file_name).soname
            lazy = frozenset(map(plain_name, read_manifest(directory / "manifest").functions))
        except FormatError:
            continue  # of another lazyck's build
        if lazy and (directory / RECORD).is_file():
            functions.setdefault(soname or st.file_name, {})[directory] = lazy
    asked: dict[Path, frozenset[str]] = {}
    for output in outputs:
        if not functions or not os.path.isfile(output) or elf.kind(output) not in ("shared", "executable"):
            continue
        try:
            needed, early = elf.called_early(output)
        except FormatError:
            continue  # the loader will say so
        for directory, lazy in (item for name in needed for item in functions.get(name, {}).items()):
            asked[directory] = asked.get(directory, frozenset()) | (early & lazy)
    found = [directory for directory, early in asked.items() if early]
    for directory in found:
        names = sorted(asked[directory] | known(tmp, directory))
        write_atomic(tmp / _FOUND / directory.name, b"\0".join(map(encode, names)))
    return found
