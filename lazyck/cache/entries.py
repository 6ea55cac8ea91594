"""The entries of a cache, found by the names of its files (docs/cache-format.md)."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi, terminal
from lazyck.directory import Directory, find_root, read_leaves
from lazyck.errors import LazyckError, UsageError
from lazyck.formats.layout import ENTRY, SEEN, EntryPath, is_of_entry, split_leaf
from lazyck.quantities import counted, show_seconds, show_size
from lazyck.settings.environment import cache_dir
from lazyck.visible import visible

# The orders in which entries can be sorted, with their sort keys.
ORDERS: "Mapping[str, Callable[[CacheEntry], tuple[float | str, ...]]]" = {
    "name": lambda e: (e.at.blob, e.at.library, e.at.archs),
    "size": lambda e: (-e.size, e.at.blob),
    "age": lambda e: (e.made, e.at.blob),
    "used": lambda e: (e.used, e.at.blob),
}


@dataclass(frozen=True)
class CacheEntry:
    """One entry, `at` a place of its cache. `made` and `used` are seconds since 1970."""

    path: Path
    at: EntryPath
    size: int
    made: float
    used: float


def cache_of(env: Mapping[str, str]) -> Path:
    """Return the cache that the environment names, by the runtime's rules. Raises `UsageError`."""
    found = cache_dir(env)
    if found is None:
        raise UsageError("no home directory for the cache", f"set {abi.ENV_CACHE_DIR}")
    return found


def is_there(cache: Path) -> bool:
    """Return whether the cache exists. Raises `RefusedError` for one that the runtime refuses, and
    `LazyckError` for one that cannot be read."""
    try:
        root = find_root(cache)
        if root is not None:
            with root:
                root.names()
        return root is not None
    except OSError as e:
        hint = f"run this as the cache's owner, or set {abi.ENV_CACHE_DIR} to a directory of your own"
        raise LazyckError(f"the cache {cache} cannot be read: {e.strerror}", hint) from e


def cache_to_read(env: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the cache that `env` names and whether it exists. Prints a line if it does not. Raises
    as `cache_of` and `is_there` do."""
    cache = cache_of(env)
    found = is_there(cache)
    if not found:
        terminal.say(f"there is no cache at {visible(str(cache))} yet")
    return cache, found


@dataclass(frozen=True)
class CacheContents:
    """The contents of a cache.

    `preambles` are the sizes of precompiled preambles. `used_bytes` is the disk space that the
    runtime limits: of entries with all files beside them, of logs of failures, and of preambles.
    """

    entries: list[CacheEntry]
    preambles: list[int]
    used_bytes: int


def read_entries(cache: Path, blob: str = "") -> Iterator[CacheEntry]:
    """Yield the entries below `v1`, or only those of `blob`, sorted by path.

    An entry that is removed in the meantime is left out. Directories that are refused are skipped
    with a warning. Raises `RefusedError` for a refused root.
    """
    for leaf in read_leaves(cache):
        yield from _entries_in(leaf, _statuses(leaf, blob), blob)


def read_holdings(cache: Path) -> CacheContents:
    """Return everything that a cache holds. Raises `RefusedError` for a refused root."""
    found: list[CacheEntry] = []
    with find_root(cache) or contextlib.nullcontext() as root:
        preambles = _sizes_in(root.find(abi.CACHE_PREAMBLES)) if root else []
    blocks = 0
    for leaf in read_leaves(cache):
        statuses = _statuses(leaf)
        blocks += sum(info.st_blocks for info in statuses.values())
        found += _entries_in(leaf, statuses)
    return CacheContents(found, preambles, blocks * 512 + sum(preambles))


def _statuses(leaf: Directory, blob: str = "") -> dict[str, os.stat_result]:
    """Return the status of each file of an entry (of `blob`) in `leaf`, sorted by name."""
    names = (n for n in leaf.names() if n.startswith(blob) and is_of_entry(n))
    return {name: info for name in names if (info := leaf.status(name))}


def _entries_in(leaf: Directory, statuses: Mapping[str, os.stat_result], blob: str = "") -> Iterator[CacheEntry]:
    for name, info in statuses.items():
        at = EntryPath.of(leaf.path / name)
        if not at.is_entry or not at.build or blob not in ("", at.blob) or not stat.S_ISREG(info.st_mode):
            continue
        seen = statuses.get(name.removesuffix(ENTRY) + SEEN, info)
        used = max(seen.st_mtime, info.st_mtime)
        yield CacheEntry(leaf.path / name, at, info.st_size, info.st_mtime, used)


def _sizes_in(directory: Directory | None) -> list[int]:
    """Close a directory, and return the bytes on disk of each thing in it, with all below."""
    if directory is None:
        return []
    with directory:
        infos = {name: info for name in directory.names() if (info := directory.status(name))}
        return [
            info.st_blocks * 512 + (sum(_sizes_in(directory.find(name))) if stat.S_ISDIR(info.st_mode) else 0)
            for name, info in infos.items()
        ]


def leaves_of(cache: Path, library: str, arch: str) -> list[str]:
    """Return the paths of the directories with the entries of a library and for an arch, selected
    as `choose` does. Raises `RefusedError` for a refused root."""
    paths = (leaf.path for leaf in read_leaves(cache))
    return [str(p) for p in paths if library in ("", p.parent.name) and _is_for(split_leaf(p.name)[0], arch)]


def choose(entries: Iterable[CacheEntry], library: str, arch: str) -> list[CacheEntry]:
    """Return the entries of a library and for an arch. An empty string means any."""
    return [e for e in entries if library in ("", e.at.library) and _is_for(e.at.archs, arch)]


def _is_for(archs: str, arch: str) -> bool:
    return abi.archs_in_name(arch) in ("", archs, *archs.split("+"))


def render(entries: Sequence[CacheEntry], now: float) -> str:
    rows = [("size", "age", "last use", "arch", "library", "blob")]
    for e in entries:
        times = (show_seconds(max(0, round(now - t))) for t in (e.made, e.used))
        rows.append((show_size(e.size), *times, *map(visible, (e.at.archs, e.at.library, e.at.blob))))  # type: ignore[arg-type]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i < 3 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    total = f"{counted(len(entries), 'entry', 'entries')}, {show_size(sum(e.size for e in entries))}"
    return "\n".join([*lines, total])


def to_json(entries: Sequence[CacheEntry], now: float) -> list[dict[str, object]]:
    """Return the entries for programs. Ages are in seconds."""
    return [
        {"path": str(e.path), "blob": e.at.blob, "library": e.at.library, "arch": e.at.archs, "build": e.at.build,
         "digest": e.at.digest, "size": e.size, "age": round(now - e.made, 1), "last_use": round(now - e.used, 1)}
        for e in entries
    ]  # fmt: skip
