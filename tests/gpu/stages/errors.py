"""Errors of launches: the same error at the same call as ahead of time."""

from __future__ import annotations

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

PROOFS = ("a kernel that traps", "a launch out of memory", "too many threads", "more threads than its bounds")


def build(place: Place, report: Report) -> None:
    """Both libraries."""
    launches.build(place, "shared")


def prove(place: Place, report: Report) -> None:
    """The same lines from both; each proof spoils its own process only."""
    launches.compare(place, report, "shared", PROOFS)


STAGE = Stage(
    "errors",
    "a kernel that traps, a launch out of memory, bad configurations: the error of ahead of time, at the same call",
    build_seconds=180,
    seconds=60,
    build=build,
    prove=prove,
)
