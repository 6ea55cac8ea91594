"""Failures: how often they happened, what helps, and for a compile the log that the cache keeps."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.directory import Directory, RefusedError, read_leaves
from lazyck.formats.layout import EntryPath
from lazyck.history.events import Event

MOST_SHOWN = 100  # failures on the page; logs are read only for these
# The last line of a failed compile's log (runtime/src/store/compile.cpp).
_REPEAT = re.compile(r"\[to reproduce: (.*)\]")
_LONGEST_READ = 256 << 10  # bytes of a log, from its end
_MOST_LINES = 40
_LONGEST_END = 4000  # characters

# Remedies, by patterns for what the compiler or the runtime says. The first match counts.
_HINTS = (
    (abi.ENV_COMPILE_TIMEOUT, f"Set `{abi.ENV_COMPILE_TIMEOUT}` to more seconds, or to 0 for no limit."),
    (
        r"(?i)killed|out of memory|cannot allocate memory|memory exhausted|bad_alloc|due to signal 9",
        f"The compiler probably had too little memory: reserve more for each compile (`{abi.ENV_MEM_PER_JOB}=16G`), or "
        f"run fewer at a time (`{abi.ENV_JOBS}`). The next call tries again.",
    ),
    (
        r"(?i)no space left|disk quota|read-only file system|input/output error|is damaged",
        "The cache's file system is full or broken: make room (`lazyck cache trim --max-size 10G`), or name "
        f"another place with `{abi.ENV_CACHE_DIR}`. The next call tries again.",
    ),
    (
        "cannot start '",
        "Install that compiler, or fill the cache where there is one (`lazyck prebuild build`) and copy it here.",
    ),
    (
        "(?i)unsupported gpu architecture|not defined for option 'gpu-",
        f"This compiler does not know the GPU's arch: use a newer toolkit, or set `{abi.ENV_ARCHS}` to an arch that it "
        "knows and whose code this GPU can run.",
    ),
    ("the bundle was changed", "Somebody changed the sources beside the library: install the library again."),
)
_REPEAT_HINT = (
    "Repeat the compile with the command below. The source is a copy: fix it in the project and build that again; a "
    "changed source is compiled under a new key."
)
_NO_LOG_HINT = (
    "The cache does not have its log any more. `lazyck prebuild build --manifest LIB BLOB` compiles it again and names "
    "the log."
)


@dataclass(frozen=True)
class CompileLog:
    """The log of a failed compile: its path, the end of the compiler's output, and the shell
    command that repeats the compile. Texts are unescaped."""

    path: str
    end: str
    command: str


@dataclass(frozen=True)
class ReportedFailure:
    """A failure that happened `count` times, the last time at `last`. It `is_over` if the blob was
    compiled or loaded after that. `hint` says what helps, with commands between backticks. `log` is
    None if the cache has none, or if this was not a compile."""

    kind: str
    blob: str
    library: str
    arch: str
    what: str
    count: int
    last: float
    is_over: bool
    hint: str = ""
    log: CompileLog | None = None


def failures(events: Sequence[Event]) -> list[ReportedFailure]:
    """Return the failures, each failure of a blob once. Those that are not over come first, sorted
    by time, the latest first."""
    grouped: dict[tuple[str, str, str, str, str], list[Event]] = defaultdict(list)
    succeeded: dict[tuple[str, str, str], float] = {}
    for e in events:
        if e.has_failed:
            grouped[e.kind, e.blob, e.library, e.arch, e.what].append(e)
        elif e.kind != abi.EVENT_WAIT:
            succeeded[e.blob, e.library, e.arch] = e.start + e.seconds
    found = []
    for (kind, blob, library, arch, what), those in grouped.items():
        last = max(e.start + e.seconds for e in those)
        is_over = succeeded.get((blob, library, arch), 0.0) > last
        found.append(ReportedFailure(kind, blob, library, arch, what, len(those), last, is_over))
    return sorted(found, key=lambda f: (f.is_over, -f.last, f.blob))


def with_advice(found: Sequence[ReportedFailure], cache: Path) -> list[ReportedFailure]:
    """Return the failures with hints, and the first of them with logs from the cache. Raises
    `RefusedError` for a refused cache."""
    logs = _read_logs(found[:MOST_SHOWN], cache)
    return [replace(f, log=logs.get(i), hint=_hint(f, logs.get(i))) for i, f in enumerate(found)]


def _hint(failure: ReportedFailure, log: CompileLog | None) -> str:
    if failure.is_over:
        return "A later attempt succeeded: there is nothing to do."
    for pattern, hint in _HINTS:
        if re.search(pattern, failure.what):
            return hint
    if failure.kind != abi.EVENT_COMPILE:
        return f"`{abi.ENV_LOG}=debug` says more when it happens again."
    return _REPEAT_HINT if log else _NO_LOG_HINT


def _read_logs(found: Sequence[ReportedFailure], cache: Path) -> dict[int, CompileLog]:
    """Return the logs of failed compiles, by their index. If a blob has several, since its source
    was changed meanwhile, the one written nearest to the failure counts."""
    wanted: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for i, f in enumerate(found):
        if f.kind == abi.EVENT_COMPILE:
            for shelf in (f.library, abi.PROGRAMS):
                wanted[shelf, f.blob, abi.archs_in_name(f.arch)].append(i)
    candidates: dict[int, list[tuple[float, CompileLog]]] = defaultdict(list)
    for leaf in read_leaves(cache) if wanted else ():
        for name in leaf.names():
            at = EntryPath.of(leaf.path / name)
            indices = wanted.get((at.library, at.blob, at.archs), ()) if at.is_log else ()
            if indices and (read := _read_log(leaf, name)):
                for i in indices:
                    candidates[i].append(read)
    return {i: min(those, key=lambda c: abs(c[0] - found[i].last))[1] for i, those in candidates.items()}


def _read_log(leaf: Directory, name: str) -> tuple[float, CompileLog] | None:
    """Return when a log was written, and its contents. The result is None if it is not the log of a
    failed compile or cannot be read."""
    with contextlib.suppress(OSError, RefusedError), leaf.open_file(name) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LONGEST_READ))
        text = file.read(_LONGEST_READ).decode(errors="surrogateescape")
        info = leaf.status(name)
        *lines, last = text.rstrip("\n").split("\n")
        match = _REPEAT.fullmatch(last)
        if match and info:
            said = [line for line in lines if not line.startswith("$ ")]  # without the commands
            end = "\n".join(said[-_MOST_LINES:])
            return info.st_mtime, CompileLog(str(leaf.path / name), end[-_LONGEST_END:], match[1])
    return None
