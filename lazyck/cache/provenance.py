"""Shows who made the entries of a library, as the remotes' signed provenance says it."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lazyck.cache.transfer import open_remote
from lazyck.directory import RefusedError, opened_in
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.remote import EntryName
from lazyck.remote.provenance import Provenance
from lazyck.visible import visible


@dataclass(frozen=True)
class Origin:
    """An entry of the local cache, and who made it. `problem` is why no trusted key vouches."""

    entry: BlobEntry
    provenance: Provenance | None = None
    problem: str = ""


def find(env: Mapping[str, str], found: Sequence[BlobEntry]) -> list[Origin]:
    """Return who made the entries that the cache has. Raises `LazyckError` without a remote."""
    skipped: list[str] = []
    remote = open_remote(env, skipped.append)
    origins = []
    for entry in found:
        name = EntryName(entry.key, entry.place)
        sha256 = ""
        if entry.cached:
            with contextlib.suppress(OSError, RefusedError), opened_in(entry.root, entry.path) as file:
                sha256 = hashlib.sha256(file.read()).hexdigest()
        if not sha256:
            origins.append(Origin(entry, problem="the cache does not have it"))
            continue
        provenance = remote.provenance(name, sha256)
        why = [*remote.problems_of(name), *skipped, "no remote has a provenance signed by a key of LAZYCK_TRUST"]
        origins.append(Origin(entry, provenance, "" if provenance else why[0]))
    return origins


def render(origins: Sequence[Origin]) -> str:
    lines = []
    for o in origins:
        head = f"{visible(o.entry.name)} ({visible(o.entry.shown_arch)})"
        if o.provenance is None:
            lines.append(f"{head}: {visible(o.problem)}")
            continue
        p = o.provenance
        lines += [f"{head}: compiled by {visible(p.host)}, {visible(p.finished)}"]
        lines += [f"  with       {visible(uri)}" for uri in p.dependencies]
        lines += [f"  contents   {p.sha256}, as in the cache", f"  signed by  {p.signer}"]
    return "\n".join(lines)


def to_json(origins: Sequence[Origin]) -> list[dict[str, object]]:
    return [
        {"blob": o.entry.name, "arch": o.entry.shown_arch, "path": str(o.entry.path),
         "signer": o.provenance.signer if o.provenance else "",
         "statement": o.provenance.statement if o.provenance else None, "problem": o.problem}
        for o in origins
    ]  # fmt: skip
