"""Define a stage of the proof, and run one of its phases as a process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from gpu import machine
from gpu.place import Place, StageError
from gpu.report import Report

Work = Callable[[Place, Report], None]


@dataclass(frozen=True)
class Stage:
    """Describes a stage. `build` does what needs no GPU, and `prove` uses its results. Each has a
    time limit in seconds. `is_alone` says that nothing else may run during the proof, for example
    because it measures time."""

    name: str
    shows: str
    build_seconds: int
    seconds: int
    build: Work
    prove: Work
    is_alone: bool = False


def load(name: str) -> Stage:
    """Return the stage of the module of that name."""
    found: Stage = import_module(f"gpu.stages.{name}").STAGE
    return found


def main() -> None:
    """Run `python -m gpu.stage ROOT NAME build|prove`, as `gpu.schedule` calls it."""
    root, name, phase = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    options = dict(line.split("=", 1) for line in (root / "options").read_text().splitlines())
    place = Place(
        name,
        root,
        Path(options["parcel"]),
        machine.load(root / "machine.json"),
        options["short"] == "yes",
        int(options["jobs"]),
    )
    stage = load(name)
    try:
        (stage.build if phase == "build" else stage.prove)(place, Report(root / f"{name}.jsonl"))
    except StageError as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
