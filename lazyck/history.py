"""What the runtime noted of its work: `<cache>/.history` and trace files.

Their grammar stands in runtime/src/events.cpp and trace.cpp. They are appended to by processes that may be killed and
lie where anyone with the user's rights writes: what does not parse is passed over and counted, and nothing of any size
or shape takes more than bounded memory.
"""

from __future__ import annotations

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

from lazyck.directory import Directory, find_root, opened_in
from lazyck.errors import FormatError
from lazyck.visible import visible

HISTORY_DIRECTORY = ".history"
ZEROED = ".zeroed"  # a file of a cache: when its counters were set to zero, in seconds since 1970
KINDS = ("compile", "wait", "load")

_LONGEST_LINE = 64 * 1024
_LARGEST_FILE = 64 << 20  # the writer moves a history away at 8 MiB
_MOST_EVENTS = 500_000
_LAST_TIME = 1e11  # seconds since 1970: the year 5138
_LONGEST = 1e9  # seconds
_LARGEST_NUMBER = 2**53  # what JSON's readers keep exactly


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob. Texts are as `visible` gives them; "" and 0 stand for unknown, as does the
    rank -1.

    `start` is in seconds since 1970, `seconds` what it took, `what` of a failure why, of a wait for what, of a load
    from where ("cache", "tier <root>", "remote <URL>", "compiled"); `peak_kib` is of the compiler's largest process,
    `size` the entry's, in bytes.
    """

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
        """Whether a blob came out of a cache, so that nobody had to compile it."""
        return self.kind == "load" and not self.has_failed and self.what != "compiled"


@dataclass(frozen=True)
class History:
    """Events in order of their start, and how many lines (or events beyond the bound) were passed over."""

    events: tuple[Event, ...]
    passed_over: int = 0


def read_history(cache: Path) -> History:
    """All that the processes of all hosts noted in `cache`; empty if nothing has. Raises `RefusedError`, or `OSError`
    when it cannot be read."""
    found: list[Event] = []
    passed_over = 0
    for name, line in lines_below(cache, HISTORY_DIRECTORY):
        event = decode_event(line, visible(name.removesuffix(".1"))) if line is not None else None
        if event is None or len(found) == _MOST_EVENTS:
            passed_over += 1
        else:
            found.append(event)
    return History(tuple(sorted(found, key=lambda e: e.start)), passed_over)


def zero(cache: Path, now: float) -> None:
    """Have the counters of `cache` begin at `now` (seconds since 1970). The history itself stays as it is: processes
    append to it at any moment. Raises `RefusedError`, `OSError`."""
    with Directory.open(cache) as root:
        root.write(ZEROED, f"{now:.3f}\n".encode(), 0o600)


def read_zeroed(cache: Path) -> float:
    """When the counters of `cache` were set to zero, in seconds since 1970; 0 if never. Raises `RefusedError`,
    `OSError`."""
    try:
        with opened_in(cache, cache / ZEROED) as file:
            raw = json.loads(file.read(_LONGEST_LINE))
    except (FileNotFoundError, ValueError):
        return 0.0
    return _number(raw, _LAST_TIME) or 0.0


def decode_event(line: bytes, host: str = "") -> Event | None:
    """One line of a history; None if it is not one. `host` is the event's if the line names none."""
    raw = _json_object(line)
    return None if raw is None else _event_of(raw, host)


def read_trace(path: Path) -> History:
    """The events of a trace file that lazyck wrote (`LAZYCK_TRACE`). Raises `FormatError` if there is nothing of the
    kind in it, or it cannot be read."""
    names: dict[int, tuple[str, int]] = {}
    found: list[Event] = []
    passed_over = 0
    try:
        for line in _lines(path):
            text = b"" if line is None else line.strip().rstrip(b",")
            if text in (b"[", b"]"):
                continue
            raw = _json_object(text)
            event = _event_of_trace(raw, names) if raw is not None and len(found) < _MOST_EVENTS else None
            if event is not None:
                found.append(event)
            elif raw is None or raw.get("ph") != "M":
                passed_over += 1
    except OSError as e:
        raise FormatError(f"{path}: {e.strerror}", "give a file that LAZYCK_TRACE named") from e
    if not found and not names:
        raise FormatError(f"{path}: no trace of lazyck", "give a file that LAZYCK_TRACE named")
    return History(tuple(sorted(found, key=lambda e: e.start)), passed_over)


def decode_trace(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of some lines of a trace. Lines that are none are left out."""
    names: dict[int, tuple[str, int]] = {}
    for line in lines:
        raw = _json_object(line.strip().rstrip(b","))
        event = None if raw is None else _event_of_trace(raw, names)
        if event is not None:
            yield event


def merge(histories: Iterable[History]) -> History:
    """Several as one; an event that is in a trace and in a history too (times there are rounded) is taken once."""
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
        seen.update(keys)  # not while it is read: one history holds nothing twice
    return History(tuple(sorted(events, key=lambda e: e.start)), passed_over)


def lines_below(cache: Path, name: str, wanted: Collection[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
    """(file, line) for the files of the directory `name` of a cache, of those that are `wanted` (None: all); none of a
    file that is gone by now, or a link, or no file. Raises `RefusedError` for a refused cache, `OSError`."""
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
        yield from _lines(directory.path / name, os.O_NOFOLLOW, directory.fd)
    except OSError as e:
        if e.errno not in (errno.ENOENT, errno.ELOOP):
            raise


def _lines(path: Path, flags: int = 0, directory: int | None = None) -> Iterator[bytes | None]:
    """The lines of a regular file, the oldest bytes of a huge one left out; None stands for one that is too long. With
    an open directory it is the file of this name in there."""
    name = path if directory is None else path.name
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=directory)
    except OSError as e:
        e.filename = str(path)
        raise
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        return
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, info.st_size - _LARGEST_FILE))
        read = 0
        is_inside = False  # of a line that is too long
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
    """A number from 0 to `most`; nothing else, such as NaN, infinity or a truth value."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        return None
    return raw if 0 <= raw <= most and math.isfinite(raw) else None


def _whole(raw: object, unknown: int = 0) -> int:
    number = _number(raw, _LARGEST_NUMBER)
    return unknown if number is None else int(number)


def _text(raw: object) -> str:
    return visible(raw) if isinstance(raw, str) else ""


def _event_of(raw: dict[str, Any], host: str) -> Event | None:
    start, seconds = _number(raw.get("t"), _LAST_TIME), _number(raw.get("s"), _LONGEST)
    kind, blob = raw.get("kind"), _text(raw.get("blob"))
    if start is None or seconds is None or kind not in KINDS or not blob:
        return None
    return Event(
        kind,
        blob,
        float(start),
        float(seconds),
        _text(raw.get("library")),
        _text(raw.get("arch")),
        _whole(raw.get("pid")),
        _whole(raw.get("tid")),
        _text(raw.get("host")) or host,
        _whole(raw.get("rank"), -1),
        raw.get("failed") is True,
        _text(raw.get("what")),
        _whole(raw.get("kib")),
        _whole(raw.get("size")),
    )


def _event_of_trace(raw: dict[str, Any], names: dict[int, tuple[str, int]]) -> Event | None:
    """An event of a trace. `names` gathers host and rank of the processes, which their first line gives."""
    args = raw.get("args")
    if not isinstance(args, dict):
        return None
    pid = _whole(raw.get("pid"))
    if raw.get("ph") == "M":
        match = re.fullmatch(r"(?:rank (\d{1,9}), )?process \d+ on (.*)", _text(args.get("name")))
        if match and len(names) < _MOST_EVENTS:
            names[pid] = (match[2], int(match[1]) if match[1] else -1)
        return None
    start, seconds = _number(raw.get("ts"), 1e6 * _LAST_TIME), _number(raw.get("dur"), 1e6 * _LONGEST)
    if raw.get("ph") != "X" or start is None or seconds is None:
        return None
    host, rank = names.get(pid, ("", -1))
    fields = {"t": 1e-6 * start, "s": 1e-6 * seconds, "kind": raw.get("cat"), "blob": raw.get("name"), "pid": pid}
    fields |= {"tid": raw.get("tid"), "rank": rank, "kib": args.get("peak_kib")}
    return _event_of(args | fields, host)
