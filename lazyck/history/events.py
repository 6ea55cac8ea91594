"""Events of lazy libraries as the runtime recorded them: in `<cache>/.history` and in trace files.

The grammars are in events.cpp and trace.cpp of runtime/src/history. Processes that may be killed
append to these files, and anyone with the user's rights can write to them. What does not parse is
therefore skipped and counted, and no size or shape of the contents takes more than bounded memory.
"""

import errno
import json
import math
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.directory import Directory, find_root, opened_in
from lazyck.errors import FormatError
from lazyck.visible import visible

ZEROED = ".zeroed"  # file of a cache: when its counters were set to zero, in seconds since 1970
KINDS = (abi.EVENT_COMPILE, abi.EVENT_WAIT, abi.EVENT_LOAD)

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST_LINE = 64 * 1024
_LARGEST_FILE = 64 << 20  # the writer moves a history away at 8 MiB
_MOST_EVENTS = 500_000
_LAST_TIME = 1e11  # seconds since 1970: the year 5138
_LONGEST = 1e9  # seconds
_LARGEST_NUMBER = 2**53  # JSON readers keep integers up to this exactly


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob. Texts are as `visible` returns them. An empty string, 0
    and the rank -1 mean unknown. `start` is in seconds since 1970. `what` says why a failure
    happened, what a wait was for, or where a load came from ("cache", "tier <root>", "remote
    <URL>", "compiled"). `peak_kib` is the memory of the compiler's largest process, `size` the
    entry's bytes."""

    kind: str
    blob: str
    start: float
    seconds: float
    library: str = ""
    arch: str = ""
    pid: int = 0
    tid: int = 0
    host: str = ""
    rank: int = -1
    has_failed: bool = False
    what: str = ""
    peak_kib: int = 0
    size: int = 0

    @property
    def is_cache_load(self) -> bool:
        return self.kind == abi.EVENT_LOAD and not self.has_failed and self.what != abi.ORIGIN_COMPILED


@dataclass(frozen=True)
class History:
    """Events in order of their start, and the number of lines that were skipped."""

    events: tuple[Event, ...]
    passed_over: int = 0


def read_history(cache: Path) -> History:
    """Read the events that the processes of all hosts recorded in `cache`. The history is empty if
    there are none. Raises `RefusedError`, or `OSError` if it cannot be read."""
    lines = lines_below(cache, abi.CACHE_HISTORY)
    return _history_of(decode_event(line or b"", visible(name.removesuffix(".1"))) for name, line in lines)


def _history_of(events: Iterable[Event | None]) -> History:
    """Return the history with these events. None stands for a line that is skipped."""
    found: list[Event] = []
    passed_over = 0
    for event in events:
        if event is None or len(found) == _MOST_EVENTS:
            passed_over += 1
        else:
            found.append(event)
    return History(tuple(sorted(found, key=lambda e: e.start)), passed_over)


def zero(cache: Path, now: float) -> None:
    """Make the counters of `cache` begin at `now` (seconds since 1970). The history stays as it is,
    since processes may append to it at any moment. Raises `RefusedError`, `OSError`."""
    with Directory.open(cache) as root:
        root.write(ZEROED, f"{now:.3f}\n".encode(), 0o600)


def read_zeroed(cache: Path) -> float:
    """Return when the counters of `cache` were set to zero, in seconds since 1970, or 0 if they
    never were. Raises `RefusedError`, `OSError`."""
    try:
        with opened_in(cache, cache / ZEROED) as file:
            raw = json.loads(file.read(_LONGEST_LINE))
    except (FileNotFoundError, ValueError):
        return 0.0
    return _number(raw, _LAST_TIME) or 0.0


def decode_event(line: bytes, host: str = "") -> Event | None:
    """Decode one line of a history, or return None. `host` is that of a line that names none."""
    raw = _json_object(line)
    return None if raw is None else _event_of(raw, host)


def read_trace(path: Path) -> History:
    """Read the events of a trace file (`LAZYCK_TRACE`). Raises `FormatError` for any other."""
    names: dict[int, tuple[str, int]] = {}
    try:
        found = _history_of(decode_trace(_lines(os.open(path, _FLAGS)), names))
    except OSError as e:
        raise FormatError(f"{path}: {e.strerror}", "give a file that LAZYCK_TRACE named") from e
    if not found.events and not names:
        raise FormatError(f"{path}: not a lazyck trace", "give a file that LAZYCK_TRACE named")
    return found


def decode_trace(lines: Iterable[bytes | None], names: dict[int, tuple[str, int]]) -> Iterator[Event | None]:
    """Yield the events in some lines of a trace, and None for each line that is not one of a trace.
    `names` collects host and rank of each process, from its first line."""
    for line in lines:
        text = (line or b"").strip().rstrip(b",")
        if text in (b"[", b"]"):
            continue
        raw = _json_object(text)
        event = None if raw is None else _event_of_trace(raw, names)
        if event is not None or raw is None or raw.get(abi.KEY_PH) != "M":
            yield event


def merge(histories: Iterable[History]) -> History:
    """Merge several histories. An event that is both in a trace and in a history is taken once.
    Times in a history are rounded."""
    seen: set[tuple[object, ...]] = set()
    events: list[Event] = []
    passed_over = 0
    for history in histories:
        passed_over += history.passed_over
        keys = []
        for e in history.events:
            key = (e.kind, e.library, e.blob, e.host, e.pid, e.tid)
            at = round(e.start * 1000)
            if not any((*key, near) in seen for near in (at - 1, at, at + 1)):
                events.append(e)
            keys.append((*key, at))
        seen.update(keys)  # only afterwards: within one history nothing is there twice
    return History(tuple(sorted(events, key=lambda e: e.start)), passed_over)


def lines_below(cache: Path, name: str, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
    """Yield (file, line) for the regular files of the directory `name` of a cache, or only for
    those that are `wanted`. Symbolic links are not followed. Raises `RefusedError`, `OSError`."""
    root = find_root(cache)
    if root is None:
        return
    with root:
        directory = root.find(name)
        if directory is None:
            return
        with directory:
            for file in directory.names():
                if wanted is None or file in wanted:
                    for line in _lines_within(directory, file):
                        yield file, line


def _lines_within(directory: Directory, name: str) -> Iterator[bytes | None]:
    try:
        fd = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=directory.fd)
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ELOOP):
            return
        e.filename = str(directory.path / name)
        raise
    yield from _lines(fd)


def _lines(fd: int) -> Iterator[bytes | None]:
    """Yield the lines of an open file, if it is a regular one, without the oldest bytes of a huge
    one. None stands for a line that is too long. Closes the file."""
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        return
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, info.st_size - _LARGEST_FILE))
        read = 0
        is_inside = False  # in a line that is too long
        while read < _LARGEST_FILE and (line := file.readline(_LONGEST_LINE)):
            read += len(line)
            is_whole = line.endswith(b"\n") or len(line) < _LONGEST_LINE
            if not is_inside:
                yield line if is_whole else None
            is_inside = not is_whole


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


def _number(raw: object, most: float) -> float | None:
    """Return `raw` if it is a number from 0 to `most`. A boolean is none."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return raw if 0 <= raw <= most and math.isfinite(raw) else None


def _whole(raw: object, unknown: int = 0) -> int:
    number = _number(raw, _LARGEST_NUMBER)
    return unknown if number is None else int(number)


def _text(raw: object) -> str:
    return visible(raw) if isinstance(raw, str) else ""


def _event_of(raw: dict[str, Any], host: str) -> Event | None:
    start, seconds = _number(raw.get(abi.KEY_T), _LAST_TIME), _number(raw.get(abi.KEY_S), _LONGEST)
    kind, blob = raw.get(abi.KEY_KIND), _text(raw.get(abi.KEY_BLOB))
    if start is None or seconds is None or kind not in KINDS or not blob:
        return None
    texts: dict[str, Any] = {name: _text(raw.get(name)) for name in (abi.KEY_LIBRARY, abi.KEY_ARCH, abi.KEY_WHAT)}
    numbers: dict[str, Any] = {name: _whole(raw.get(name)) for name in (abi.KEY_PID, abi.KEY_TID, abi.KEY_SIZE)}
    return Event(
        kind, blob, float(start), float(seconds), **texts, **numbers, host=_text(raw.get(abi.KEY_HOST)) or host,
        rank=_whole(raw.get(abi.KEY_RANK), -1), has_failed=raw.get(abi.KEY_FAILED) is True,
        peak_kib=_whole(raw.get(abi.KEY_KIB)),
    )  # fmt: skip


def _event_of_trace(raw: dict[str, Any], names: dict[int, tuple[str, int]]) -> Event | None:
    args = raw.get(abi.KEY_ARGS)
    if not isinstance(args, dict):
        return None
    pid = _whole(raw.get(abi.KEY_PID))
    if raw.get(abi.KEY_PH) == "M":
        match = re.fullmatch(r"(?:rank (\d{1,9}), )?process \d+ on (.*)", _text(args.get(abi.KEY_NAME)))
        if match and len(names) < _MOST_EVENTS:
            names[pid] = (match[2], int(match[1]) if match[1] else -1)
        return None
    start, seconds = (
        _number(raw.get(abi.KEY_TS), 1e6 * _LAST_TIME), _number(raw.get(abi.KEY_DUR), 1e6 * _LONGEST),
    )  # fmt: skip
    if raw.get(abi.KEY_PH) != "X" or start is None or seconds is None:
        return None
    host, rank = names.get(pid, ("", -1))
    fields = {
        abi.KEY_T: 1e-6 * start, abi.KEY_S: 1e-6 * seconds, abi.KEY_KIND: raw.get(abi.KEY_CAT),
        abi.KEY_BLOB: raw.get(abi.KEY_NAME), abi.KEY_PID: pid, abi.KEY_TID: raw.get(abi.KEY_TID),
        abi.KEY_RANK: rank, abi.KEY_KIB: args.get(abi.KEY_PEAK_KIB),
    }  # fmt: skip
    return _event_of(args | fields, host)
