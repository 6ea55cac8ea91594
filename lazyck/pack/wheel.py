"""A pack as a wheel, which installs its entries into the package that the library lives in."""

from __future__ import annotations

import re
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipInfo

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from wheel.wheelfile import WheelFile

from lazyck import __version__
from lazyck.errors import UsageError
from lazyck.pack.contents import Pack

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class WheelNames:
    """The names of a wheel, and the directory below site-packages that holds the library."""

    name: str
    version: str
    package: str
    machine: str

    @property
    def stem(self) -> str:
        """`<name>-<version>` as in file names."""
        return f"{canonicalize_name(self.name).replace('-', '_')}-{self.version}"

    @property
    def tag(self) -> str:
        """The wheel's tag: any Python 3, on Linux on one machine."""
        return f"py3-none-linux_{self.machine}"

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.stem}-{self.tag}.whl"


def wheel_names(name: str, version: str, package: str, machine: str) -> WheelNames:
    """Check the names. Raises `UsageError`."""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise UsageError(f"--wheel-name {name!r}: not the name of a distribution", "use letters, digits, `-` and `_`")
    try:
        normal = str(Version(version))
    except InvalidVersion as e:
        raise UsageError(f"--wheel-version {version!r}: not a version", "write one such as 1.2.0") from e
    parts = package.strip("/").split("/")
    if package.startswith("/") or not all(_PART.fullmatch(p) for p in parts):
        raise UsageError(
            f"--into {package!r}: not a directory below site-packages",
            "give the package that the library lives in, such as my_kernels or my_kernels/lib",
        )
    return WheelNames(name, normal, "/".join(parts), machine)


def write_wheel(directory: Path, pack: Pack, names: WheelNames, summary: str, mtime: int) -> Path:
    """Write the wheel into `directory`, atomically. Returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / names.file
    metadata = f"Metadata-Version: 2.1\nName: {names.name}\nVersion: {names.version}\nSummary: {summary}\n"
    about = f"Wheel-Version: 1.0\nGenerator: lazyck {__version__}\nRoot-Is-Purelib: false\nTag: {names.tag}\n"
    with tempfile.TemporaryDirectory(prefix=".lazyck-", dir=directory) as work:
        with _DatedWheel(Path(work) / names.file, mtime) as wheel:
            for item in pack.items:
                wheel.writestr(f"{names.package}/{item.place}", item.read())
            wheel.writestr(f"{names.stem}.dist-info/METADATA", metadata)
            wheel.writestr(f"{names.stem}.dist-info/WHEEL", about)
        (Path(work) / names.file).replace(target)
    return target


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
