"""Reads the manifest that a lazy library carries."""

from pathlib import Path

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.formats.manifest import Manifest, decode
from lazyck.postbuild.objects import elf


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a lazy library or of a manifest file. Raises `FormatError`."""
    try:
        with path.open("rb") as f:
            start = f.read(8)
        data = path.read_bytes() if start == abi.MANIFEST_MAGIC else None
        if data is None and start[:4] == b"\x7fELF":
            data = elf.read_section(path, abi.MANIFEST_SECTION)
    except OSError as e:
        raise FormatError(f"{path}: {e.strerror}", "give a lazy library, or the `manifest` of its bundle") from e
    if data is None:
        raise FormatError(
            f"{path}: not a lazy library (no section {abi.MANIFEST_SECTION})",
            "give a library that `lazyck build` made, or the `manifest` of its bundle",
        )
    return decode(data, str(path))
