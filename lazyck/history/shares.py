"""Which blobs many recorded runs used."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from lazyck.errors import FormatError, UsageError
from lazyck.history.profile import MERGED, Profile, Use, merge
from lazyck.visible import visible

_NUMBER = re.compile(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", re.ASCII)
_EACH_RUN = "give the file of each run, as LAZYCK_RECORD wrote it, not a merged one or a list of names"


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
