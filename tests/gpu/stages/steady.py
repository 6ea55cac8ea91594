"""Measure what a launch costs once its blob, or its kernel, is loaded, compared with a launch ahead
of time."""

import json
import statistics
from pathlib import Path

from gpu.place import Place, complaint
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import host_units, launches

MEASURE = Path(__file__).with_name("steady_rounds.py")
LAUNCHES, ROUNDS, SHORT_ROUNDS = 10_000, 21, 3
LIMIT = 1.01


def build(place: Place, report: Report) -> None:
    """Build the library lazily, by blob and by kernel, and ahead of time. Copy the last: the
    difference between two equal libraries is noise."""
    launches.build(place, "shared")
    ahead = launches.library(place, "ahead", "shared")
    copy = launches.library(place, "again", "shared")
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(ahead.read_bytes())
    gencode = f"arch=compute_{place.machine.arch},code=sm_{place.machine.arch}"
    units = host_units.units_library(place, "shared")
    script = launches.PROGRAMS / "build.sh"
    blobs = ("*/errors.cu", "*/handles.cu", "*/shift_*.cu")  # these are not measured
    host_units.build_by_kernel(place, units, script, "shared", gencode, "*/scale.cu", blobs)


def prove(place: Place, report: Report) -> None:
    """Measure alternating rounds in one process."""
    libraries = [launches.library(place, how, "shared") for how in ("ahead", "again", "lazy")]
    libraries.append(host_units.units_library(place, "shared"))
    rounds = SHORT_ROUNDS if place.is_short or not place.machine.gpu else ROUNDS
    done = launches.run_many(place, [MEASURE, str(LAUNCHES), str(rounds), *libraries])
    found: list[dict[str, list[float]]] = json.loads(done.stdout) if done.returncode == 0 else []
    kinds = {"host": "host time of a launch", "device": "kernel time of a launch"}
    for number, how in ((2, "lazily"), (3, "by kernel")):
        for kind, text in kinds.items():
            claim = f"{text}, {LAUNCHES:,} launches a round, {how} against ahead of time: at most {LIMIT}"
            if why := place.machine.blind():
                report.blind(claim, f"{why}: launches return status {done.returncode}")
                continue
            if not found:
                report.missed(claim, complaint(done.stderr))
                continue
            ahead, again, mine = (statistics.median(found[i][kind]) for i in (0, 1, number))
            noise = abs(again / ahead - 1)
            times = f"{mine * 1e6:.3f} / {ahead * 1e6:.3f} µs"
            figures = f"{mine / ahead:.3f} (two of the same: {again / ahead:.3f}); {times}"
            report.check(claim, mine / ahead <= LIMIT + noise, figures)


STAGE = Stage(
    "steady",
    "kernel time and host time of a launch, alternating with ahead of time: a ratio of at most 1.01",
    build_seconds=240,
    seconds=60,
    build=build,
    prove=prove,
    is_alone=True,
)
