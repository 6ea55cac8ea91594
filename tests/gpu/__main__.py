"""Implement scripts/gpu, which shows in one call that lazyck works on a GPU."""

import argparse
import datetime
import shutil
import signal
import sys
import time
from pathlib import Path

from gpu import machine, parcel, stages, table
from gpu.place import REPOSITORY
from gpu.schedule import Schedule, save
from gpu.stage import load

LIMIT = 530  # seconds: nine minutes, less what a start takes


def main() -> int:
    """Run the stages. Return 0, or 1 if a stage failed, or 2 if no compiler was found."""
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="of those of the platform [default: all]")
    parser.add_argument("--hip", action="store_true", help="for an AMD GPU, or scripts/fake_rocm_home as ROCM_PATH")
    parser.add_argument("--arch", help="build for this where no GPU says what it is [90, gfx942]")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "gpu-work", help="made anew [gpu-work]")
    parser.add_argument("--out", type=Path, help="where gpu.json goes [the work directory]")
    parser.add_argument("--parcel", type=Path, default=REPOSITORY / "gpu-parcel", help="what --pack made [gpu-parcel]")
    parser.add_argument("--seconds", type=float, default=LIMIT, help=f"for everything [{LIMIT}]")
    parser.add_argument("--short", action="store_true", help="only what takes a minute or two: the form of CI")
    parser.add_argument("--pack", action="store_true", help="make the parcel, for a machine without a network, and end")
    parser.add_argument("--page", type=Path, help="put results into this page, and end")
    parser.add_argument(
        "--results", type=Path, nargs="+", metavar="FILE", help="for --page: of each run [OUT/gpu.json]"
    )
    options = parser.parse_args()
    out = (options.out or options.work).resolve()
    if options.pack:
        return parcel.pack(options.parcel.resolve())
    if options.page:
        results = options.results or [out / "gpu.json"]
        options.page.write_text(table.with_results(options.page.read_text(), *results))
        return 0
    platform = "hip" if options.hip else "cuda"
    known = stages.HIP if options.hip else stages.CUDA
    if unknown := set(options.stages) - set(known):
        parser.error(f"no stage {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    chosen = [load(name) for name in known if name in options.stages or not options.stages]
    root = options.work.resolve()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    found = machine.look(platform, options.arch or ("gfx942" if options.hip else "90"))
    if not found.home:
        print(f"scripts/gpu: no compiler for {platform} was found: see `lazyck doctor`", file=sys.stderr)
        return 2
    found.save(root / "machine.json")
    short = "yes" if options.short else "no"
    said = {"parcel": str(options.parcel.resolve()), "short": short, "jobs": str(found.cores)}
    (root / "options").write_text("".join(f"{k}={v}\n" for k, v in said.items()))
    head = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": parcel.commit(options.parcel),
        "command": " ".join(["scripts/gpu", *sys.argv[1:]]),
        "machine": vars(found),
    }
    begun = time.monotonic()
    schedule = Schedule(chosen, root, options.seconds, found.cores)

    def note() -> None:
        seconds = round(time.monotonic() - begun)
        save(out / "gpu.json", {**head, "seconds": seconds}, schedule.outcomes)

    def stop(*_: object) -> None:
        schedule.stop()
        note()
        sys.exit(130)

    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, stop)
    print(f"scripts/gpu: {found.gpu or 'no GPU'}, {found.compiler}, {found.cores} cores; results in {out}/gpu.json")
    note()
    schedule.run(note)
    note()
    print(table.render(out / "gpu.json"))
    return 1 if any(o.state == "failed" for o in schedule.outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
