"""Test CUDA graphs of launches out of blobs, and first calls while a stream is captured."""

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

CAPTURES = ("blocking stream", "non-blocking stream", "thread's capture", "relaxed capture")
_DETECTED = ("blocking stream", "thread's capture")  # these streams synchronize with the default stream


def build(place: Place, report: Report) -> None:
    """Build both libraries."""
    launches.build(place, "shared")


def prove(place: Place, report: Report) -> None:
    """Compare replays, then make first calls under capture."""
    launches.compare(place, report, "shared", ["replays"])
    why = place.machine.blind()
    for name in CAPTURES[:2] if place.is_short else CAPTURES:
        lazy, _ = launches.prove(place, "lazy", "shared", name)
        text = f"a first call in a capture ({name}): refused or right, and nothing is spoiled"
        if why:
            report.blind(text, f"{why}: {' '.join(lazy.split())[:150]}")
            continue
        is_right = "WRONG" not in lazy and "REFUSED" not in lazy and "ended with" not in lazy
        has_ended = all(f"{step}: cudaSuccess" in lazy for step in ("ended", "made", "replayed", "called outside"))
        has_said = "refused: says why" in lazy or name not in _DETECTED
        report.check(text, is_right and has_ended and has_said, " ".join(lazy.split()))


STAGE = Stage(
    "graphs",
    "capture and 1,000 replays give the right results; a first call under capture is refused, and nothing is spoiled",
    build_seconds=180,
    seconds=60,
    build=build,
    prove=prove,
)
