"""A plugin for pytest: a test during which a lazy library compiles fails, and names the blobs. It is off by default.

`--lazyck-forbid-jit`, or `lazyck_forbid_jit = true` among the settings of pytest, is for all tests; the marker
`lazyck_forbid_jit` for one, and `lazyck_forbid_jit(False)` leaves one out. What compiles does compile, since a refused
call ends a program that does not catch C++'s exceptions.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from lazyck import abi
from lazyck.config import environment, setting
from lazyck.history import Event, decode_trace

NAME = "lazyck_forbid_jit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the setting."""
    text = "fail tests during which a lazy library compiles"
    parser.getgroup("lazyck").addoption("--lazyck-forbid-jit", action="store_true", help=text)
    parser.addini(NAME, text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers", f"{NAME}(is_forbidden=True): fail the test if a lazy library compiles during it, or let it compile"
    )


def is_forbidden(item: pytest.Item) -> bool:
    """Whether nothing may be compiled during this test."""
    marker = item.get_closest_marker(NAME)
    if marker is not None:
        return bool((*marker.args, *marker.kwargs.values(), True)[0])
    return bool(item.config.getoption(NAME) or item.config.getini(NAME))


class Watch:
    """Looks at what lazy libraries compile: their trace names it, and their counts say whether the trace has it all.

    It has not for a library whose first lazy call came before `LAZYCK_TRACE` was set.
    """

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._end = 0  # of the last event that was read: what closes the array behind it is written over
        self._read()
        self._named = 0  # compiles of this process that the trace has
        self._unnamed = 0  # those that only the counts have

    def look(self) -> list[str]:
        """What was compiled since the last look, by this process and those that it started: a text for each blob."""
        import lazyck  # not in every run of pytest

        stats = [library.stats() for library in lazyck.loaded()]
        events = [event for event in self._read() if event.kind == "compile"]
        self._named += sum(event.pid == os.getpid() for event in events)
        before, self._unnamed = self._unnamed, sum(s.compiles + s.failures for s in stats) - self._named
        found = [f"{event.blob} of {event.library} ({event.seconds:.1f} s)" for event in events]
        if self._unnamed > before:
            found.append(f"{self._unnamed - before} of libraries that were called before the tests began")
        return found

    def _read(self) -> list[Event]:
        """The events that the trace has got since it was last read."""
        if not self._trace.exists():
            return []
        with self._trace.open("rb") as file:
            file.seek(self._end)
            text = file.read()
        whole = text[: text.rfind(b"}\n") + 1]
        self._end += len(whole)
        return list(decode_trace(whole.splitlines()))


WATCH = pytest.StashKey[Watch]()
CLEANUP = pytest.StashKey[contextlib.ExitStack]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Has libraries write a trace, if a test wants it."""
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
    """Ends that."""
    config.stash.get(CLEANUP, contextlib.ExitStack()).close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """What was compiled until now is no test's."""
    if is_forbidden(item):
        item.config.stash[WATCH].look()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """What was compiled during setup and call fails the test."""
    yield
    fail_for_compiles(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """What was compiled since then is an error, too."""
    yield
    fail_for_compiles(item)


def fail_for_compiles(item: pytest.Item) -> None:
    """Fails the test if something was compiled that may not be."""
    if is_forbidden(item) and (found := item.config.stash[WATCH].look()):
        text = "\n".join(f"  {line}" for line in found)
        pytest.fail(f"lazy libraries compiled during the test:\n{text}", pytrace=False)
