"""What pushing and pulling entries have in common: which entries, and which remote."""

import contextlib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _lazyck import abi
from _lazyck.cache.entries import read_entries
from _lazyck.cache.transfer import Item
from _lazyck.errors import FormatError, LazyckError, UsageError
from _lazyck.manifest import Manifest
from _lazyck.prebuild import blob_names
from _lazyck.prebuild.entries import Entry
from _lazyck.profile import Profile
from _lazyck.remote import EntryName, Listener, Remote


@dataclass(frozen=True)
class Share:
    """How to push or pull."""

    env: Mapping[str, str]
    jobs: int
    dry_run: bool


def select_blobs(manifest: Manifest, patterns: Sequence[str], profiles: Sequence[Profile]) -> blob_names.Selection:
    """Return the blobs that patterns and profiles name, or all if there are neither. Raises
    `LazyckError` for a name or pattern that fits none."""
    # Lines of a profile that belong to other libraries do not count here.
    given = [u.blob for p in profiles for u in p.uses if u.library in ("", manifest.library)]
    return blob_names.select(manifest, [*given, *patterns], not patterns and not profiles)


def items_of(found: Sequence[Entry]) -> list[Item]:
    """Return the entries of a library's blobs."""
    return [Item(EntryName(e.key, e.place), e.path) for e in found]


def local_items(cache: Path, patterns: Sequence[str], profiles: Sequence[Profile]) -> list[Item]:
    """Return the entries of the cache, of any library, whose blobs fit. Raises `LazyckError` for a
    pattern that fits none."""
    wanted = {(library, u.blob) for p in profiles for u in p.uses for library in (u.library, abi.PROGRAMS)}
    unused = set(patterns)
    items = []
    for e in read_entries(cache):
        fits = [p for p in patterns if fnmatch.fnmatchcase(e.at.blob, p)]
        unused -= set(fits)
        if fits or {(e.at.library, e.at.blob), ("", e.at.blob)} & wanted or not (patterns or profiles):
            with contextlib.suppress(FormatError, OSError):  # a damaged entry: `cache verify` reports it
                items.append(Item(EntryName.of_file(cache, e.path), e.path))
    if unused:
        problem = f"{cache} has no entry for a blob {sorted(unused)[0]!r}"
        raise LazyckError(problem, "`lazyck cache list` prints the names")
    return items


def open_remote(env: Mapping[str, str], skipped: Callable[[str], None]) -> Remote:
    """Open the remote of the environment, which reports to `skipped` why it skips a tier. Raises
    `LazyckError` if there is none, or if it needs something that is not installed."""
    # First calls remember which tiers were down. A user who asks explicitly wants a new try.
    remote = Remote.from_environment(env, None, Listener(skipped=skipped), remembers=False)
    if remote is None:
        raise UsageError("no remote cache is set", f"set {abi.ENV_REMOTE} (`lazyck help remote`)")
    for place in remote.places:
        place.open()
    return remote
