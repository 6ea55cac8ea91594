"""Have one entry compiled by what LAZYCK_REMOTE_COMPILE names, for a library that waits for it."""

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.errors import LazyckError
from lazyck.history.costs import keep_guess, read_last
from lazyck.postbuild.objects.embedded import read_manifest
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.prebuild.plan import Job, Plan
from lazyck.prebuild.progress import PlanProgress
from lazyck.prebuild.run import PrebuildRequest, build_on
from lazyck.quantities import show_seconds
from lazyck.remote.circuit_breaker import ALL, CircuitBreaker
from lazyck.remote.entry_name import EntryName
from lazyck.remote.helper import Caller
from lazyck.remote.tiers import read_times
from lazyck.visible import without_secrets

_CACHE = "cache"
_FIRST_WORD, _NEXT_WORD = 2.0, 30.0  # seconds of waiting until a line says so


@dataclass(frozen=True)
class CompileRequest:
    """The compile that a library waits for, at most `patience` seconds. `expected` is the seconds
    that it took before, or 0."""

    entry: EntryName
    cache: Path
    library: Path
    blob: str
    archs: tuple[str, ...]
    expected: float
    patience: float


class _TooLateError(LazyckError):
    """The service took longer than the caller waits."""


class _Relay:
    """Report progress to the caller, and cancel the work once the caller has gone."""

    def __init__(self, caller: Caller, wanted: CompileRequest, label: str) -> None:
        self._caller, self._wanted, self._label = caller, wanted, label
        self._began = time.monotonic()
        self._next_word = self._began + _FIRST_WORD

    def ended(self, state: PlanProgress, number: int, error: str) -> None:
        """Do nothing: the outcome tells it."""

    def show(self, state: PlanProgress, now: float, used_kib: int) -> None:
        """Report now and then that the work continues. Raises `CallerGone` and `_TooLateError`."""
        self._caller.check()
        waited = now - self._began
        if waited > self._wanted.patience:
            raise _TooLateError(
                f"{self._label}: no entry within {self._wanted.patience:.0f} s ({abi.ENV_LOCK_TIMEOUT})"
            )
        if now < self._next_word:
            return
        self._next_word = now + _NEXT_WORD
        what = "is compiling" if state.running else "has queued"
        about = f", which took {show_seconds(self._wanted.expected)} before" if self._wanted.expected else ""
        text = f"{self._label} {what} {self._wanted.blob}{about} ({waited:.0f} s so far)"
        self._caller.send(abi.LINE_NOTE, abi.NOTE_INFO, text)

    def note(self, line: str) -> None:
        self._caller.send(abi.LINE_NOTE, abi.NOTE_INFO, line.removeprefix("lazyck: "))

    def close(self) -> None:
        """Do nothing."""


def compile_elsewhere(wanted: CompileRequest, caller: Caller, env: Mapping[str, str]) -> None:
    """Have the entry compiled, and hand it to the caller. Raises `CallerGone`."""
    executor = env.get(abi.ENV_REMOTE_COMPILE, "")
    label = without_secrets(executor.partition("|")[0])
    memory = CircuitBreaker(wanted.cache, read_times(env))
    if why := memory.why(label, ALL):
        caller.send(abi.LINE_SKIPPED, f"{label}: {why}")
        caller.send(abi.LINE_MISS)
        return
    began = time.monotonic()
    place = Path.cwd() / _CACHE
    entry = BlobEntry(
        wanted.blob, wanted.archs, wanted.entry.entry_path.archs, place / abi.CACHE_VERSION / wanted.entry.name, False,
        wanted.entry.key_id, wanted.entry.name,
    )  # fmt: skip
    plan = Plan((entry,), (Job(entry, wanted.expected or None),))
    try:
        manifest = read_manifest(wanted.library)
        request = PrebuildRequest(wanted.library, manifest, plan, env, _Relay(caller, wanted, label))
        outcome = build_on(executor, request, named_by=abi.ENV_REMOTE_COMPILE, jobs=1)
        failure = next(iter(outcome.failures), None)
        if failure and not failure.log:
            raise LazyckError(f"{label}: {failure.error}")
    except LazyckError as e:
        if not isinstance(e, _TooLateError):
            memory.note(label, ALL, e.message.removeprefix(f"{label}: "), time.monotonic() - began)
        caller.send(abi.LINE_SKIPPED, e.render().replace("\n", ";"))
        caller.send(abi.LINE_MISS)
        return
    if failure:
        shutil.move(failure.log, abi.COMPILER_LOG_FILE)
        caller.send(abi.LINE_FAILED, abi.FAILED_FINAL if failure.is_final else abi.FAILED_PASSING, failure.error)
    else:
        _hand_over(entry, wanted, label, caller)


def _hand_over(entry: BlobEntry, wanted: CompileRequest, label: str, caller: Caller) -> None:
    with contextlib.suppress(FileNotFoundError):
        entry.log.rename(abi.COMPILER_LOG_FILE)
    entry.path.chmod(0o600)
    size = entry.path.stat().st_size
    key = wanted.entry.entry_path.cost_key
    took = None
    with contextlib.suppress(OSError):  # now, because the caller removes this directory once it has the entry
        took = read_last(entry.root, *key)
    entry.path.rename(abi.FETCHED_FILE)
    caller.send(abi.LINE_HIT, label, str(size))
    word, _ = caller.receive()
    if word != abi.LINE_KEPT:
        caller.send(abi.LINE_MISS)
    elif took:
        keep_guess(wanted.cache, *key, *took)  # for the caller's next compile


def parse(words: Sequence[str]) -> CompileRequest:
    """Parse the words that follow `compile`. Raises `LazyckError`."""
    given: dict[str, str] = {}
    archs: list[str] = []
    rest = list(words)
    while rest and rest[0] != "--":
        name, value = rest.pop(0), rest.pop(0) if rest else ""
        if name == abi.OPTION_ARCH:
            archs.append(value)
        else:
            given[name] = value
    try:
        if set(given) != _OPTIONS or len(rest) != 2:
            raise LazyckError(_USAGE)
        return CompileRequest(
            EntryName(given[abi.OPTION_KEY], given[abi.OPTION_NAME]), Path(given[abi.OPTION_CACHE]),
            Path(given[abi.OPTION_FROM]), rest[1], tuple(archs), float(given[abi.OPTION_EXPECT]),
            max(float(given[abi.OPTION_WAIT]), 0.0),
        )  # fmt: skip
    except ValueError as e:
        raise LazyckError(_USAGE) from e


_OPTIONS = {
    abi.OPTION_KEY, abi.OPTION_NAME, abi.OPTION_CACHE, abi.OPTION_EXPECT, abi.OPTION_WAIT, abi.OPTION_FROM,
}  # fmt: skip
_USAGE = (
    "usage: lazyck-remote compile --key KEY --name NAME --cache DIR --expect SECONDS --wait SECONDS --from LIBRARY"
    " [--arch ARCH]... -- BLOB"
)
