"""A pack as a tar, to be unpacked in the library's directory."""

import gzip
import importlib
import io
import lzma
import tarfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

from lazyck.errors import UsageError
from lazyck.files import write_through
from lazyck.pack.packed_files import PLACE, Pack

SUFFIXES = (".tar.xz", ".tar.gz", ".tar.zst", ".txz", ".tgz", ".tar")


def suffix_of(path: Path) -> str:
    """Return the end of the file name, which says how it is compressed. Raises `UsageError`."""
    found = next((s for s in SUFFIXES if path.name.endswith(s)), "")
    if not found or path.name == found:
        raise UsageError(f"--tar {path}: its name does not say the format", f"end it in {', '.join(SUFFIXES)}")
    if found == ".tar.zst" and _zstd() is None:
        raise UsageError(f"--tar {path}: this Python has no zstd (3.14 has)", "end it in .tar.xz")
    return found


def name_for(path: Path, archs: str) -> Path:
    """Return the name for some archs, such as `kernels-gfx942.tar.xz` for `kernels.tar.xz`."""
    suffix = suffix_of(path)
    return path.with_name(f"{path.name.removesuffix(suffix)}-{archs}{suffix}")


def write_tar(path: Path, pack: Pack, mtime: int) -> None:
    """Write the pack to `path`, atomically. Equal entries and dates make equal bytes."""
    suffix = suffix_of(path)
    with write_through(path) as raw, ExitStack() as stack:
        out = stack.enter_context(_compressed(raw, suffix, mtime))
        tar = stack.enter_context(tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT))
        # `lazyck` itself belongs to the bundle.
        directories = {d for item in pack.items for d in item.place.parents if d.is_relative_to(PLACE)}
        for directory in sorted(directories):
            tar.addfile(_info(str(directory), mtime, tarfile.DIRTYPE, 0o755))
        for item in pack.items:
            data = item.read()
            info = _info(str(item.place), mtime, tarfile.REGTYPE, 0o644)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _info(name: str, mtime: int, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, mtime
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _compressed(raw: IO[bytes], suffix: str, mtime: int) -> Any:
    if suffix in (".tar.gz", ".tgz"):
        return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=mtime)  # without a name, and dated `mtime`
    if suffix in (".tar.xz", ".txz"):
        return lzma.open(raw, "wb")
    if suffix == ".tar.zst":
        return _zstd().open(raw, "wb")
    return nullcontext(raw)


def _zstd() -> Any:
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return None
