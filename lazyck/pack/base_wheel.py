"""The wheel that packs are made for: its names, and the lazy libraries in it."""

import platform
import zlib
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from pathlib import Path
from zipfile import BadZipFile

from packaging.requirements import Requirement
from packaging.version import Version
from wheel.wheelfile import WheelError, WheelFile

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.formats.manifest import Manifest
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.embedded import read_manifest

_GIVE = "give the wheel that `lazyck build full -- pip wheel .` makes"


@dataclass(frozen=True)
class WheelLibrary:
    """A lazy library of a wheel: the unpacked file, with its bundle beside it, and the places below
    site-packages where the wheel installs it."""

    file: Path
    places: tuple[str, ...]
    manifest: Manifest


@dataclass(frozen=True)
class BaseWheel:
    """A wheel with lazy libraries, which are for one `machine`. `build` (or an empty string) and
    `tag` are the last parts of its file's name, with that machine's platform for `any`."""

    name: str
    version: str
    build: str
    tag: str
    is_pure: bool
    libraries: tuple[WheelLibrary, ...]
    machine: str

    @property
    def names(self) -> list[str]:
        return [each.manifest.library for each in self.libraries]


def read_base(wheel: Path, where: Path) -> BaseWheel:
    """Unpack `wheel` into the empty directory `where`, and describe it. Raises `FormatError` if it
    is not a wheel, is damaged, or has no lazy library that packs can be found for."""
    try:
        with WheelFile(str(wheel)) as archive:
            archive.extractall(where)
            parsed, info = archive.parsed_filename, where / archive.dist_info_path
        metadata = BytesHeaderParser().parsebytes((info / "METADATA").read_bytes())
        about = BytesHeaderParser().parsebytes((info / "WHEEL").read_bytes())
        name, version = metadata["Name"], str(Version(metadata["Version"] or ""))
        Requirement(f"{name}=={version}")  # raises an error unless packs can require it
    except (WheelError, BadZipFile, OSError, EOFError, ValueError, zlib.error) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise FormatError(f"{wheel}: not a wheel that can be read: {reason}", _GIVE) from e
    libraries = _libraries(wheel, where, info.name.removesuffix(".dist-info") + ".data")
    machine = libraries[0].manifest.machine or platform.machine()
    system = parsed["plat"] if parsed["plat"] != "any" else f"linux_{machine}"
    tag = f"{parsed['pyver']}-{parsed['abi']}-{system}"
    return BaseWheel(name, version, parsed["build"] or "", tag, about["Root-Is-Purelib"] == "true", libraries, machine)


def _libraries(wheel: Path, where: Path, data: str) -> tuple[WheelLibrary, ...]:
    """Return the lazy libraries among the unpacked files. Equal ones are returned once."""
    found: dict[str, WheelLibrary] = {}
    for file in sorted(p for p in where.rglob("*") if p.is_file()):
        with file.open("rb") as f:
            is_elf = f.read(4) == b"\x7fELF"
        if not is_elf or elf.read_section(file, abi.MANIFEST_SECTION) is None:
            continue
        manifest, place = read_manifest(file), _installed(file.relative_to(where), data)
        if not place:
            raise FormatError(
                f"{wheel}: {file.relative_to(where)} is not installed into site-packages, so no pack would be found",
                "install the library into a package, or ship its entries by `lazyck pack --tar`",
            )
        same = found.get(manifest.library)
        if same and same.manifest.digest != manifest.digest:
            raise FormatError(
                f"{wheel}: {same.places[0]} and {place} are two builds of one library, {manifest.library}",
                "build them under different names, or put only one into the wheel",
            )
        has_bundle = (file.parent / "lazyck" / manifest.library).is_dir()
        places = (*same.places, place) if same else (place,)
        found[manifest.library] = WheelLibrary(same.file if same and not has_bundle else file, places, manifest)
    if not found:
        raise FormatError(f"{wheel}: there is no lazy library in it", _GIVE)
    return tuple(found.values())


def _installed(member: Path, data: str) -> str:
    """Return where pip puts a file of the wheel, below site-packages, or an empty string if that is
    elsewhere. `data` is the name of the wheel's directory for other schemes."""
    if member.parts[0] != data:
        return member.as_posix()
    is_site = member.parts[1] in ("purelib", "platlib")
    return Path(*member.parts[2:]).as_posix() if is_site else ""
