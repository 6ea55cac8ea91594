"""Runs the fault-injection cases for as long as asked: python -m tests.faults [--seconds N]
[--kills N] [--seed N]."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

from support.faultlib import (  # noqa: E402
    ERRORS,
    fail_each_call,
    kill_at_each_step,
    kill_at_random,
    make_patient,
    public_directory,
    tear_an_entry,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill at random moments (200)")
    parser.add_argument("--tears", type=int, default=200, help="entries to damage (200)")
    parser.add_argument("--seconds", type=float, default=0, help="go on with both until so much time has passed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the random choices")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    dice = random.Random(options.seed)
    done: Counter[str] = Counter()
    with public_directory() as directory, tempfile.TemporaryDirectory() as objects:
        patient = make_patient(directory, Path(objects))
        longest = 1.2 * patient.seconds()
        for name, error in ERRORS.items():
            done[f"calls failed with {name}"] = len(fail_each_call(patient, error))
        done["kill right before a step"] = len(kill_at_each_step(patient))
        start = time.monotonic()
        kills = tears = 0
        while kills < options.kills or tears < options.tears or time.monotonic() - start < options.seconds:
            if kills < options.kills or options.seconds:
                end = kill_at_random(patient, dice, longest)
                done[f"kill: {end}"] += 1
                kills += end == "killed"
            if tears < options.tears or options.seconds:
                end = tear_an_entry(patient, dice)
                done[f"entry: {end}"] += 1
                tears += end == "torn"
    for what, count in done.items():
        print(f"{what}: {count}, each followed by a run that succeeded")


if __name__ == "__main__":
    main()
