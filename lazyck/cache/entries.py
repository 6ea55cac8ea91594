"""The entries of a cache, as its directories name them (docs/cache-format.md)."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.config import cache_dir
from lazyck.directory import Directory, find_root, read_leaves
from lazyck.errors import UsageError
from lazyck.quantities import counted, show_seconds, show_size
from lazyck.visible import visible

_ENTRY = re.compile(r"(?P<blob>.+)-(?P<digest>[0-9a-f]{16})\.so")


@dataclass(frozen=True)
class CacheEntry:
    """One entry. `build` is the toolchain, with the hash of an extra key if there was one; times are since 1970."""

    path: Path
    library: str
    archs: str
    build: str
    blob: str
    digest: str
    size: int
    made: float
    used: float

    @property
    def log(self) -> Path:
        """What its compiler said; it need not be there."""
        return self.path.with_suffix(".log")


def cache_of(env: Mapping[str, str]) -> Path:
    """The cache that the environment names, as the runtime would take it. Raises `UsageError`."""
    found = cache_dir(env)
    if found is None:
        raise UsageError("no home directory for the cache", f"set {abi.ENV_CACHE_DIR}")
    if not found.is_absolute():
        raise UsageError(f"the cache {found}: a relative path is refused", f"give {abi.ENV_CACHE_DIR} an absolute one")
    return found


def parse(path: Path) -> tuple[str, str, str, str, str] | None:
    """(library, archs, build, blob, digest) of an entry's path; None for another file."""
    return _parse(path.parents[1].name, path.parent.name, path.name)


def _parse(library: str, directory: str, name: str) -> tuple[str, str, str, str, str] | None:
    found = _ENTRY.fullmatch(name)
    archs, dash, build = directory.partition("-")
    return (library, archs, build, found["blob"], found["digest"]) if found and dash else None


def read_entries(cache: Path, blob: str = "") -> Iterator[CacheEntry]:
    """The entries below `v1` ("": of any blob), sorted by path. One that is removed at this moment is not there, and
    directories that are refused are passed over, which is said. Raises `RefusedError` for a refused root."""
    for leaf in read_leaves(cache):
        for name in leaf.names():
            names = _parse(leaf.path.parent.name, leaf.path.name, name) if name.startswith(blob) else None
            info = leaf.status(name) if names and blob in ("", names[3]) else None
            if names is None or info is None or not stat.S_ISREG(info.st_mode):
                continue
            seen = leaf.status(f"{name}.seen")
            used = max(seen.st_mtime if seen else 0.0, info.st_mtime)
            yield CacheEntry(leaf.path / name, *names, info.st_size, info.st_mtime, used)


def read_preambles(cache: Path) -> list[int]:
    """The bytes on the disk of each precompiled preamble. Raises `RefusedError` for a refused root."""
    root = find_root(cache)
    found = root.find(".preambles") if root else None
    return [_bytes_in(found, name) for name in found.names()] if found else []


def _bytes_in(directory: Directory, name: str) -> int:
    info = directory.status(name)
    below = directory.find(name) if info and stat.S_ISDIR(info.st_mode) else None
    own = info.st_blocks * 512 if info else 0
    return own + (sum(_bytes_in(below, each) for each in below.names()) if below else 0)


def choose(entries: Iterable[CacheEntry], library: str, arch: str) -> list[CacheEntry]:
    """Those of a library and for an arch; "" is any."""
    wanted = abi.archs_in_name(arch)
    return [
        e
        for e in entries
        if (not library or e.library == library) and (not wanted or wanted in (e.archs, *e.archs.split("+")))
    ]


def render(entries: Sequence[CacheEntry], now: float) -> str:
    """A table, and its totals."""
    rows = [("size", "age", "last use", "arch", "library", "blob")]
    for e in entries:
        times = (show_seconds(max(0, round(now - t))) for t in (e.made, e.used))
        rows.append((show_size(e.size), *times, *map(visible, (e.archs, e.library, e.blob))))  # type: ignore[arg-type]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i < 3 else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    total = f"{counted(len(entries), 'entry', 'entries')}, {show_size(sum(e.size for e in entries))}"
    return "\n".join([*lines, total])


def to_json(entries: Sequence[CacheEntry], now: float) -> list[dict[str, object]]:
    """The entries for programs; ages are in seconds."""
    return [
        {"path": str(e.path), "blob": e.blob, "library": e.library, "arch": e.archs, "build": e.build,
         "digest": e.digest, "size": e.size, "age": round(now - e.made, 1), "last_use": round(now - e.used, 1)}
        for e in entries
    ]  # fmt: skip
