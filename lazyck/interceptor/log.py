"""Read the log of the shims, which has one line per call (written by record.c):
`action reason tool output source blobs microseconds`.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi


@dataclass(frozen=True)
class LogLine:
    """Describe one call of a shim. `action` is defer, link, pass or fail. `output` and `source` are
    empty if unknown.

    `blobs` counts the sources matching --blobs that the call compiles or hands to the real
    compiler, or whose objects a link takes that the real compiler made. `source` is the first.
    """

    action: str
    reason: str
    tool: str
    output: str
    source: str
    blobs: int
    microseconds: int


_NUMBER = re.compile("[0-9]{1,20}")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}


def _field(text: str) -> str:
    return "" if text == "-" else re.sub(r"\\[tn\\]", lambda m: _ESCAPES[m[0]], text)


def read_log(path: Path) -> list[LogLine]:
    """Return the lines of a log in order. A log that does not exist is empty. A line that a full
    disk cut short is left out.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for line in os.fsdecode(data).split("\n"):
        fields = line.split("\t")
        if len(fields) == 7 and all(map(_NUMBER.fullmatch, fields[5:])):
            tool, output, source = map(_field, fields[2:5])
            lines.append(LogLine(fields[0], fields[1], tool, output, source, int(fields[5]), int(fields[6])))
    return lines


def passed_reasons(lines: Iterable[LogLine]) -> list[tuple[str, int]]:
    """Return why calls were passed on: reasons with their numbers, the most frequent first."""
    reasons = Counter(line.reason for line in lines if line.action == abi.DID_PASS)
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def passed_blobs(lines: Iterable[LogLine]) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Return the blobs that the real compiler compiled: for each reason their number and their
    sources (the first one of each call).

    A call counts even if its output was deferred or compiled in another way later, because it was a
    compile.
    """
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for line in lines:
        if line.action == abi.DID_PASS and line.blobs and line.reason != abi.WHY_LINK_WITHOUT_BLOBS:
            number, sources = found.get(line.reason, (0, ()))
            more = () if line.source in sources else (line.source,)
            found[line.reason] = (number + line.blobs, (*sources, *more))
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0])))


def passed_libraries(lines: Iterable[LogLine]) -> list[str]:
    """Return what was linked of blobs that the real compiler compiled, all of them."""
    return [line.output for line in lines if line.reason == abi.WHY_LINK_WITHOUT_BLOBS and line.blobs and line.output]
