"""An open directory of a cache, which only the user or root can write to.

Files in it are listed, read, moved and removed through its descriptor, so that no symbolic link and
no exchanged directory above it leads elsewhere. It refuses what the runtime refuses
(runtime/src/cache/directory.h).
"""

import contextlib
import errno
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lazyck import abi
from lazyck.errors import LazyckError

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_said: set[Path] = set()


class RefusedError(LazyckError):
    """A directory or file of a cache is refused, since another user could have written it."""


def stranger_of(info: os.stat_result) -> str:
    """Return who else could have written the file of this status, or an empty string."""
    if info.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {info.st_uid}, who could put any code into it"
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(info.st_mode) & 0o777:04o})"
    return ""


def check_trusted(path: Path, info: os.stat_result) -> None:
    """Raise `RefusedError` unless `path` is a directory that only the user or root can write to."""
    hint = f"set {abi.ENV_CACHE_DIR} to a directory of your own"
    if stat.S_ISLNK(info.st_mode):
        why, hint = "it is a symbolic link", f"set {abi.ENV_CACHE_DIR} to where it points"
    elif not stat.S_ISDIR(info.st_mode):
        why = "it is not a directory"
    else:
        why = stranger_of(info)
        if why and info.st_uid == os.geteuid():
            hint = f"chmod go-w {path}"
    if why:
        raise RefusedError(f"refusing the cache directory {path}: {why}", hint)


class Directory:
    """An open directory. As a context manager it closes itself."""

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: Path, *, makes: bool = False) -> "Directory":
        """Open `path`, which must not be a symbolic link. With `makes`, create it for this user
        alone if it does not exist. Raises `RefusedError`, `OSError`."""
        if makes:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls._checked(path, str(path), None)

    @classmethod
    def _checked(cls, path: Path, name: str, above: int | None) -> "Directory":
        try:
            made = cls(os.open(name, _FLAGS, dir_fd=above), path)
        except OSError as e:
            if e.errno in (errno.ELOOP, errno.ENOTDIR):
                check_trusted(path, os.stat(name, dir_fd=above, follow_symlinks=False))
            e.filename = str(path)
            raise
        try:
            check_trusted(path, os.fstat(made.fd))
        except BaseException:
            made.close()
            raise
        return made

    def below(self, name: str, *, makes: bool = False) -> "Directory":
        """Open the directory `name` in this one. With `makes`, create it for this user alone if it
        does not exist. Raises as `open` does."""
        if makes:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.fd)
        return self._checked(self.path / name, name, self.fd)

    def find(self, name: str) -> "Directory | None":
        """Open the directory `name` in this one. Returns None for none, for a plain file, and with
        a single warning for one that is refused or cannot be read."""
        try:
            return self.below(name)
        except (RefusedError, OSError) as e:
            info = self.status(name)
            if info is not None and (stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                pass_over(self.path / name, e)
            return None

    def directories(self) -> "Iterator[Directory]":
        """Yield each directory in this one, sorted by name, as `find` opens it. Each stays open
        until the next. Names that begin with `.` are left out."""
        for name in self.names():
            found = None if name.startswith(".") else self.find(name)
            if found is not None:
                with found:
                    yield found

    def names(self) -> list[str]:
        """Return all names in the directory, sorted."""
        return sorted(os.listdir(self.fd))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of `name`, if it exists. A symbolic link is not followed."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return None

    def has_file(self, name: str) -> bool:
        """Return whether `name` is a regular file."""
        info = self.status(name)
        return info is not None and stat.S_ISREG(info.st_mode)

    def open_file(self, name: str) -> IO[bytes]:
        """Open a regular file for reading. Raises `OSError`, and `RefusedError` for a symbolic link
        and for a file that another user could have written."""
        return os.fdopen(self._open(name, os.O_RDONLY), "rb")

    def append(self, name: str, data: bytes) -> None:
        """Append to a regular file, which is made if it is missing, by one write: lines of several
        processes do not mix. Raises what `open_file` does."""
        fd = self._open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def _open(self, name: str, flags: int) -> int:
        path = self.path / name
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        except OSError as e:
            e.filename = str(path)
            raise
        info = os.fstat(fd)
        why = stranger_of(info) if stat.S_ISREG(info.st_mode) else "it is not a file"
        if why:
            os.close(fd)
            raise RefusedError(f"refusing {path}: {why}", "remove it")
        return fd

    def write(self, name: str, data: bytes, mode: int) -> None:
        """Make the file `name` hold `data`, atomically. Raises `OSError`."""
        part = f".{secrets.token_hex(8)}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
            os.rename(part, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except BaseException:
            self.remove(part)
            raise

    def move(self, name: str, to: "Directory") -> None:
        """Move the file `name` to another directory, atomically. Raises `OSError`."""
        os.rename(name, name, src_dir_fd=self.fd, dst_dir_fd=to.fd)

    def remove(self, name: str) -> bool:
        """Unlink a file. Returns whether it existed. Raises `OSError`."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        return True

    def remove_tree(self, name: str) -> None:
        """Remove `name` and everything below it, as far as possible. Follows no symbolic links."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.fd)
            return
        with contextlib.suppress(OSError):
            with Directory(os.open(name, _FLAGS, dir_fd=self.fd), self.path / name) as below:
                for each in below.names():
                    below.remove_tree(each)
            os.rmdir(name, dir_fd=self.fd)

    def remove_empty(self, name: str) -> None:
        """Remove the directory `name` if it is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self.fd)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pass_over(path: Path, reason: LazyckError | OSError) -> None:
    """Warn, once for each directory, that it is skipped and why."""
    if path in _said:
        return
    _said.add(path)
    text = reason if isinstance(reason, LazyckError) else LazyckError(f"{path}: {reason.strerror}")
    sys.stderr.write(f"lazyck: warning: skipped: {text.render()}\n")


def find_root(path: Path) -> Directory | None:
    """Open the root of a cache, if there is one. Raises `RefusedError`, `OSError`."""
    try:
        return Directory.open(path)
    except FileNotFoundError:
        return None


def read_leaves(cache: Path) -> Iterator[Directory]:
    """Yield the directories of a cache that hold its entries, without refused ones. Each stays open
    until the next. Raises `RefusedError` for a refused root."""
    root = find_root(cache)
    if root is None:
        return
    with root:
        version = root.find(abi.CACHE_VERSION)
        if version is None:
            return
        with version:
            for library in version.directories():
                yield from library.directories()


@contextlib.contextmanager
def directory_below(root: Path, place: Path, *, makes: bool = False) -> Iterator[Directory]:
    """Open the directory `place`, a path relative to the cache `root`. Each directory on the way
    must be trusted. Raises `RefusedError`, `OSError`."""
    with contextlib.ExitStack() as stack:
        at = stack.enter_context(Directory.open(root, makes=makes))
        for name in place.parts:
            at = stack.enter_context(at.below(name, makes=makes))
        yield at


@contextlib.contextmanager
def opened_in(root: Path, path: Path) -> Iterator[IO[bytes]]:
    """Open the file `path` below the cache `root` for reading. Raises `RefusedError`, `OSError`."""
    with directory_below(root, path.parent.relative_to(root)) as directory, directory.open_file(path.name) as file:
        yield file


@contextlib.contextmanager
def staging(cache: Path, what: str) -> Iterator[Path]:
    """Make a directory in a cache for files that are not entries yet, and remove it at the end. Its
    name tells the runtime which process made it, in case that is killed
    (runtime/src/platform/staging.cpp). Raises `RefusedError`, `OSError`."""
    host = re.sub(r"[^A-Za-z0-9._+-]", "_", socket.gethostname())
    name = f"{what}-{os.getpid()}@{host}-{secrets.token_hex(3)}"
    with directory_below(cache, Path(abi.CACHE_STAGING), makes=True) as above:
        os.mkdir(name, 0o700, dir_fd=above.fd)
        try:
            yield above.path / name
        finally:
            above.remove_tree(name)
