"""List which blobs there are, and for which archs they are cached (`lazyck prebuild list`)."""

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck.abi import archs_in_name
from lazyck.formats.manifest import BlobRecord
from lazyck.prebuild.blob_entries import (
    BlobEntry,
    arch_sets,
    cached_archs,
    first_sets,
    known_kernels,
    needs_whole,
    serving,
    with_wholes,
)
from lazyck.prebuild.blob_names import Selection
from lazyck.runtime.tool import tool
from lazyck.visible import visible

FORMATS = ("text", "json", "blob-list")


@dataclass(frozen=True)
class Row:
    """A blob, its cached entries by archs, and whether it has all that was asked for (or any, if
    nothing was)."""

    blob: BlobRecord
    entries: Mapping[str, Path]
    is_cached: bool


def matching(selection: Selection, pattern: str) -> Selection:
    """Return the blobs whose name or source matches the shell pattern; all, if it is empty."""
    if not pattern:
        return selection
    fits = [b for b in selection.blobs if any(fnmatch.fnmatchcase(t, pattern) for t in (b.name, b.source))]
    return Selection(selection.manifest, tuple(fits))


def by_kernel(manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> Selection:
    """Return the selection with kernels in place of the blobs whose cached host units tell which
    kernels there are."""
    found: dict[str, dict[str, BlobRecord]] = {}
    for blob, kernel in known_kernels(tool(env), manifest_file, selection, gpu_archs, env):
        found.setdefault(blob, {})[kernel.name] = kernel
    rows = [row for b in selection.blobs for row in found.get(b.name, {b.name: b}).values()]
    return Selection(selection.manifest, tuple(rows))


def list_blobs(manifest_file: Path, selection: Selection, gpu_archs: str, env: Mapping[str, str]) -> list[Row]:
    rt = tool(env)
    have: dict[str, dict[str, Path]] = {b.name: {} for b in selection.blobs}
    whole = dict.fromkeys(have, True)
    for archs, chosen in arch_sets(selection, gpu_archs, env) if gpu_archs else first_sets(selection, env):
        for own, of_source in with_wholes(rt, manifest_file, chosen, archs, env):
            if gpu_archs:
                entry = serving(own, of_source)
                whole[own.name] &= entry.cached
                have[own.name] |= {archs_in_name(entry.shown_arch): entry.path} if entry.cached else {}
            else:
                alone = {a: p for a, p in _cached(own).items() if own is of_source or not needs_whole(p)}
                have[own.name] = _cached(of_source) | alone
                whole[own.name] = bool(have[own.name])
    return [Row(b, have[b.name], whole[b.name]) for b in selection.blobs]


def _cached(entry: BlobEntry) -> dict[str, Path]:
    # It may lie elsewhere than new entries would.
    here = {archs_in_name(entry.shown_arch): entry.path} if entry.cached else {}
    return here | cached_archs(entry)


def render(rows: Sequence[Row], form: str, readable: Mapping[str, str]) -> str:
    """Render lines `name <tab> archs or -` (and a tab and the kernel), names alone (a --blob-list),
    or JSON.

    `readable` maps kernels' symbols to the form that people read.
    """

    def kernel_of(row: Row) -> str:
        return readable.get(row.blob.symbols[0], row.blob.symbols[0])

    if form == "json":
        listed = [
            {"name": r.blob.name, "source": r.blob.source, "cached": r.is_cached, "symbols": len(r.blob.symbols),
             **({"kernel": kernel_of(r)} if r.blob.is_kernel else {}),
             "entries": {arch: str(path) for arch, path in sorted(r.entries.items())}}
            for r in rows
        ]  # fmt: skip
        return json.dumps(listed, indent=1) + "\n"
    if form == "blob-list":
        return "".join(f"{r.blob.name}\n" for r in rows)
    lines = []
    for row in rows:
        kernel = f"\t{visible(kernel_of(row))}" if row.blob.is_kernel else ""
        lines.append(f"{visible(row.blob.name)}\t{visible(' '.join(sorted(row.entries))) or '-'}{kernel}\n")
    return "".join(lines)
