"""What lazy libraries tell of themselves: counts, progress, events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Counts since the library's first lazy call; `compile_ns` is wall time in nanoseconds."""

    blobs: int
    symbols: int
    loaded: int
    hits: int
    misses: int
    compiles: int
    failures: int
    damaged: int
    compile_ns: int
    remote_hits: int
    remote_refused: int
    remote_skipped: int


@dataclass(frozen=True)
class Progress:
    """How far a prefetch is: blobs in all, ready, and failed."""

    total: int
    ready: int
    failed: int
    is_over: bool


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob.

    `kind` is "compile", "wait" or "load"; `what` says of a failure why, of a wait for what, of a load from where;
    `start` is in seconds since 1970, `seconds` how long it took (0 as a compile begins: `has_ended` is false then),
    `peak_kib` the memory of the compiler's largest process, `bytes` the size of the entry (0: unknown).
    """

    kind: str
    library: str
    blob: str
    arch: str
    what: str
    start: float
    seconds: float
    peak_kib: int
    bytes: int
    has_ended: bool
    has_failed: bool
