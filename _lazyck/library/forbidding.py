"""The blocks of a program in which nothing may be compiled, and the state to restore after them."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from _lazyck import abi
from _lazyck.config import environment, setting

if TYPE_CHECKING:
    from _lazyck.library.library import Library

ALL = ""


class Blocks:
    """The libraries that may not compile: those that a block names by their paths, and in a block
    of `ALL` every one.

    Blocks are counted, since threads enter and leave them in any order. The last one to end
    restores the previous state.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count: Counter[str] = Counter()
        self._before: dict[str, tuple[Library, int]] = {}  # by path: the state outside of all blocks
        self._outside = 0  # the state outside for libraries that are loaded within a block of `ALL`
        self._environment = contextlib.ExitStack()

    @contextlib.contextmanager
    def forbid(self, path: str, libraries: "Callable[[], Iterable[Library]]") -> Iterator[None]:
        """Enter a block of `path`, which stands for these libraries.

        Raises `CompileError`, also if a variable of the environment makes no sense.
        """
        with self._lock:
            try:
                self._forbid(libraries())
                if path == ALL and not self._count[ALL]:
                    self._outside = int(environment().get(abi.ENV_JIT) == "off")
                    self._environment.enter_context(setting(abi.ENV_JIT, "off"))
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
                    self._forbid(libraries())  # libraries that were loaded within the block are restored, too
                self._count[path] -= 1
                self._restore()

    def _forbid(self, libraries: "Iterable[Library]") -> None:
        for library in libraries:
            before = library._forbid_jit(1)
            self._before.setdefault(library.path, (library, self._outside if self._count[ALL] else before))

    def _restore(self) -> None:
        """Restore the state of libraries to which no block applies any more."""
        for path, (library, before) in list(self._before.items()):
            if not self._count[ALL] and not self._count[path]:
                del self._before[path]
                library._forbid_jit(before)


BLOCKS = Blocks()
