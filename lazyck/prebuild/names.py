"""How users name blobs: bare stem, basename, source path, cached `.so` path, or lists of these."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lazyck.errors import LazyckError, UsageError
from lazyck.manifest import BlobRecord, Manifest

_ENTRY = re.compile(r"(?P<name>.+)-[0-9a-f]{16}\.(?:so|log)")


@dataclass(frozen=True)
class Selection:
    """A manifest and the blobs of it that a command is about."""

    manifest: Manifest
    blobs: tuple[BlobRecord, ...]


class UnknownBlobs(LazyckError):
    """Names that no blob of the manifest answers to."""

    def __init__(self, unknown: Sequence[str], library: str) -> None:
        lines = "\n".join(f"  {name}" for name in unknown)
        super().__init__(
            f"{library} has no blob of {'this name' if len(unknown) == 1 else 'these names'}:\n{lines}",
            "`lazyck prebuild list --manifest FILE` prints the names",
        )


def read_list(name: str, stdin: TextIO) -> list[str]:
    """The names in a blob list: one a line, `#` begins a comment, columns after the first (a tab ends it) are ignored.

    `-` is stdin. Raises `UsageError` if the file cannot be read.
    """
    try:
        text = stdin.read() if name == "-" else Path(name).read_text(errors="surrogateescape")
    except OSError as e:
        raise UsageError(f"--blob-list {name}: {e.strerror}", "give a readable file, or `-` for stdin") from e
    lines = (line.split("\t")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def select(manifest: Manifest, given: Iterable[str], every: bool) -> Selection:
    """The blobs that `given` names, each once, in the manifest's order.

    Raises `UnknownBlobs` for names that fit none, `UsageError` when nothing was named.
    """
    names = list(given)
    if not names and not every:
        raise UsageError("no blob named", "name blobs, or give --blob-list FILE or --all")
    index: dict[str, set[int]] = {}
    for i, blob in enumerate(manifest.blobs):
        base = os.path.basename(blob.source)
        for key in {blob.name, base, base.rpartition(".")[0] or base}:
            index.setdefault(key, set()).add(i)
    chosen: set[int] = set(range(len(manifest.blobs))) if every else set()
    unknown = []
    for name in names:
        found = _lookup(name, index, manifest)
        chosen |= found
        if not found:
            unknown.append(name)
    if unknown:
        raise UnknownBlobs(unknown, manifest.library)
    return Selection(manifest, tuple(manifest.blobs[i] for i in sorted(chosen)))


def _lookup(name: str, index: dict[str, set[int]], manifest: Manifest) -> set[int]:
    base = os.path.basename(name.rstrip("/"))
    entry = _ENTRY.fullmatch(base)
    found = index.get(name) or index.get(base) or (index.get(entry["name"]) if entry else None) or set()
    if "/" in name and len(found) > 1:  # a path tells equal stems apart
        tail = os.path.normpath(name).lstrip("/")
        exact = {i for i in found if _same_tail(manifest.blobs[i].source, tail)}
        return exact or found
    return found


def _same_tail(source: str, given: str) -> bool:
    a, b = source.split("/tree/", 1)[-1], given
    return a == b or b.endswith("/" + a) or a.endswith("/" + b)
