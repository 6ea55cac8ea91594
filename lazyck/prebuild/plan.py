"""Decide what a prebuild has to do, before any of it is done: which entries, in which order, how
long it may take."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lazyck.history.costs import Costs
from lazyck.prebuild.blob_entries import BlobEntry
from lazyck.quantities import counted, show_seconds
from lazyck.visible import visible


@dataclass(frozen=True)
class Job:
    """An entry to compile, and the seconds that it took before (None: not known)."""

    entry: BlobEntry
    seconds: float | None

    @property
    def title(self) -> str:
        return f"{visible(self.entry.name)} ({visible(self.entry.shown_arch)})"


@dataclass(frozen=True)
class Plan:
    """All entries that were asked for, and jobs for those that are to be compiled, in order."""

    entries: tuple[BlobEntry, ...]
    jobs: tuple[Job, ...]

    @property
    def total(self) -> int:
        return len(self.entries)

    @property
    def cached(self) -> int:
        return len(self.entries) - len(self.jobs)


def make_plan(entries: Iterable[BlobEntry], costs: Costs) -> Plan:
    """Make a plan, longest jobs first, so that no long one is left alone at the end. A blob of
    which nothing is known counts as the mean. Equal jobs keep the manifest's order."""
    every, mean = tuple(entries), costs.mean or 0.0
    jobs = [Job(e, costs.of(*e.cost_key)) for e in every if not e.cached]
    jobs.sort(key=lambda j: mean if j.seconds is None else j.seconds, reverse=True)
    return Plan(every, tuple(jobs))


def estimate(plan: Plan, costs: Costs, parallel: int) -> tuple[float, float] | None:
    """Return the compile seconds of all jobs together, and the seconds of the whole with `parallel`
    jobs at a time; None if nothing is known."""
    if costs.mean is None:
        return None
    each = [costs.mean if j.seconds is None else j.seconds for j in plan.jobs]
    return sum(each), max(sum(each) / parallel, max(each, default=0.0))


def render_plan(plan: Plan, costs: Costs, parallel: int) -> str:
    """Render what `--dry-run` prints: `name <tab> arch <tab> expected seconds`, and a total."""
    lines = []
    for job in plan.jobs:
        about = "-" if job.seconds is None else f"{job.seconds:.1f}"
        lines.append(f"{visible(job.entry.name)}\t{visible(job.entry.shown_arch)}\t{about}")
    guess = estimate(plan, costs, parallel)
    unknown = sum(j.seconds is None for j in plan.jobs)
    told = f"{plan.cached} of {counted(plan.total, 'entry', 'entries')} cached already, {len(plan.jobs)} to compile"
    if plan.jobs and guess is None:
        told += "; how long they take is not known yet"
    elif guess is not None and plan.jobs:
        told += f": about {show_seconds(guess[0])} of compiles, {show_seconds(guess[1])} at {parallel} at a time"
        told += f" ({unknown} of them guessed: the mean of the others)" if unknown else ""
    return "".join(f"{line}\n" for line in [*lines, f"# {told}"])


def plan_to_json(plan: Plan, costs: Costs, parallel: int) -> str:
    guess = estimate(plan, costs, parallel)
    return json.dumps({
        "total": plan.total,
        "cached": plan.cached,
        "to_compile": [
            {"blob": j.entry.name, "arch": j.entry.shown_arch, "seconds": j.seconds, "path": str(j.entry.path)}
            for j in plan.jobs
        ],
        "compile_seconds": None if guess is None else round(guess[0], 1),
        "seconds": None if guess is None else round(guess[1], 1),
    }, indent=1)  # fmt: skip


@dataclass(frozen=True)
class JobFailure:
    """A job that failed: the path of its log (empty if there is none) and the compiler's first
    error. `is_final` says that the compiler itself refused the code, and would refuse it again."""

    job: Job
    log: str
    error: str
    is_final: bool = False


@dataclass(frozen=True)
class PlanOutcome:
    plan: Plan
    compiled: int
    failures: tuple[JobFailure, ...]
    seconds: float
    is_interrupted: bool = False

    @property
    def left(self) -> int:
        return len(self.plan.jobs) - self.compiled - len(self.failures)


def together(first: PlanOutcome, more: PlanOutcome) -> PlanOutcome:
    """Return the outcome of both plans, of which the second is of entries that the first lacks."""
    plan = Plan(first.plan.entries + more.plan.entries, first.plan.jobs + more.plan.jobs)
    failures, seconds = first.failures + more.failures, first.seconds + more.seconds
    return PlanOutcome(plan, first.compiled + more.compiled, failures, seconds, more.is_interrupted)


def outcome_to_json(outcome: PlanOutcome) -> str:
    return json.dumps({
        "total": outcome.plan.total,
        "cached": outcome.plan.cached,
        "compiled": outcome.compiled,
        "failed": [
            {"blob": f.job.entry.name, "arch": f.job.entry.shown_arch, "log": f.log, "error": f.error}
            for f in outcome.failures
        ],
        "left": outcome.left,
        "seconds": round(outcome.seconds, 3),
        "interrupted": outcome.is_interrupted,
    }, indent=1)  # fmt: skip


def render_outcome(outcome: PlanOutcome) -> str:
    parts = [f"{outcome.compiled} compiled"]
    parts += [f"{len(outcome.failures)} failed"] if outcome.failures else []
    parts += [f"{outcome.left} left to do"] if outcome.left else []
    parts += [f"{outcome.plan.cached} cached already"] if outcome.plan.cached else []
    return f"{counted(outcome.plan.total, 'entry', 'entries')}: {', '.join(parts)}; {show_seconds(outcome.seconds)}"


def render_failures(failures: Sequence[JobFailure]) -> str:
    lines = []
    for f in failures:
        lines.append(f"  {f.job.title}: {visible(f.error)}")
        lines += [f"    log: {visible(f.log)}"] if f.log else []
    return "\n".join(lines)
