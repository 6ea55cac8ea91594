"""A prefetch: blobs of one or several libraries that are being made ready in the background."""

import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lazyck.errors import CompileError
from lazyck.library.c_interface import LONGEST_LOOK, Progress, progress_of, text_of

if TYPE_CHECKING:
    from lazyck.library.library import Library

_BETWEEN_LOOKS = 0.05  # seconds between two looks of a task that awaits


class Prefetch:
    """Blobs that are being made ready in the background. Made by `prefetch`.

    `wait()` waits until they are ready. So does `await` in a coroutine, and a `with` block at its
    end. Without a wait the prefetch goes on, too, until `cancel()`.
    """

    def __init__(self, jobs: "Sequence[tuple[Library, int]]") -> None:
        self._jobs = tuple(jobs)

    def __repr__(self) -> str:
        now = self.progress()
        names = ", ".join(os.path.basename(library.path) for library, _ in self._jobs)
        failed = f", {now.failed} failed" if now.failed else ""
        state = "over" if now.is_over else "under way"
        return f"<lazyck.Prefetch of {names}: {now.ready} of {now.total} blobs ready{failed}, {state}>"

    def __del__(self) -> None:
        # Freeing an unfinished job would cancel it, so that its few bytes are kept.
        for library, job in self._jobs:
            now = progress_of(library._handle, job, 0)
            if now is not None and now.is_over:
                library._handle.lazyck_job_free(job)

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.wait()
        else:
            self.cancel()

    def __await__(self) -> Generator[Any, None, Progress]:
        """Wait as `wait` does, in a task of asyncio, without blocking the event loop. If the task
        is cancelled, the prefetch is not: it may be awaited again, and by several tasks."""
        return self._until_over().__await__()

    async def _until_over(self) -> Progress:
        import asyncio  # slow to import, and already imported where this runs

        while not self.progress().is_over:
            await asyncio.sleep(_BETWEEN_LOOKS)
        return self.wait()

    def _look(self, seconds: float) -> Progress:
        """Return the progress. Waits for one job after the other, each at most `seconds`."""
        found = []
        for library, job in self._jobs:
            now = progress_of(library._handle, job, seconds)
            if now is None:
                raise library._error()
            seconds = seconds if now.is_over else 0
            found.append(now)
        left = [now.seconds_left for now in found if now.seconds_left is not None]
        return Progress(
            sum(now.total for now in found),
            sum(now.ready for now in found),
            sum(now.failed for now in found),
            all(now.is_over for now in found),
            max(left) if len(left) == len(found) else None,
        )

    def progress(self) -> Progress:
        """Return the progress."""
        return self._look(0)

    def wait(
        self, timeout: float | None = None, *, on_progress: Callable[[Progress], object] | None = None
    ) -> Progress:
        """Wait until the prefetch is over, at most `timeout` seconds (`None`: for ever), and return
        the progress. `on_progress` is called with it now and then.

        Ctrl-C interrupts the wait. Raises `CompileError` with the first failure once the prefetch
        is over.
        """
        end = None if timeout is None else time.monotonic() + timeout
        last = None
        while True:
            now = self._look(LONGEST_LOOK if end is None else max(0.0, min(LONGEST_LOOK, end - time.monotonic())))
            if on_progress is not None and replace(now, seconds_left=None) != last:
                on_progress(now)
            last = replace(now, seconds_left=None)
            if now.is_over:
                break
            if end is not None and time.monotonic() >= end:
                return now
        if now.failed:
            said = (text_of(library._handle.lazyck_job_error(job)) for library, job in self._jobs)
            raise CompileError(next(filter(None, said)))
        return now

    def cancel(self) -> None:
        """Cancel the prefetch: no further compile begins."""
        for library, job in self._jobs:
            library._handle.lazyck_job_cancel(job)
