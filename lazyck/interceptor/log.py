"""What the shims did, one line per call (written by record.c): `action reason tool output source microseconds`."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LogLine:
    """One call of a shim. `action` is defer, link, pass or fail; `output` and `source` are "" where unknown."""

    action: str
    reason: str
    tool: str
    output: str
    source: str
    microseconds: int


@dataclass(frozen=True)
class LogCounts:
    """A log in numbers: calls deferred, links taken over, calls passed on by reason."""

    deferred: int
    links: int
    passed: tuple[tuple[str, int], ...]


_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}


def _field(text: str) -> str:
    return "" if text == "-" else re.sub(r"\\[tn\\]", lambda m: _ESCAPES[m[0]], text)


def read_log(path: Path) -> list[LogLine]:
    """The lines of a log in order; a log that does not exist is empty, a line cut short by a full disk is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for line in os.fsdecode(data).split("\n"):
        fields = line.split("\t")
        if len(fields) == 6 and fields[5].isdigit():
            tool, output, source = map(_field, fields[2:5])
            lines.append(LogLine(fields[0], fields[1], tool, output, source, int(fields[5])))
    return lines


def count(lines: Iterable[LogLine]) -> LogCounts:
    """The numbers for a summary, the most frequent reason first."""
    actions: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for line in lines:
        actions[line.action] += 1
        if line.action == "pass":
            reasons[line.reason] += 1
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return LogCounts(actions["defer"], actions["link"], tuple(ordered))
