"""Implement scripts/world, which builds projects lazily and runs their own tests."""

import argparse
import os
import sys
from pathlib import Path

from world.catalogue import BY_NAME, PROJECTS
from world.runner import Outcome, check, load_outcome, world_directory
from world.sources import Unavailable, install, missing_packages
from world.table import HEAD, row, with_table


def main() -> int:
    """Check the named projects, or all. Return 0 if each behaves as ahead of time, otherwise 1."""
    parser = argparse.ArgumentParser(prog="scripts/world", description="Build projects lazily and run their own tests.")
    parser.add_argument("projects", nargs="*", metavar="PROJECT", help=f"of {', '.join(BY_NAME)} [default: all]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compiles at a time [default: cores]")
    parser.add_argument("--page", type=Path, help="put a row for each project that has a result into this page's table")
    options = parser.parse_args()
    unknown = set(options.projects) - set(BY_NAME)
    if unknown:
        parser.error(f"no project {', '.join(sorted(unknown))}: there are {', '.join(BY_NAME)}")
    world = world_directory(os.environ)
    os.nice(10)
    # With --page alone, earlier results are tabulated.
    chosen = [BY_NAME[n] for n in options.projects] or ([] if options.page else list(PROJECTS))
    failed = False
    for project in chosen:

        def say(text: str, name: str = project.name) -> None:
            print(f"{name}: {text}", flush=True)

        try:
            missing = missing_packages(project)
            if missing:
                say(f"installing {' '.join(missing)}")
                install(missing)
            outcome = check(project, world, options.jobs, say)
        except Unavailable as e:
            say(f"not run: {e}")
            failed = True
            continue
        show(outcome)
        failed |= not outcome.is_same
    results = [world / "results" / f"{p.name}.json" for p in PROJECTS]
    outcomes = [load_outcome(path) for path in results if path.is_file()]
    if options.page:
        options.page.write_text(with_table(options.page.read_text(), outcomes))
    print("\n".join([*HEAD, *map(row, outcomes)]))
    return 1 if failed else 0


def show(outcome: Outcome) -> None:
    """Print what differs from the build ahead of time."""
    if outcome.trouble:
        print(f"{outcome.name}: {outcome.trouble}")
    for name, reason in outcome.eager.items():
        print(f"{outcome.name}: eager: {name} {reason}")
    for way, lines in outcome.differences().items():
        for line in lines[:20]:
            print(f"{outcome.name}: {way}: {line}")


if __name__ == "__main__":
    sys.exit(main())
