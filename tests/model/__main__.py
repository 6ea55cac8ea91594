"""Search the protocol's states for larger numbers of processes than the tests do. If there is a
fault, print the shortest trace to it and exit with status 1.

python -m tests.model --processes 2 --threads 2 --blobs 2 --kills 1
python -m tests.model --mutations
"""

import argparse
import sys
import time

from .mutations import BY_NAME, MUTATIONS
from .search import TooMany, search
from .state import CALL, CONSTRUCT, FORK, Faults, Task, World


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the words of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of each process (2); they take blobs by turns")
    parser.add_argument("--blobs", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="LAZYCK_JOBS (2)")
    parser.add_argument("--room", type=int, default=2, help="compiles that the memory has room for (2)")
    parser.add_argument("--fork", action="store_true", help="the first process's last thread forks before its call")
    parser.add_argument("--construct", action="store_true", help="the last thread of all calls within a dlopen")
    parser.add_argument("--archive", action="store_true", help="the bundle has to be unpacked")
    parser.add_argument("--no-locks", action="store_true", help="flock does not work")
    for fault in Faults._fields:
        parser.add_argument(f"--{fault.replace('_', '-')}", type=int, default=0, metavar="N")
    parser.add_argument("--most", type=int, default=5_000_000, help="states to visit (5,000,000: some 5 GB)")
    parser.add_argument("--mutations", action="store_true", help="show how each way to break the protocol is found")
    return parser.parse_args(argv)


def world_of(options: argparse.Namespace) -> World:
    """Make the world that the options describe."""
    rows = [
        [Task(CALL, (p * options.threads + t) % options.blobs) for t in range(options.threads)]
        for p in range(options.processes)
    ]
    if options.fork:
        rows[0][-1] = rows[0][-1]._replace(kind=FORK)
    if options.construct:
        rows[-1][-1] = rows[-1][-1]._replace(kind=CONSTRUCT)
    return World(
        tuple(map(tuple, rows)),
        options.jobs,
        options.room,
        Faults(**{fault: getattr(options, fault) for fault in Faults._fields}),
        not options.no_locks,
        options.archive,
    )


def show_mutations() -> int:
    """Print a counterexample for each mutation."""
    for mutation in MUTATIONS:
        fault = BY_NAME[mutation.name].find(mutation.broken).fault
        print(f"-- {mutation.name}\n{fault or 'NOT FOUND'}\n")
    return 0


def main() -> int:
    """Search, and print the result. Return the exit status."""
    options = parse(sys.argv[1:])
    if options.mutations:
        return show_mutations()
    begun = time.process_time()
    try:
        result = search(world_of(options), most_states=options.most)
    except TooMany as e:
        print(e)
        return 2
    seconds = time.process_time() - begun
    print(f"{result.states:,} states, {result.transitions:,} transitions, {seconds:.1f} s of CPU")
    print(result.fault or "every property holds")
    return 1 if result.fault else 0


if __name__ == "__main__":
    sys.exit(main())
