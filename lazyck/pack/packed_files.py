"""The contents of a pack: verified entries, each with its place where it is installed."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lazyck.directory import opened_in
from lazyck.errors import LazyckError
from lazyck.formats import trailer
from lazyck.formats.layout import root_of
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.quantities import counted
from lazyck.visible import visible

# The folder in which the runtime looks for entries, relative to the library or to a pack's module.
PLACE = PurePosixPath("lazyck/cache")
_MOST_NAMES = 10


@dataclass(frozen=True)
class PackedFile:
    """A file of a pack: where it is, and its place below the directory of the library, or of the
    pack's module."""

    source: Path
    place: PurePosixPath

    def read(self) -> bytes:
        """Return the contents. Raises `LazyckError` if the file is no longer an entry."""
        again = "run the same command again"
        try:
            with opened_in(root_of(self.source), self.source) as file:
                data = file.read()
        except OSError as e:
            raise LazyckError(f"{self.source}: cannot read the entry: {e.strerror}", again) from e
        if trailer.parse(data) is None:
            raise LazyckError(f"{self.source}: changed while it was packed", again)
        return data


@dataclass(frozen=True)
class Pack:
    """The files of one tar or wheel, sorted by place, and the archs that they are for."""

    archs: tuple[str, ...]
    items: tuple[PackedFile, ...]

    def describe(self, libraries: Iterable[str]) -> str:
        """Return a description such as `12 prebuilt entries of libfmha_fwd for gfx942 gfx950`."""
        entries = counted(len(self.items), "prebuilt entry", "prebuilt entries")
        return f"{entries} of {' '.join(libraries)} for {' '.join(self.archs)}"


def make_packs(entries: Iterable[BlobEntry], per_arch: bool) -> list[Pack]:
    """Return one pack, or one for each set of archs. Raises `LazyckError` if entries lack."""
    found = list(entries)
    absent = [e for e in found if not e.cached or not e.path.is_file()]
    if absent:
        names = [f"  {visible(e.name)} ({visible(e.shown_arch)})" for e in absent[:_MOST_NAMES]]
        more = [f"  and {len(absent) - len(names)} more"] if len(absent) > len(names) else []
        raise LazyckError(
            f"{len(absent)} of {len(found)} entries are not cached:\n" + "\n".join([*names, *more]),
            "leave out --no-build, or fill the cache with `lazyck prebuild build`",
        )
    if not found:
        raise LazyckError("there is nothing to pack: the library has no lazy blobs", "give another library")
    groups: dict[str, list[BlobEntry]] = {}
    for entry in found:
        groups.setdefault(entry.shown_arch if per_arch else "", []).append(entry)
    packs = []
    for _, group in sorted(groups.items()):
        items = sorted((PackedFile(e.path, PLACE / e.relative.as_posix()) for e in group), key=lambda i: str(i.place))
        packs.append(Pack(tuple(sorted({e.shown_arch for e in group})), tuple(items)))
    return packs
