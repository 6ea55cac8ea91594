"""Fill a cache root to be shipped (`--output DIR`), which holds what a deployment needs and nothing
else."""

import contextlib
import fcntl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lazyck import abi
from lazyck.directory import Directory, directory_below, opened_in
from lazyck.errors import LazyckError
from lazyck.formats.layout import ENTRY, LOG, REMOTE
from lazyck.prebuild.blob_entries import BlobEntry

# The runtime's own files in a cache's root.
_WORK = (
    abi.CACHE_LOCKS, abi.CACHE_STAGING, abi.CACHE_SLOTS, abi.CACHE_COSTS, abi.CACHE_HISTORY, abi.CACHE_SEEN,
    abi.CACHE_PREAMBLES, abi.CACHE_TRIMMED, REMOTE,
)  # fmt: skip


def environment_of(directory: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which `directory` is the only cache, and keeps everything."""
    # The tiers are left out, since an entry that one of them has would not be written to
    # `directory`.
    own = {abi.ENV_CACHE_DIR: str(directory), abi.ENV_CACHE_MAXSIZE: "0"}
    return {k: v for k, v in env.items() if k != abi.ENV_CACHE_PATH} | own


@contextlib.contextmanager
def held(directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Make `directory` if need be, and lock it for this process. Tidying removes locks that others
    would be using."""
    try:
        own = Directory.open(directory, makes=True)
    except OSError as e:
        raise LazyckError(f"--output {directory}: {e.strerror}", "give a directory that can be written") from e
    with own:
        try:
            fcntl.flock(own.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another prebuild that fills {directory}")
            fcntl.flock(own.fd, fcntl.LOCK_EX)
        except OSError:
            pass  # the file system does not support locks
        yield


def adopt(directory: Path, entries: Iterable[BlobEntry]) -> None:
    """Copy entries that were found whole in another cache. An entry is valid wherever it lies."""
    for entry in entries:
        if not entry.cached or entry.root == directory:
            continue
        with contextlib.suppress(FileNotFoundError), opened_in(entry.root, entry.path) as source:
            data = source.read()
            with directory_below(directory, entry.relative.parent, makes=True) as target:
                target.write(entry.path.name, data, 0o755)


def missing(directory: Path, entries: Iterable[BlobEntry]) -> list[BlobEntry]:
    def is_there(entry: BlobEntry) -> bool:
        with contextlib.suppress(OSError), directory_below(directory, entry.relative.parent) as own:
            return own.has_file(entry.path.name)
        return False

    return [e for e in entries if not is_there(e)]


def tidy(directory: Path, keep_logs: bool, failed: Sequence[Path] = ()) -> None:
    """Remove everything but the entries: locks, staging, notes of checks (which hold for this
    machine only), quarantined entries, and logs. Logs stay if they are wanted, and those of the
    failures just reported always do. After failures, the sources stay too."""
    with Directory.open(directory) as root:
        for name in (*_WORK, *(() if failed else (abi.CACHE_BUNDLES,))):
            root.remove_tree(name)
        version = root.find(abi.CACHE_VERSION)
        if version is None:
            return
        with version:
            for library in version.directories():
                for leaf in library.directories():
                    _tidy_leaf(leaf, keep_logs, failed)
                for name in library.names():
                    library.remove_empty(name)
            for name in version.names():
                version.remove_empty(name)


def _tidy_leaf(leaf: Directory, keep_logs: bool, failed: Sequence[Path]) -> None:
    for name in leaf.names():
        is_kept_log = name.endswith(LOG) and (keep_logs or leaf.path / name in failed)
        if not name.endswith(ENTRY) and not is_kept_log:
            with contextlib.suppress(OSError):
                leaf.remove(name)
