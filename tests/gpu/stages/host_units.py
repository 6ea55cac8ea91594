"""Test host units: kernels that are registered with the CUDA runtime at their first use behave as
ahead of time."""

from collections.abc import Sequence
from pathlib import Path

from gpu.place import Place, StageError
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import handles, launches

LATE = (
    "an ordinary kernel first",
    "two types",
    "an attribute before a launch",
    "a launch without its attribute",
    "a constant before a launch",
    "a constant after a launch",
)


def late_library(place: Place, how: str, cudart: str) -> Path:
    """Return the library of tests/gpu/programs/late that was built `how`, `lazy` or `ahead`."""
    return place.work / f"late-{how}-{cudart}" / "liblate.so"


def units_library(place: Place, cudart: str) -> Path:
    """Return the library of tests/gpu/programs whose blobs are host units."""
    return place.work / f"launches-{cudart}" / "liblaunches.so"


def build(place: Place, report: Report) -> None:
    """Build the late project both ways, and the launches with host units as blobs. Raises
    `StageError`."""
    gencode = f"arch=compute_{place.machine.arch},code=sm_{place.machine.arch}"
    for cudart in handles.runtimes(place):
        launches.build(place, cudart)
        build_late(place, late_library(place, "ahead", cudart), cudart, gencode, "")
        build_late(place, late_library(place, "lazy", cudart), cudart, gencode, "*/kernels.cu")
        units = units_library(place, cudart)
        build_by_kernel(place, units, launches.PROGRAMS / "build.sh", cudart, gencode, "*/blob/*.cu")


def build_late(place: Place, made: Path, cudart: str, gencode: str, kernels: str) -> None:
    """Build the late project. Without `kernels`, build it ahead of time. Raises `StageError`."""
    script = launches.PROGRAMS / "late" / "build.sh"
    if kernels:
        build_by_kernel(place, made, script, cudart, gencode, kernels)
        return
    made.parent.mkdir(parents=True, exist_ok=True)
    place.run(["sh", script, gencode, cudart], cwd=made.parent)


def build_by_kernel(
    place: Place, made: Path, script: Path, cudart: str, gencode: str, kernels: str, blobs: Sequence[str] = ("",)
) -> None:
    """Run a project's own build under lazyck, with the sources `kernels` compiled by kernel, and
    `blobs` as blobs. Raises `StageError`."""
    made.parent.mkdir(parents=True, exist_ok=True)
    options: list[str | Path] = ["--toolchain", "cuda", "--kernels", kernels]
    options += [word for glob in blobs for word in ("--blobs", glob)]
    options += ["--tmp-dir", made.parent / "tmp"]
    said = place.lazyck("build", "full", *options, "--", "sh", script, gencode, cudart, cwd=made.parent)
    if "each compiled when it is first used" not in said.stdout + said.stderr:
        raise StageError(f"no kernel of {made.name} is compiled by itself: {said.stdout + said.stderr}")


def prove(place: Place, report: Report) -> None:
    """Compare the lines of lazy and ahead-of-time libraries, for each project."""
    for cudart in handles.runtimes(place):
        which = f"registered late, {cudart} runtime"
        lazy, ahead = late_library(place, "lazy", cudart), late_library(place, "ahead", cudart)
        launches.compare_of(place, report, lazy, ahead, which, LATE)
        units, ahead = units_library(place, cudart), launches.library(place, "ahead", cudart)
        launches.compare_of(place, report, units, ahead, which, handles.PROOFS)


STAGE = Stage(
    "host_units",
    "kernels that are registered at their first use, with the static and the shared runtime: launches, attributes and "
    "constants as ahead of time",
    build_seconds=300,
    seconds=180,
    build=build,
    prove=prove,
)
