"""A pack as wheels: packages of their own that hold entries for one arch, for exactly one build of
the wheel that has the library.

The runtime finds them by their entry points. Each line `<library> = <module>` of the group
`lazyck.packs` names the directory `<module>` beside the library's own package. In it,
`lazyck/pack` says what the pack was made for, and `lazyck/cache` is a cache
(runtime/src/cache/packs.cpp has the grammar).
"""

import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipInfo

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from wheel.wheelfile import WheelFile

from lazyck import __version__, abi
from lazyck.errors import LazyckError
from lazyck.pack.base_wheel import BaseWheel
from lazyck.pack.packed_files import PLACE, Pack, PackedFile
from lazyck.quantities import show_size

_DESCRIPTION = 16 << 10  # bytes that are kept free for what is in a wheel beside entries
_MEMBER = 76 + 70  # bytes of a member's two headers and of its line in RECORD, each without its name
_SUFFIX = 6  # characters: `_999/`


@dataclass(frozen=True)
class _Part:
    """One wheel of a pack: the name of the pack, which is that of its first wheel, this wheel's
    own name, and the others that it requires."""

    whole: str
    name: str
    pack: Pack
    requires: tuple[str, ...]

    @property
    def module(self) -> str:
        return canonicalize_name(self.name).replace("-", "_")


def write_wheels(
    directory: Path, packs: Sequence[Pack], base: BaseWheel, most: int, mtime: int
) -> list[tuple[Path, Pack]]:
    """Write packs, each for one arch, as wheels of at most `most` bytes into `directory`. Each
    wheel appears at once and whole. Returns each with the entries in it.

    An arch's first wheel requires the others, and all archs require the wheel of the host's own
    entries, so that one name installs what a device needs. Equal entries, dates and bases make
    equal bytes. Raises `LazyckError` if one entry is too large.
    """
    directory.mkdir(parents=True, exist_ok=True)
    host = [f"{base.name}-{base.machine}"] if (base.machine,) in [pack.archs for pack in packs] else []
    made = []
    with tempfile.TemporaryDirectory(prefix=".lazyck-", dir=directory) as work:
        for part in [part for pack in packs for part in _parts(pack, base, most, host)]:
            written = _write(Path(work), part, base, mtime)
            made.append((written.replace(directory / written.name), part.pack))
    return made


def _parts(pack: Pack, base: BaseWheel, most: int, host: Sequence[str]) -> list[_Part]:
    archs = [a for joined in pack.archs for a in joined.split("+")]
    # `gfx942`, `sm90`, `x86_64`, `gfx942-gfx950`
    first = "-".join([base.name, *(f"sm{a}" if a[0].isdigit() else a for a in archs)])
    packs = list(split(pack, most, len(first) + _SUFFIX))
    others = [f"{first}-{i}" for i in range(2, len(packs) + 1)]
    required = [*others, *(name for name in host if name != first)]
    names = [first, *others]
    return [_Part(first, n, p, tuple(required) if n == first else ()) for n, p in zip(names, packs, strict=True)]


def split(pack: Pack, most: int, prefix: int) -> Iterator[Pack]:
    """Yield the pack in parts of which each fits into a wheel of `most` bytes. Names in it are
    longer by at most `prefix` characters. Raises `LazyckError` if an entry does not fit."""
    items: list[PackedFile] = []
    size = 0
    for item in pack.items:
        place = prefix + len(str(item.place))
        packed = len(zlib.compress(item.read())) + _MEMBER + 3 * place
        if packed + _DESCRIPTION > most:
            raise LazyckError(
                f"{item.place.name}: this entry alone takes {show_size(packed)} of a wheel, above --max-size",
                f"give a larger --max-size: {show_size(packed + _DESCRIPTION)} and more",
            )
        if size + packed + _DESCRIPTION > most:
            yield replace(pack, items=tuple(items))
            items, size = [], 0
        items.append(item)
        size += packed
    yield replace(pack, items=tuple(items))


def _write(directory: Path, part: _Part, base: BaseWheel, mtime: int) -> Path:
    stem = f"{part.module}-{base.version}"
    path = directory / f"{'-'.join(filter(None, (stem, base.build, base.tag)))}.whl"
    with _DatedWheel(path, mtime) as wheel:
        for item in part.pack.items:
            wheel.writestr(f"{part.module}/{item.place}", item.read())
        for name, lines in _texts(part, base, f"{stem}.dist-info").items():
            wheel.writestr(name, "".join(f"{line}\n" for line in lines))
    return path


def _texts(part: _Part, base: BaseWheel, info: str) -> dict[str, list[str]]:
    """Return the lines of what is in a wheel beside entries, by the names of the files. `info` is
    the directory of the wheel's description."""
    pack = [f"pack {part.whole} {base.version}", f"part {part.name} {base.version}", f"base {base.name} {base.version}"]
    places = [f"library {each.manifest.digest} {place}" for each in base.libraries for place in each.places]
    metadata = [f"Name: {part.name}", f"Version: {base.version}", f"Summary: {part.pack.describe(base.names)}"]
    requires = [f"Requires-Dist: {name}=={base.version}" for name in (base.name, *part.requires)]
    about = [f"Generator: lazyck {__version__}", f"Root-Is-Purelib: {str(base.is_pure).lower()}"]
    about += [f"Build: {base.build}"] if base.build else []
    tags = [f"Tag: {tag}" for tag in sorted(map(str, parse_tag(base.tag)))]
    return {
        f"{part.module}/{PLACE.parent}/pack": [abi.PACK_VERSION, *pack, *places],
        f"{info}/entry_points.txt": [
            f"[{abi.PACKS_GROUP}]",
            *(f"{each.manifest.library} = {part.module}" for each in base.libraries),
        ],
        f"{info}/METADATA": ["Metadata-Version: 2.1", *metadata, *requires],
        f"{info}/WHEEL": ["Wheel-Version: 1.0", *about, *tags],
    }


class _DatedWheel(WheelFile):  # type: ignore[misc,unused-ignore]
    """A wheel whose members, including RECORD, all have one date and mode."""

    def __init__(self, path: Path, mtime: int) -> None:
        super().__init__(str(path), "w", compression=ZIP_DEFLATED)
        self._when = time.gmtime(mtime)[:6]

    def writestr(self, zinfo_or_arcname: Any, data: Any, compress_type: int | None = None) -> None:
        info = ZipInfo(str(zinfo_or_arcname), date_time=self._when)
        info.compress_type = ZIP_DEFLATED
        info.external_attr = (0o644 | stat.S_IFREG) << 16
        super().writestr(info, data, compress_type)
