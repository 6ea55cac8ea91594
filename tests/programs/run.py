"""Writes small programs, builds each ahead of time and lazily, and compares them:

    python tests/programs/run.py [--seconds N] [--seed S] [--aspects A,B] [--all-aspects]

Equal seeds give equal programs. Each difference is shrunk and written below `--cases` as a
directory with a script `case`. Status 1 if there was one.
"""

import argparse
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from programs.draw import Choice, Fails, aspects, drawn, shrunk  # noqa: E402
from programs.known import KNOWN, Known  # noqa: E402
from programs.program import Program, change, plant, write  # noqa: E402
from programs.workshop import Difference, Outcome, Workshop  # noqa: E402

PER_ROUND, PER_BUILD = 64, 16  # programs that are drawn with one seed, and built as one project
TRIES = 20  # how many programs hypothesis tries to shrink one
SAID_EVERY = 60  # seconds
LEAST_MEMORY = 2 << 30  # bytes
QUICK_MALLOC = {"MALLOC_TOP_PAD_": "16000000", "MALLOC_MMAP_THRESHOLD_": "100000000"}  # of GNU ld: a fifth less


@dataclass(frozen=True)
class Finding:
    """Describes the simplest program with a difference, and the program in which it was found."""

    program: Program
    what: str
    difference: Difference = field(compare=False)
    first: Program = field(compare=False)
    is_repeatable: bool = True

    def covers(self, program: Program, difference: Difference) -> bool:
        """Return whether the difference, found in `program`, is likely this one."""
        return self.what == difference.what and set(self.program.names()) <= set(program.names())


@dataclass
class Counts:
    """Counts what became of programs."""

    ran: int = 0
    lazy: int = 0
    uninteresting: Counter[str] = field(default_factory=Counter)
    eager: Counter[str] = field(default_factory=Counter)
    findings: Counter[Finding] = field(default_factory=Counter)
    with_known: Counter[Known] = field(default_factory=Counter)  # programs that ran
    known: Counter[Known] = field(default_factory=Counter)  # those that differed

    def add(self, outcome: Outcome) -> None:
        if outcome.uninteresting:
            self.uninteresting[outcome.uninteresting] += 1
        else:
            self.ran += 1
            self.lazy += outcome.lazy > 0
            self.eager.update(set(outcome.eager))
            for row in KNOWN:
                found = [d for d in outcome.differences if row.explains(outcome.program, d.what)]
                self.known[row] += bool(found)
                self.with_known[row] += bool(found) or row.explains(outcome.program, "")

    def lines(self, seconds: float) -> list[str]:
        share = self.lazy / max(self.ran, 1)
        drawn_ones = self.ran + self.uninteresting.total()
        return [
            f"{self.ran} programs ran, {share:.0%} with a lazy blob; {self.ran * 60 / seconds:.0f} a minute",
            f"{self.uninteresting.total()} of {drawn_ones} were uninteresting: {_listed(self.uninteresting)}",
            f"eager, in programs: {_listed(self.eager)}",
            f"{len(self.findings)} differences that are not known, in {self.findings.total()} places",
            *(f"known: {row.pattern}: {n} of {self.with_known[row]} differ" for row, n in self.known.items() if n),
        ]


def explained(program: Program, difference: Difference) -> bool:
    return any(row.explains(program, difference.what) for row in KNOWN)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def rounds(seed: int, worker: int, workers: int) -> Iterator[int]:
    """Yield the seeds of a worker's rounds, without end."""
    number = seed * 1_000_000 + worker
    while True:
        yield number
        number += workers


def work(
    choice: Choice, seeds: Iterator[int], place: Path, end: float, results: "multiprocessing.Queue[Found]"
) -> None:
    """Try programs until `end`, and report each outcome with the seed that it was drawn with."""
    workshop = Workshop(place, choice.left_out)
    for number in seeds:
        programs = drawn(choice, number, PER_ROUND)
        for i in range(0, len(programs), PER_BUILD):
            if time.monotonic() > end:
                workshop.close()
                shutil.rmtree(place, ignore_errors=True)
                return
            for outcome in workshop.try_all(programs[i : i + PER_BUILD]):
                results.put((number, outcome))


Found = tuple[int, Outcome]


def find(
    choice: Choice, number: int, program: Program, first: Difference, workshop: Workshop, tries: int = TRIES
) -> Finding:
    """Shrink a program that was drawn with the seed `number` and differs. Return the simplest one
    with a difference of that kind, but none that is known."""
    last: dict[Program, Difference] = {}

    def differs(candidate: Program) -> bool:
        for difference in workshop.try_all([candidate])[0].differences:
            if difference.what == first.what and not explained(candidate, difference):
                last[candidate] = difference
                return True
        return False

    if not differs(program):
        return Finding(program, first.what, first, program, is_repeatable=False)
    if not program.names() and program.blobs == 1:
        tries = 0  # there is nothing simpler
    best = shrunk(choice, number, PER_ROUND, program, Fails(program, differs, tries))
    return Finding(best, first.what, last[best], program)


def write_case(finding: Finding, place: Path) -> None:
    """Write a directory with the program, and a script that says whether it differs."""
    shutil.rmtree(place, ignore_errors=True)
    tree = plant(finding.program, "p0")
    write(tree, place / "files")
    if finding.program.change:
        (place / "later").mkdir()
        change(tree, finding.program.change, [place / "later"])
    difference = finding.difference
    texts = [f"traits: {' '.join(finding.program.names())}", repr(finding.program), difference.kind]
    texts += [f"ahead of time: {difference.ahead}", f"lazily: {difference.lazy}", f"found in: {finding.first}"]
    texts += [] if finding.is_repeatable else ["It did not differ when it was tried alone."]
    (place / "found").write_text("\n".join(texts) + "\n")
    (place / "what").write_text(difference.what + "\n")
    shutil.copy(Path(__file__).with_name("case.sh"), place / "case")
    (place / "case").chmod(0o755)


def main(argv: Sequence[str]) -> int:
    options = _options(argv)
    choice = Choice(aspects=tuple(filter(None, options.aspects.split(","))))
    if options.all_aspects:
        choice = replace(choice, left_out=())
    os.environ.update(QUICK_MALLOC)
    begun = time.monotonic()
    end = begun + options.seconds
    counts = Counts()
    with tempfile.TemporaryDirectory(prefix="lazyck-programs-", dir=_memory()) as scratch:
        results: multiprocessing.Queue[Found] = multiprocessing.Queue()
        workers = [
            multiprocessing.Process(
                target=work,
                args=(choice, rounds(options.seed, i, options.jobs), Path(scratch) / f"worker{i}", end, results),
            )
            for i in range(options.jobs)
        ]
        for worker in workers:
            worker.start()
        workshop = Workshop(Path(scratch) / "shrink", choice.left_out)
        said = begun
        while True:
            try:
                number, outcome = results.get(timeout=1)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    break
                continue
            counts.add(outcome)
            tries = TRIES if time.monotonic() < end + options.seconds / 4 else 0
            unknown = [d for d in outcome.differences if not explained(outcome.program, d)]
            for difference in {d.what: d for d in reversed(unknown)}.values():
                known = [one for one in counts.findings if one.covers(outcome.program, difference)]
                finding = known[0] if known else find(choice, number, outcome.program, difference, workshop, tries)
                counts.findings[finding] += 1
                if counts.findings[finding] == 1:
                    _tell(finding, options.cases / f"{len(counts.findings):03}-{'-'.join(difference.what.split())}")
            if time.monotonic() - said > SAID_EVERY:
                said = time.monotonic()
                print("\n".join(counts.lines(min(said, end) - begun)), flush=True)
        workshop.close()
        if options.times:
            print(f"shrinking took {dict(workshop.seconds)}")
    print("\n".join(counts.lines(options.seconds)))
    for finding, count in counts.findings.items():
        print(f"{count} times: {finding.difference.kind}: {' '.join(finding.program.names())}")
    if any(worker.exitcode for worker in workers):
        print("a worker ended early, with what it says above")
    return 1 if counts.findings or any(worker.exitcode for worker in workers) else 0


def _memory() -> str | None:
    """Return a directory in memory with room for programs, or None. To make and remove files on a
    disk costs a fifth of the time."""
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > LEAST_MEMORY
    return str(memory) if has_room and not os.statvfs(memory).f_flag & os.ST_NOEXEC else None


def _tell(finding: Finding, place: Path) -> None:
    """Write the finding as a case at `place`, and say so."""
    write_case(finding, place)
    alone = "" if finding.is_repeatable else " (not when it is tried alone)"
    print(f"DIFFERENCE{alone}: {finding.difference.kind}: {' '.join(finding.program.names())}: {place}")
    print(f"    ahead of time: {finding.difference.ahead}\n    lazily: {finding.difference.lazy}", flush=True)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to draw programs [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[default: %(default)s]")
    parser.add_argument("--aspects", default="", metavar="A,B", help=f"of {', '.join(aspects())} [default: all]")
    parser.add_argument("--all-aspects", action="store_true", help="also what known.py lists")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time [default: cores]")
    parser.add_argument("--cases", type=Path, default=Path("cases"), help="where cases go [default: ./cases]")
    parser.add_argument("--times", action="store_true", help="say which steps take how long")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
