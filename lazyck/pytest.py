"""A plugin for pytest that fails tests during which a lazy library compiles, and names the blobs.
It is off by default.

`--lazyck-forbid-jit`, or `lazyck_forbid_jit = true` in the settings of pytest, applies it to all
tests. The marker `lazyck_forbid_jit` applies it to one test, and `lazyck_forbid_jit(False)` exempts
one. The compiles do happen, since a refused call ends a program that does not catch C++ exceptions.
"""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from lazyck import abi
from lazyck.history.events import Event, decode_trace
from lazyck.settings.environment import environment, setting

NAME = "lazyck_forbid_jit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and the setting."""
    text = "fail tests during which a lazy library compiles"
    parser.getgroup("lazyck").addoption("--lazyck-forbid-jit", action="store_true", help=text)
    parser.addini(NAME, text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker."""
    config.addinivalue_line(
        "markers", f"{NAME}(is_forbidden=True): fail the test if a lazy library compiles during it, or let it compile"
    )


def is_forbidden(item: pytest.Item) -> bool:
    """Return whether nothing may be compiled during this test."""
    marker = item.get_closest_marker(NAME)
    if marker is not None:
        return bool((*marker.args, *marker.kwargs.values(), True)[0])
    return bool(item.config.getoption(NAME) or item.config.getini(NAME))


class Watch:
    """Watches what lazy libraries compile. Their trace names the blobs, without those of libraries
    whose first lazy call came before `LAZYCK_TRACE` was set. Their counts show whether it is
    complete."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._end = 0  # end of the last event read: the next event overwrites the bracket behind it
        self._read()
        self._named = 0  # compiles of this process that are in the trace
        self._unnamed = 0  # compiles that only the counts show

    def look(self) -> list[str]:
        """Return a text for each blob that this process and its children compiled since then."""
        import lazyck  # imported late: not every run of pytest needs it

        stats = [library.stats() for library in lazyck.loaded()]
        events = [event for event in self._read() if event.kind == abi.EVENT_COMPILE]
        self._named += sum(event.pid == os.getpid() for event in events)
        before, self._unnamed = self._unnamed, sum(s.compiles + s.failures for s in stats) - self._named
        found = [f"{event.blob} of {event.library} ({event.seconds:.1f} s)" for event in events]
        if self._unnamed > before:
            found.append(f"{self._unnamed - before} of libraries that were called before the tests began")
        return found

    def _read(self) -> list[Event]:
        """Return the events that were added to the trace since the last call."""
        if not self._trace.exists():
            return []
        with self._trace.open("rb") as file:
            file.seek(self._end)
            text = file.read()
        whole = text[: text.rfind(b"}\n") + 1]
        self._end += len(whole)
        return list(filter(None, decode_trace(whole.splitlines(), {})))


WATCH = pytest.StashKey[Watch]()
CLEANUP = pytest.StashKey[contextlib.ExitStack]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make libraries write a trace, if any test needs it."""
    if not any(map(is_forbidden, session.items)):
        return
    with contextlib.ExitStack() as stack:
        trace = environment().get(abi.ENV_TRACE, "")
        if not trace:
            trace = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='lazyck-pytest-'))}/trace"
            stack.enter_context(setting(abi.ENV_TRACE, trace))
        session.config.stash[WATCH] = Watch(Path(trace))
        session.config.stash[CLEANUP] = stack.pop_all()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the trace."""
    config.stash.get(CLEANUP, contextlib.ExitStack()).close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Forget compiles before the test, since they are not part of it."""
    if is_forbidden(item):
        item.config.stash[WATCH].look()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail the test if something was compiled during its setup or call although that is forbidden,
    and report an error if that happened during teardown."""
    yield
    if is_forbidden(item) and (found := item.config.stash[WATCH].look()):
        text = "\n".join(f"  {line}" for line in found)
        pytest.fail(f"lazy libraries compiled during the test:\n{text}", pytrace=False)


pytest_runtest_teardown = pytest_runtest_call
