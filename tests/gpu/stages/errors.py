"""Test that a launch fails with the error, and at the call, that it has ahead of time."""

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

PROOFS = ("a kernel that traps", "a launch out of memory", "too many threads", "more threads than its bounds")


def build(place: Place, report: Report) -> None:
    """Build both libraries."""
    launches.build(place, "shared")


def prove(place: Place, report: Report) -> None:
    """Compare the lines that both libraries print. Each proof spoils only its own process."""
    launches.compare(place, report, "shared", PROOFS)


STAGE = Stage(
    "errors",
    "a kernel that traps, a launch out of memory, bad configurations: the error of ahead of time, at the same call",
    build_seconds=180,
    seconds=60,
    build=build,
    prove=prove,
)
