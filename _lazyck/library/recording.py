"""`lazyck.record`: records what a run calls, and makes it ready before the next run."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from _lazyck import abi
from _lazyck.config import setting
from _lazyck.library.library import Library
from _lazyck.library.process import loaded


class record(contextlib.ContextDecorator):
    """Record what a run calls, and make it ready before the next run: `with
    lazyck.record("run.profile"):` or `@lazyck.record("run.profile")`.

    The first run appends what it calls to the profile. Later runs first make that ready (`replay`),
    several blobs at a time, and then record too. With `LAZYCK_JIT=off` such a run proves that
    nothing is left to compile. `libraries` are those to record. By default they are all libraries
    that are loaded when the block begins. Libraries that are loaded within the block record too,
    and replay in the background at their first call. Raises `CompileError` if a recorded blob can
    no longer be made ready.
    """

    def __init__(
        self, profile: str | os.PathLike[str], *, replay: bool = True, libraries: Iterable[Library] | None = None
    ) -> None:
        self.profile = os.path.abspath(os.fspath(profile))
        self.replay = replay
        self.libraries = None if libraries is None else list(libraries)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "record":
        libraries = loaded() if self.libraries is None else self.libraries
        has_profile = os.path.exists(self.profile)
        for library in libraries:
            if self.replay and has_profile:
                library.prefetch(Path(self.profile)).wait()
            self._stack.enter_context(library.record(self.profile))
        if self.libraries is None:
            self._stack.enter_context(setting(abi.ENV_RECORD, self.profile))
            if self.replay and has_profile:
                self._stack.enter_context(setting(abi.ENV_PREFETCH, self.profile))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.libraries is None:
            for library in loaded():  # libraries that were loaded within the block
                library._check(library._handle.lazyck_record(None))
        self._stack.close()
