"""Match the names that users give blobs: stem, basename, source path, cached `.so` path, shell
pattern, or lists."""

import difflib
import fnmatch
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from lazyck.errors import LazyckError, UsageError
from lazyck.formats.layout import EntryPath
from lazyck.formats.manifest import BlobRecord, Manifest
from lazyck.history.profile import decode

_MOST_SUGGESTIONS = 5  # each takes a second in a library of some 10,000 blobs
_PART = re.compile(r"(?P<blob>.+)\.(?:host|device|[^.]*-[0-9a-f]{8})")


@dataclass(frozen=True)
class Selection:
    """A manifest, and those of its blobs that a command is about."""

    manifest: Manifest
    blobs: tuple[BlobRecord, ...]

    @property
    def hosts(self) -> "Selection":
        """Return the host units among them. They are to be made first, since they tell which
        kernels there are."""
        return replace(self, blobs=tuple(b for b in self.blobs if b.name.endswith(".host") and b.unit))


class UnknownBlobs(LazyckError):
    """Names that match no blob of the manifest."""

    def __init__(self, unknown: Sequence[str], library: str, known: Sequence[str]) -> None:
        near = [difflib.get_close_matches(name, known, n=1) for name in unknown[:_MOST_SUGGESTIONS]]
        near += [[]] * (len(unknown) - len(near))
        lines = [f"  {name}" + "".join(f" (did you mean {n}?)" for n in found)
                 for name, found in zip(unknown, near, strict=True)]  # fmt: skip
        super().__init__(
            "\n".join([f"{library} has no blob of {'this name' if len(unknown) == 1 else 'these names'}:", *lines]),
            "`lazyck prebuild list --manifest FILE` prints the names; `lazyck profile prune` drops old ones of a list",
        )


def read_list(name: str, stdin: TextIO, library: str = "") -> list[str]:
    """Return the names in a blob list. There is one name per line; `#` begins a comment; columns
    after the first (a tab ends it) are ignored.

    `-` is stdin. A profile is such a list. Its lines about libraries other than `library` are
    passed over, as are lines that a crash cut short. Raises `UsageError` and `FormatError`.
    """
    try:
        raw = stdin.read() if name == "-" else Path(name).read_text(errors="surrogateescape")
    except OSError as e:
        raise UsageError(f"--blob-list {name}: {e.strerror}", "give a readable file, or `-` for stdin") from e
    uses = [line.use for line in decode(raw.encode("utf-8", "surrogateescape"), f"--blob-list {name}").lines]
    return [u.blob for u in uses if u is not None and (not library or u.library in ("", library))]


class BlobNames:
    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._index: dict[str, set[int]] = {}
        self.own = {blob.name for blob in manifest.blobs}
        self._with_parts = {blob.name: i for i, blob in enumerate(manifest.blobs) if blob.units}
        for i, blob in enumerate(manifest.blobs):
            base = os.path.basename(blob.source)
            of_source = {base, base.rpartition(".")[0] or base}
            for key in {blob.name, *blob.symbols} if blob.is_kernel else {blob.name, *of_source}:
                self._index.setdefault(key, set()).add(i)

    def part(self, name: str) -> int | None:
        """Return the number of the blob of which `name` is a part: its host unit, all its device
        code, or a kernel."""
        found = _PART.fullmatch(name)
        return self._with_parts.get(found["blob"]) if found else None

    def has(self, name: str) -> bool:
        return name in self.own or self.part(name) is not None

    def knows(self, name: str) -> bool:
        return bool(self.find(name)) or self.part(name) is not None

    def find(self, name: str) -> set[int]:
        """Return the numbers of the blobs that `name`, which may be a shell pattern, can mean."""
        base = os.path.basename(name.rstrip("/"))
        file = EntryPath("", "", base)
        blob = file.blob if file.is_entry or file.is_log else ""
        index = self._index
        found = index.get(name) or index.get(base) or index.get(blob) or set()
        if "/" in name and len(found) > 1:  # a path tells equal stems apart
            given = "/" + os.path.normpath(name).lstrip("/")
            sources = {i: "/" + self._manifest.blobs[i].source.split("/tree/", 1)[-1] for i in found}
            exact = {i for i, source in sources.items() if source.endswith(given) or given.endswith(source)}
            return exact or found
        if not found and any(c in name for c in "*?["):
            return set().union(*(found for key, found in index.items() if fnmatch.fnmatchcase(key, name)))
        return found


def select(manifest: Manifest, given: Iterable[str], every: bool, *, kernels: bool = False) -> Selection:
    """Return the blobs that `given` names, each once and in the manifest's order, followed by parts
    of blobs. If all kernels of a source are wanted, the row of the whole source stands for them;
    with `kernels`, each kernel is listed. If kernels of a blob are named, the blob itself is not
    selected, since a profile names both.

    Raises `UnknownBlobs` for names that match none, and `UsageError` if nothing was named.
    """
    wanted = list(given)
    if not wanted and not every:
        raise UsageError("no blob named", "name blobs, or give --blob-list FILE or --all")
    names = BlobNames(manifest)
    chosen: set[int] = set(range(len(manifest.blobs))) if every else set()
    parts: dict[str, int] = {}
    unknown = []
    for name in wanted:
        found = names.find(name)
        chosen |= found
        if not found and (blob := names.part(name)) is not None:
            parts |= {f"{manifest.blobs[blob].name}.host": blob, name: blob}
        elif not found:
            unknown.append(name)
    if not every:
        chosen -= set(parts.values())
    if unknown:
        raise UnknownBlobs(unknown, manifest.library, sorted(names.own))
    wholes = {b.unit: i for i, b in enumerate(manifest.blobs) if b.is_whole}
    kernels_of: dict[int, set[int]] = {i: set() for i in wholes.values()}
    for i, row in enumerate(manifest.blobs):
        if row.is_kernel and row.unit in wholes:
            kernels_of[wholes[row.unit]].add(i)
    for whole, own in kernels_of.items():
        if kernels and whole in chosen:
            chosen = (chosen - {whole}) | own
        elif not kernels and (whole in chosen or (own and own <= chosen)):
            chosen = (chosen - own) | {whole}
    rows = [manifest.blobs[i] for i in sorted(chosen)]
    return Selection(manifest, (*rows, *(part_of(manifest.blobs[i], name) for name, i in parts.items())))


def whole_of(manifest: Manifest, blobs: Iterable[BlobRecord]) -> dict[str, str]:
    """Map the names of kernels among `blobs` to the rows of all device code of their sources."""
    rows = {b.unit: b.name for b in manifest.blobs if b.is_whole}
    kernels = (b for b in blobs if b.is_kernel and not b.name.endswith((".host", ".device")))
    return {b.name: rows.get(b.unit, f"{b.unit}.device") for b in kernels}


def part_of(blob: BlobRecord, name: str) -> BlobRecord:
    return replace(blob, name=name, symbols=(name,), kernel=f"{blob.name}\t{name}", units=None)
