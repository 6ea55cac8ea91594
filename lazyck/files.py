"""File operations that are safe: atomic writes, writes only of differences, digests."""

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, BinaryIO

from lazyck.errors import UsageError


def open_regular(path: Path, flags: int = 0) -> BinaryIO:
    """Open a regular file for reading. Raises `OSError` for a FIFO, a device, or any other file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | flags)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")


@contextlib.contextmanager
def write_through(path: Path, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Open a file for writing that becomes `path` at the end of the block, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(fd, "wb") as f:
            yield f
            f.flush()
            os.fchmod(f.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Make `path` hold `data`, atomically: a concurrent reader sees all of it or none."""
    with write_through(path, mode) as f:
        f.write(data)


def write_if_different(path: Path, data: bytes, mode: int = 0o644) -> bool:
    """Write as `write_atomic` does, unless the file holds `data`. Returns whether it wrote."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return False
    write_atomic(path, data, mode)
    return True


def private_directory(path: Path) -> Path:
    """Return the directory `path`, created if it does not exist. lazyck runs programs in it. Raises
    `UsageError` if another user could put programs there."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    link = stat.S_ISLNK(info.st_mode)
    if link or info.st_uid not in (0, os.geteuid()):
        why = (
            "it is a symbolic link" if link else f"it belongs to user {info.st_uid}, who could put any program into it"
        )
        raise UsageError(f"refusing the directory {path}: {why}", "set XDG_CACHE_HOME to a directory of your own")
    if info.st_mode & 0o022 and info.st_uid == os.geteuid():
        path.chmod(stat.S_IMODE(info.st_mode) & ~0o022)
    return path


def own_folder(directory: Path, name: str) -> Path | None:
    """Return the folder `name` of `directory`, or None if others can write to it or we cannot."""
    try:
        folder = private_directory(directory) / name
        folder.mkdir(exist_ok=True)
    except (OSError, UsageError):
        return None
    return folder if os.access(folder, os.W_OK) else None


_real = lru_cache(maxsize=65536)(os.path.realpath)


def absolute(path: str, directory: str) -> str:
    """Return `path`, relative to `directory`, without `.` and `..`. As for the kernel, `..` leads
    out of the directory that a link leads to."""
    parts = os.path.join(directory, path).split("/")
    if ".." not in parts:
        return os.path.normpath("/".join(parts))
    last = len(parts) - parts[::-1].index("..")
    return os.path.normpath(os.path.join(_real("/".join(parts[:last])), *parts[last:]))


def physical(path: str) -> str:
    """Return an absolute path of a file with no link among its directories. The file itself may be
    one: what it includes by a relative path is looked for where its name is."""
    head, name = os.path.split(absolute(path, "/"))
    return os.path.join(_real(head), name)


def digest(*parts: bytes) -> str:
    """Return the SHA-256 of `parts` in hexadecimal. A length before each keeps them apart."""
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()


def encode(text: str) -> bytes:
    """Return a file name or argument as the bytes that the system uses."""
    return os.fsencode(text)
