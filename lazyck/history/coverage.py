"""How well recorded runs tell which blobs another will use, and which blobs many of them used."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lazyck.errors import FormatError, LazyckError, UsageError
from lazyck.history.profile import MERGED, Profile, Use, aligned, merge
from lazyck.quantities import counted, show_seconds
from lazyck.visible import visible

MOST_RUNS = 10  # that the text shows
MOST_BLOBS = 20
_NUMBER = re.compile(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", re.ASCII)
_EACH_RUN = "give the file of each run, as LAZYCK_RECORD wrote it, not a merged one or a list of names"
_MORE_RUNS = "record more runs, each with a LAZYCK_RECORD file of its own, and give the files of all"


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run. It counts as `weight` runs where shares are counted."""

    name: str
    uses: tuple[Use, ...]
    weight: Fraction = Fraction(1)


def runs_of(profiles: Sequence[Profile], weights: Sequence[Fraction] = ()) -> list[RecordedRun]:
    """Return the runs in `profiles`: each of several profiles is one, and a single profile has one
    per process. Raises `FormatError` if lines of a single profile do not say their process."""
    if len(profiles) > 1:
        each = weights or [Fraction(1)] * len(profiles)
        return [RecordedRun(p.where, tuple(p.uses), weight) for p, weight in zip(profiles, each, strict=True)]
    found: dict[str, list[Use]] = {}
    for p in profiles:
        for use in p.uses:
            if use.process in ("", MERGED):
                why = f"a line of {visible(use.blob)} does not say which process used it"
                raise FormatError(f"{p.where}: {why}, so the file cannot be split into runs", _EACH_RUN)
            found.setdefault(use.process, []).append(use)
    return [RecordedRun(process, tuple(uses)) for process, uses in found.items()]


def runs_to_compare(profiles: Sequence[Profile]) -> list[RecordedRun]:
    """Return the runs, as `runs_of` does. Raises `LazyckError` too if there are fewer than two."""
    runs = runs_of(profiles)
    if len(runs) < 2:
        where = ", ".join(p.where for p in profiles)
        raise LazyckError(f"{where}: {counted(len(runs), 'run')} found, and coverage compares at least two", _MORE_RUNS)
    return runs


class _Users:
    """Knows which of the runs used a blob. A name in a plain list is that blob in any library."""

    def __init__(self, runs: Iterable[RecordedRun]) -> None:
        self._of: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
        for i, run in enumerate(runs):
            for use in run.uses:
                for key in (use.key, (use.blob, use.library), (use.blob,)):
                    self._of[key].add(i)

    def of(self, use: Use) -> set[int]:
        return self._of[use.key] | self._of[use.blob, ""] if use.library else self._of[(use.blob,)]


@dataclass(frozen=True)
class Novelty:
    """What a run used and no other run did. The blobs that took longest come first."""

    run: str
    uses: tuple[Use, ...]

    @property
    def seconds(self) -> float:
        return round(sum(u.seconds for u in self.uses), 1)

    @property
    def unknown(self) -> int:
        """The number of blobs whose seconds are unknown, such as those that came from the cache."""
        return sum(not u.seconds for u in self.uses)


@dataclass(frozen=True)
class Coverage:
    """How many runs there are, and those that used something new, the longest compiles first."""

    runs: int
    news: tuple[Novelty, ...]

    @property
    def covered(self) -> int:
        return self.runs - len(self.news)


def measure(runs: Sequence[RecordedRun]) -> Coverage:
    """Leave each of at least two runs out in turn and find what the others did not use."""
    users = _Users(runs)
    news = []
    for run in runs:
        own = [use for use in merge(run.uses) if len(users.of(use)) == 1]
        if own:
            news.append(Novelty(run.name, tuple(sorted(own, key=lambda u: (-u.seconds, u.order, u.key)))))
    return Coverage(len(runs), tuple(sorted(news, key=lambda n: (-n.seconds, -len(n.uses), n.run))))


def render(found: Coverage) -> str:
    covered = (
        f"{found.covered} of {found.runs} runs ({100 * found.covered / found.runs:.1f} %) used only blobs that other "
        "runs used, too, and would have met nothing new."
    )
    return "\n".join((covered, *(_render_news(found.news) if found.news else ())))


def _render_news(news: Sequence[Novelty]) -> list[str]:
    blobs = sorted(((use, n.run) for n in news for use in n.uses), key=lambda b: -b[0].seconds)
    unknown = sum(n.unknown for n in news)
    cost = f"with {show_seconds(sum(n.seconds for n in news))} of compiles as recorded"
    if unknown == len(blobs):
        cost = "of unknown compile time (as after a cache hit)"
    elif unknown:
        cost += f" (unknown for {counted(unknown, 'blob')}, as after a cache hit)"
    runs = [("new blobs", "compile", "run")]
    runs += [(str(len(n.uses)), _show_compiles(n), visible(n.run)) for n in news[:MOST_RUNS]]
    rows = [("compile", "blob", "archs", "library", "run")]
    for use, run in blobs[:MOST_BLOBS]:
        texts = (visible(use.blob), visible(use.archs) or "-", visible(use.library) or "-", visible(run))
        rows.append((show_seconds(use.seconds) if use.seconds else "unknown", *texts))
    return [
        f"{counted(len(news), 'run')} would have met {counted(len(blobs), 'new blob')}, {cost}:",
        *aligned(runs, 2),
        *_more(len(news) - MOST_RUNS, "run"),
        *aligned(rows, 1),
        *_more(len(blobs) - MOST_BLOBS, "blob"),
    ]


def _show_compiles(n: Novelty) -> str:
    known = [show_seconds(n.seconds)] if n.seconds else []
    count = f"{n.unknown} " if known else ""
    return ", ".join([*known, *([f"{count}unknown"] if n.unknown else [])])


def _more(count: int, what: str) -> list[str]:
    return [f"{counted(count, f'more {what}')}; --json prints all of them"] if count > 0 else []


def to_json(found: Coverage) -> dict[str, object]:
    """Return the coverage for programs. Unknown seconds of a blob are None."""
    news = [
        {
            "run": n.run,
            "seconds": n.seconds,
            "unknown": n.unknown,
            "blobs": [
                {"blob": u.blob, "library": u.library, "archs": u.archs, "seconds": u.seconds or None} for u in n.uses
            ],
        }
        for n in found.news
    ]
    return {"runs": found.runs, "covered": found.covered, "new": news}


def common(runs: Sequence[RecordedRun], share: Fraction) -> list[Use]:
    """Merge the uses of `runs` and return those of blobs that at least `share` of the runs used."""
    users = _Users(runs)
    needed = share * sum(run.weight for run in runs)
    merged = merge(use for run in runs for use in run.uses)
    return [use for use in merged if sum(runs[i].weight for i in users.of(use)) >= needed]


def parse_share(text: str) -> Fraction:
    """Return the value of `--share`, exactly. Raises `UsageError`."""
    share = _number_in(text)
    if share is None or share > 1:
        raise UsageError(f"--share {text!r}: not a number from 0 to 1", "write a share of the runs such as 0.1")
    return share


def parse_weights(texts: Iterable[str], files: Sequence[Path]) -> list[Fraction]:
    """Return the weight of each of `files` by the values of `--weight`. Raises `UsageError`."""
    given: dict[Path, Fraction] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name:
            raise UsageError(f"--weight {text!r}: not FILE=NUMBER", f"write it as in --weight {files[0]}=3")
        file, weight = Path(name), _number_in(number)
        if file not in files:
            raise UsageError(
                f"--weight {text!r}: {name} is none of the files", f"name a file to merge, as in --weight {files[0]}=3"
            )
        if not weight:
            raise UsageError(f"--weight {text!r}: not a positive number", f"write it as in --weight {name}=3")
        if file in given:
            raise UsageError(f"--weight {text!r}: {file} has a weight already", "give each file one weight")
        given[file] = weight
    if given and len(files) == 1:
        raise UsageError(f"--weight: the weight of the only file, {files[0]}, changes nothing", "leave it out")
    return [given.get(file, Fraction(1)) for file in files]


def _number_in(text: str) -> Fraction | None:
    """Return the number that is written in `text`, without sign and exponent, or None."""
    return Fraction(text) if _NUMBER.fullmatch(text) else None
