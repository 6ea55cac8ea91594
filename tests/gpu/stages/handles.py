"""Test that every use of a kernel handle has the results that it has ahead of time, with either
CUDA runtime."""

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

PROOFS = (
    "attributes",
    "occupancy",
    "cooperative launch",
    "clusters",
    "shared memory over 48 KB",
    "cudaLaunchKernelEx",
    "constants, variables, managed memory",
    "streams and threads",
)


def runtimes(place: Place) -> tuple[str, ...]:
    """Return the CUDA runtimes to link."""
    return ("shared",) if place.is_short else ("shared", "static")


def build(place: Place, report: Report) -> None:
    """Build both libraries, with the shared and with the static runtime."""
    for cudart in runtimes(place):
        launches.build(place, cudart)


def prove(place: Place, report: Report) -> None:
    """Compare the lines that both libraries print."""
    for cudart in runtimes(place):
        launches.compare(place, report, cudart, PROOFS)


STAGE = Stage(
    "handles",
    "attributes, occupancy, cooperative launches, clusters, shared memory over 48 KB, `cudaLaunchKernelEx`, device "
    "data, streams and threads, with the static and the shared runtime: as ahead of time",
    build_seconds=240,
    seconds=120,
    build=build,
    prove=prove,
)
