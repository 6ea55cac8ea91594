"""The blocks of a program within which nothing may be compiled, and what held before the first of them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from lazyck import abi
from lazyck.config import environment, setting, switch

if TYPE_CHECKING:
    from lazyck.library.library import Library

ALL = ""


class Blocks:
    """Which libraries may not compile: those that a block names by their paths, and in a block of `ALL` every one.

    Blocks are counted, since threads enter and leave them in any order: the last one to end restores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._before: dict[str, tuple[Library, int]] = {}  # by path: what held outside of all blocks
        self._outside = 0  # what holds there for libraries that are loaded within a block of `ALL`
        self._environment = contextlib.ExitStack()

    @contextlib.contextmanager
    def forbid(self, path: str, libraries: Callable[[], Iterable[Library]]) -> Iterator[None]:
        """A block of `path`, which stands for these libraries. Raises `CompileError`, `UsageError` for an environment
        that makes no sense."""
        with self._lock:
            try:
                self._forbid(libraries())
                if path == ALL and not self._count[ALL]:
                    self._outside = int(switch(environment(), abi.ENV_DISABLE_JIT, default=False))
                    self._environment.enter_context(setting(abi.ENV_DISABLE_JIT, "1"))
                self._count[path] += 1
            except BaseException:
                self._restore()
                raise
        try:
            yield
        finally:
            with self._lock:
                if path == ALL and self._count[ALL] == 1:
                    self._environment.close()
                    self._forbid(libraries())  # those that were loaded within it are restored, too
                self._count[path] -= 1
                self._restore()

    def _forbid(self, libraries: Iterable[Library]) -> None:
        for library in libraries:
            before = library._forbid_jit(1)
            self._before.setdefault(library.path, (library, self._outside if self._count[ALL] else before))

    def _restore(self) -> None:
        """Gives those that no block names any more what held before."""
        for path, (library, before) in list(self._before.items()):
            if not self._count[ALL] and not self._count[path]:
                del self._before[path]
                library._forbid_jit(before)


BLOCKS = Blocks()
