"""The names of a cache's files and directories (docs/cache-format.md; runtime/src/cache/cache.cpp):

    <root>/v1/<library>/<archs>-<toolchain>[-<salt>]/<blob>-<digest>.so

The salt is a hash of `LAZYCK_EXTRA_CACHE_KEY`. Beside the entry lie its log, notes on what checks
of it found, and copies that were found damaged.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi

REMOTE = ".remote"  # in a cache's root; the other names there are those of `lazyck.abi`
ENTRY, LOG, SEEN, BAD = ".so", ".log", ".so.seen", ".so.bad-"

_STEM = re.compile(rf".+-[0-9a-f]{{{abi.DIGEST_DIGITS}}}")
_SALTED = re.compile(rf"(?P<toolchain>.*)-(?P<salt>[0-9a-f]{{{abi.SALT_DIGITS}}})")


@dataclass(frozen=True)
class EntryPath:
    """Where a file of a cache lies below `v1`: the names of the library's directory, of the one in
    that (the leaf), and of the file. The properties take apart the names of an entry or its log."""

    library: str
    leaf: str
    name: str

    @classmethod
    def of(cls, path: Path) -> "EntryPath":
        return cls(path.parents[1].name, path.parent.name, path.name)

    @property
    def is_entry(self) -> bool:
        return self._is_stem_and(ENTRY)

    @property
    def is_log(self) -> bool:
        return self._is_stem_and(LOG)

    def _is_stem_and(self, end: str) -> bool:
        return self.name.endswith(end) and _STEM.fullmatch(self.name.removesuffix(end)) is not None

    @property
    def archs(self) -> str:
        """The archs, as names of files spell them (see `abi.archs_in_name`)."""
        return split_leaf(self.leaf)[0]

    @property
    def build(self) -> str:
        """The toolchain, and the salt if there is one. Any leaf of a cache has it."""
        return split_leaf(self.leaf)[1]

    @property
    def blob(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def cost_key(self) -> tuple[str, str, str]:
        """The library, blob and archs that `lazyck.history.costs` records the costs under."""
        return self.library, self.blob, self.archs

    @property
    def digest(self) -> str:
        return self.name.rpartition("-")[2].partition(".")[0]


def split_leaf(leaf: str) -> tuple[str, str]:
    archs, _, build = leaf.partition("-")
    return archs, build


def split_build(build: str) -> tuple[str, str]:
    """Return a build's toolchain and its salt, which is an empty string if there is none. The name
    of a toolchain may end like a salt."""
    found = _SALTED.fullmatch(build)
    return (found["toolchain"], found["salt"]) if found else (build, "")


def root_of(path: Path) -> Path:
    return path.parents[abi.DEPTH_OF_ENTRIES - 1]


def log_of(path: Path) -> Path:
    """Return the path of an entry's log: what the compiler printed. A failure leaves one, too."""
    return path.with_suffix(LOG)


def is_of_entry(name: str) -> bool:
    """Return whether a file in a leaf belongs to an entry, or to a compile that failed."""
    return name.endswith((ENTRY, LOG, SEEN)) or BAD in name
