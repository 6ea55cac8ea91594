"""What an intercepted link takes: deferred objects (with the blobs that they stand for), real objects, archives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck.command import CompileCommand, LinkCommand
from lazyck.postbuild import elf
from lazyck.toolchains.options import Item, OptionTable, Role


@dataclass(frozen=True)
class LinkInputs:
    """A link command taken apart.

    `items` are its options and inputs; `deferred`, `objects` and `archives` are indices into them (`archives` holds
    those that are named by their path). `blobs` are those of deferred objects and of deferred members of archives,
    in link order, each source once.
    """

    items: tuple[Item, ...]
    shared: bool
    soname: str
    deferred: frozenset[int]
    objects: frozenset[int]
    archives: frozenset[int]
    blobs: tuple[CompileCommand, ...]


def read_inputs(link: LinkCommand, table: OptionTable) -> LinkInputs:
    """Look at every input file of `link`. Raises `FormatError` for a damaged record."""
    items = tuple(table.split(link.call.argv[link.call.prefix :]))
    deferred: set[int] = set()
    objects: set[int] = set()
    archives: set[int] = set()
    blobs: dict[str, CompileCommand] = {}
    for i, item in enumerate(items):
        path = link.call.path(item.value or "") if not item.name else ""
        if not path or not Path(path).is_file():
            continue
        kind = elf.kind(path)
        if kind == "archive":
            archives.add(i)
        elif kind == "bitcode":
            objects.add(i)
        elif kind == "object":
            (deferred if elf.open_image(path).is_deferred else objects).add(i)
        if kind in ("archive", "object"):
            blobs.update((b.source, b) for b in elf.deferred_records(path))
    return LinkInputs(
        items,
        any(item.name in ("-shared", "--shared") for item in items),
        soname_of(items),
        frozenset(deferred),
        frozenset(objects),
        frozenset(archives),
        tuple(blobs.values()),
    )


def linker_words(items: Sequence[Item]) -> list[str]:
    """The words that a driver hands to the linker as they are."""
    words: list[str] = []
    for item in items:
        if item.role is Role.LINKER:
            words += (item.value or "").split(",")
        elif item.name.startswith("-soname"):
            words += item.words
    return words


def soname_of(items: Sequence[Item]) -> str:
    """The soname that a link command sets, or ""."""
    it = iter(linker_words(items))
    for word in it:
        if word in ("-soname", "--soname", "-h"):
            return next(it, "")
        for lead in ("-soname=", "--soname=", "-h"):
            if word.startswith(lead) and not word.startswith("-hash"):
                return word[len(lead) :]
    return ""


def library_name(output: str) -> str:
    """The name by which a library is known: its file name up to `.so`."""
    base = os.path.basename(output)
    return base.partition(".so")[0] or base
