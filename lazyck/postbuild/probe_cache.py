"""Caches the results of probes in the tmp dir, by content, for all links of a build and the next
build. Parallel links may write one file, so each write is an atomic rename, and either result may
win. A missing or damaged file is a cache miss.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from lazyck.files import write_atomic

PROBE_CACHE = "probe-cache"  # its directory in the tmp dir
_MOST_ANSWERS = 100_000  # of one group; the answers that were learnt first are dropped first
_UNUSED = 14 * 24 * 3600  # seconds after which an object that no link took is deleted


class ProbeCache:
    """Stores answers about blobs, one file per group, and objects, one file each."""

    def __init__(self, root: Path) -> None:
        self._answers, self._objects, self._locks = root / "answers", root / "objects", root / "locks"

    def answers(self, group: str) -> dict[str, Any]:
        try:
            found = json.loads((self._answers / f"{group}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def keep_answers(self, group: str, learnt: Mapping[str, Any]) -> None:
        """Add what was `learnt` of a `group`. What another link writes meanwhile may be lost."""
        if learnt:
            merged = {k: v for k, v in self.answers(group).items() if k not in learnt} | dict(learnt)
            kept = dict(list(merged.items())[-_MOST_ANSWERS:])
            with contextlib.suppress(OSError):
                write_atomic(self._answers / f"{group}.json", json.dumps(kept).encode())

    @contextlib.contextmanager
    def turns(self, names: Iterable[str]) -> Iterator[None]:
        """Hold the locks `names`, so that of parallel links only one computes a missing result.
        On a file system without locks, each computes it."""
        with contextlib.ExitStack() as held:
            # Locks are taken in sorted order, so that no two links wait for each other. There are
            # few lock files, because deleting one would be a race.
            for name in sorted({name[:3] for name in names}):
                with contextlib.suppress(OSError):
                    self._locks.mkdir(parents=True, exist_ok=True)
                    lock = held.enter_context((self._locks / name).open("wb"))
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def take_object(self, key: str, target: Path) -> bool:
        """Put a copy of the object `key` at `target`. Return False if there is none."""
        found = self._objects / f"{key}.o"
        try:
            shutil.copyfile(found, target)
            os.utime(found)
        except OSError:
            return False
        return True

    def keep_object(self, key: str, made: Path) -> None:
        with contextlib.suppress(OSError):
            write_atomic(self._objects / f"{key}.o", made.read_bytes())

    def tidy(self) -> None:
        """Delete objects that no link has taken for long."""
        oldest = time.time() - _UNUSED
        for path in self._objects.glob("*.o"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return a digest of lazyck's deciding code: other versions' answers are not trusted."""
    code = hashlib.sha256()
    for directory in (Path(__file__).parent, Path(__file__).parent.parent / "toolchains"):
        for path in sorted(directory.rglob("*.py")):
            code.update(path.read_bytes())
    return code.hexdigest()
