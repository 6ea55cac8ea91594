"""What happened to blobs: the runtime's record of it in a cache (the format stands in `runtime/src/events.cpp`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Event:
    """A compile, a wait or a load: when it began, how long it took, of what, by whom, and what came of it."""

    t: float = 0.0
    s: float = 0.0
    kind: str = ""
    library: str = ""
    blob: str = ""
    arch: str = ""
    pid: int = 0
    tid: int = 0
    host: str = ""
    rank: int | None = None
    failed: bool = False
    what: str = ""
    kib: int = 0
    size: int = 0


def read_history(cache: Path) -> list[Event]:
    """The events of all hosts that used the cache, in the order of their beginning; torn lines are passed over."""
    return sorted((e for path in sorted(cache.glob(".history/*")) for e in _events(path)), key=lambda e: e.t)


def _events(path: Path) -> Iterator[Event]:
    try:
        lines = path.read_text(errors="surrogateescape").split("\n")
    except OSError:
        return
    for line in lines:
        try:
            raw = json.loads(line)
        except ValueError:
            continue
        event = _event(raw) if isinstance(raw, dict) else None
        if event is not None:
            yield event


def _event(raw: dict[str, Any]) -> Event | None:
    values: dict[str, Any] = {}
    for field in fields(Event):
        if field.name not in raw:
            continue
        value = raw[field.name]
        wanted: tuple[type, ...] = (int,) if field.default is None else (type(field.default),)
        if wanted == (float,):
            wanted = (float, int)
        if not isinstance(value, wanted):
            return None
        values[field.name] = value
    return Event(**values)
