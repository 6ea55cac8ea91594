"""What lazy libraries report: counts, progress, events."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """Counts since the library's first lazy call. `compile_ns` is wall time in nanoseconds."""

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
    """The progress of a prefetch: how many blobs there are, how many are ready, and how many have
    failed.

    `seconds_left` are the expected seconds until it is over, from what compiles took before, or
    None if nothing is known.
    """

    total: int
    ready: int
    failed: int
    is_over: bool
    seconds_left: float | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened to a blob.

    `kind` is "compile", "wait" or "load". `what` says why a failure happened, what a wait was for,
    or where a load came from. `start` is in seconds since 1970, and `seconds` is the duration. A
    compile that begins is an event too: `has_ended` is false and `seconds` is 0. `peak_kib` is the
    memory of the compiler's largest process, and `bytes` is the size of the entry. Either is 0 if
    it is unknown. `expected` are the seconds that a compile was expected to take, or 0.
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
    expected: float = 0.0
