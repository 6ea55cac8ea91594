"""Measures how many small faults in the deciding modules of `lazyck` their nearest tests notice:

    python tests/mutation/python_run.py [--sample N] [--seed S] [--jobs J] [--show] [MODULE]...

mutmut (pip install -e '.[mutation]') makes the mutants; [tool.mutmut] of pyproject.toml names the
modules and the tests. This script draws N mutants of each MODULE (`manifest`,
`postbuild.ownership`), since all of them would take a day. It prints the share that was killed per
module and the survivors, with `--show` as diffs. The draw depends only on the code and on S.
"""

import argparse
import json
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "lazyck."
SMALLEST = "trailer"  # the module whose mutants are judged soonest
# How mutmut writes the end of a mutant's tests (`status_by_exit_code`). A mutant that ends in a
# signal or runs out of time is killed.
SURVIVED, NO_TESTS, ALSO_NO_TESTS, NOT_JUDGED = 0, 33, 5, (None, 2, 34, 35)


@dataclass(frozen=True)
class Mutant:
    """A mutant by mutmut's name for it, its module without the package, and how its tests ended."""

    name: str
    module: str
    status: int | None

    @property
    def is_killed(self) -> bool:
        return self.status not in (SURVIVED, NO_TESTS, ALSO_NO_TESTS, *NOT_JUDGED)

    @property
    def fate(self) -> str:
        if self.status in NOT_JUDGED:
            return "not judged"
        return "no test runs it" if self.status in (NO_TESTS, ALSO_NO_TESTS) else "survived"


def mutmut(*words: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut in the repository. It writes into `mutants/`."""
    program = Path(sysconfig.get_path("scripts")) / "mutmut"
    return subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True)


def read_mutants() -> list[Mutant]:
    """Return all mutants that mutmut made."""
    found = []
    for file in sorted((ROOT / "mutants" / "lazyck").rglob("*.py.meta")):
        module = ".".join(file.relative_to(ROOT / "mutants" / "lazyck").parts).removesuffix(".py.meta")
        statuses = json.loads(file.read_text())["exit_code_by_key"]
        found += [Mutant(name, module, status) for name, status in sorted(statuses.items())]
    return found


def drawn(mutants: Iterable[Mutant], modules: Sequence[str], size: int, seed: int) -> list[Mutant]:
    """Return `size` mutants of each of `modules`, or of every module if none is named."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.module, []).append(mutant)
    return [
        mutant
        for module, own in by_module.items()
        if not modules or module in modules
        for mutant in random.Random(f"{seed} {module}").sample(own, min(size, len(own)))
    ]


def table(judged: Sequence[Mutant]) -> str:
    """Return a line for each module and one for all: killed, tried, share."""
    lines = []
    for module in (*dict.fromkeys(m.module for m in judged), "all"):
        own = [m for m in judged if module in ("all", m.module)]
        killed = sum(m.is_killed for m in own)
        lines.append(f"{module:32} {killed:5} of {len(own):5} killed  {killed / len(own):4.0%}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=30, metavar="N", help="mutants per module (default: 30)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="another draw")
    parser.add_argument("--jobs", default="2", metavar="J", help="mutants judged at a time (default: 2)")
    parser.add_argument("--least", type=int, default=0, metavar="PERCENT", help="fail below this share")
    parser.add_argument("--show", action="store_true", help="print the survivors as diffs")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    args = parser.parse_args()
    # mutmut makes all mutants, and learns which test runs which function, whatever is to be judged.
    first = mutmut("run", "--max-children", args.jobs, f"{PACKAGE}{SMALLEST}.*")
    names = [m.name for m in drawn(read_mutants(), args.modules, args.sample, args.seed)]
    if first.returncode != 0 or not names:
        print(first.stdout[-4000:], first.stderr[-4000:], "no mutants were made", sep="\n")
        return 2
    last = mutmut("run", "--max-children", args.jobs, *names)
    if last.returncode != 0:
        print(last.stdout[-4000:], last.stderr[-4000:], sep="\n")
        return 2
    judged = [m for m in read_mutants() if m.name in set(names)]
    for mutant in judged:
        if not mutant.is_killed:
            print(f"{mutant.fate}: {mutant.name}")
            if args.show and mutant.status == SURVIVED:
                diff = mutmut("show", mutant.name).stdout.splitlines()
                print(*(line for line in diff if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")), sep="\n")
    print(table(judged))
    return int(sum(m.is_killed for m in judged) * 100 < args.least * len(judged))


if __name__ == "__main__":
    sys.exit(main())
