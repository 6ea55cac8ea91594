"""`--output DIR`: a cache root that is filled to be shipped, and holds what a deployment needs and nothing else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lazyck import abi
from lazyck.errors import LazyckError
from lazyck.files import write_atomic
from lazyck.prebuild.entries import Entry

# What the runtime keeps at a cache's root for its own work there.
_WORK = (".locks", ".staging", ".slots", ".costs", ".history", ".seen", ".remote")
_SOURCES = ".bundles"


def environment_of(directory: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the runtime's cache is `directory`, and no other, and keeps all that it is given."""
    # Without the tiers: what is in one would not get into `directory`.
    own = {abi.ENV_CACHE_DIR: str(directory), abi.ENV_CACHE_MAXSIZE: "0"}
    return {k: v for k, v in env.items() if k != abi.ENV_CACHE_PATH} | own


@contextlib.contextmanager
def held(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """`directory`, made if need be, for this process alone: tidying takes locks away that others would be using."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as e:
        raise LazyckError(f"--output {directory}: {e.strerror}", "give a directory that can be written") from e
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another prebuild that fills {directory}")
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system that does not lock
        yield
    finally:
        os.close(fd)


def adopt(directory: Path, entries: Iterable[Entry]) -> None:
    """Copy entries that the runtime found whole in another cache: an entry is good wherever it lies."""
    for entry in entries:
        target = directory / entry.relative
        if entry.cached and entry.root != directory and entry.path.is_file():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(target, entry.path.read_bytes(), 0o755)


def missing(directory: Path, entries: Iterable[Entry]) -> list[Entry]:
    """Those that are not in `directory`, whatever they were said to be."""
    return [e for e in entries if not (directory / e.relative).is_file()]


def tidy(directory: Path, keep_logs: bool, failed: Sequence[Path] = ()) -> None:
    """Remove all but the entries: locks, staging, notes of checks (which hold for this machine only), quarantined
    entries, and logs, unless they are wanted or tell of the failures of just now; the sources that failed stay too."""
    for name in (*_WORK, *(() if failed else (_SOURCES,))):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / ".trimmed").unlink(missing_ok=True)
    version = directory / abi.CACHE_VERSION
    for path in sorted(version.glob("*/*/*")):
        is_log = path.suffix == ".log"
        if path.suffix == ".so" or (is_log and (keep_logs or path in failed)):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
    for directory_of_entries in [*version.glob("*/*"), *version.glob("*")]:
        with contextlib.suppress(OSError):  # it is not empty
            directory_of_entries.rmdir()
