"""Which blobs runs have used, as LAZYCK_RECORD made libraries record it
(runtime/src/history/profile.h). A list of names, one a line, is a profile without further facts."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lazyck.errors import FormatError
from lazyck.quantities import counted, show_kib, show_seconds
from lazyck.visible import visible

HEADER = "# lazyck profile 1: blob, library, archs, order, calls, seconds, peak KiB, rank, process, time, kernel"
COLUMNS = 10  # and one more for kernels
_VERSION = re.compile(r"# lazyck profile (\d+)\b")
_RANKS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*|")
MERGED = "merged"  # the process of a merged line, whose figures are those of several processes
# Characters that no name, path or pattern of a blob holds and that most lines of other files do.
_NO_NAME = re.compile(r"[:$(){}\"'`;<>|&]")
_REMEDY = "give a file that LAZYCK_RECORD named, one of `lazyck profile merge`, or a list of names"


@dataclass(frozen=True)
class Use:
    """How one process used a blob, or several processes if their lines were merged.

    `library` is an empty string in a plain list. `order` is that of the blob's first use, from 1.
    `seconds` and `peak_kib` are of its compile, and 0 if it came from the cache. `kernel` is set
    for a kernel that is compiled by itself and holds everything needed to compile it.
    """

    blob: str
    library: str = ""
    archs: str = ""
    order: int = 0
    calls: int = 0
    seconds: float = 0.0
    peak_kib: int = 0
    ranks: tuple[int, ...] = ()
    process: str = ""
    time: int = 0
    kernel: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.library, self.blob, self.archs)


@dataclass(frozen=True)
class Line:
    """One line of a profile file. `use` is None for a comment and for a torn line."""

    text: str
    use: Use | None = None
    is_torn: bool = False


@dataclass(frozen=True)
class Profile:
    where: str
    lines: tuple[Line, ...]

    @property
    def uses(self) -> list[Use]:
        """The uses in recorded order: the last line, which knows most, of each blob and process."""
        last: dict[tuple[tuple[str, str, str], str], Use] = {}
        for line in self.lines:
            if line.use is not None:
                last[line.use.key, line.use.process] = line.use
        return list(last.values())

    @property
    def torn(self) -> int:
        """The number of lines that a crash cut short."""
        return sum(line.is_torn for line in self.lines)


def read_profile(path: Path) -> Profile:
    """Read a profile. Raises `FormatError` if the file cannot be read or is none."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise FormatError(f"{path}: cannot read the profile: {e.strerror}", _REMEDY) from e
    return decode(data, str(path))


def decode(data: bytes, where: str) -> Profile:
    """Decode a profile. `where` names its file in errors. Lines that do not parse are kept and
    marked as torn. Raises `FormatError` if the file is not a profile."""
    if b"\0" in data:
        raise FormatError(f"{where}: not a profile: it holds bytes that are not text", _REMEDY)
    text = data.decode("utf-8", "surrogateescape")
    if (version := _VERSION.match(text)) and version[1] != "1":
        raise FormatError(f"{where}: profile version {version[1]}, this lazyck reads version 1", "use a newer lazyck")
    *whole, last = text.split("\n")
    raw = [(line, True) for line in whole] + ([(last, False)] if last else [])
    is_recorded = version is not None or any(_decode_row(line) for line, _ in raw)
    lines = []
    names = 0
    for line, is_ended in raw:
        if not line.strip() or line.lstrip().startswith("#"):
            lines.append(Line(line))
        elif is_recorded and ("\t" in line or not is_ended):
            use = _decode_row(line) if is_ended else None  # a line without an end may lack digits too
            lines.append(Line(line, use, is_torn=use is None))
        elif name := line.split("\t")[0].strip():
            if not is_recorded and _NO_NAME.search(name):
                raise FormatError(
                    f"{where}: neither a profile nor a list of blobs: {visible(name)!r} is not the name of one", _REMEDY
                )
            names += 1
            lines.append(Line(line, Use(name, order=names)))
        else:
            lines.append(Line(line))
    return Profile(where, tuple(lines))


def _decode_row(line: str) -> Use | None:
    columns = line.split("\t")
    if len(columns) < COLUMNS or not columns[0] or not _RANKS.fullmatch(columns[7]):
        return None
    try:
        use = Use(
            columns[0], columns[1], columns[2], int(columns[3]), int(columns[4]), float(columns[5]), int(columns[6]),
            _decode_ranks(columns[7]), columns[8], int(columns[9]), "".join(columns[COLUMNS : COLUMNS + 1]),
        )  # fmt: skip
    except ValueError:
        return None
    return use if min(use.order, use.calls, use.peak_kib) >= 0 and 0 <= use.seconds < 1e9 else None


def _decode_ranks(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if int(last or first) - int(first) > 1_000_000:
            raise ValueError("more ranks than there are")
        found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def show_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in the compact form of a profile line, such as `0-7,12`."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def encode(uses: Iterable[Use]) -> bytes:
    rows = [HEADER]
    for u in uses:
        figures = (u.order, u.calls, f"{u.seconds:.1f}", u.peak_kib, show_ranks(u.ranks), u.process or MERGED, u.time)
        kernel = (u.kernel,) if u.kernel else ()
        rows.append("\t".join(map(str, (u.blob, u.library, u.archs, *figures, *kernel))))
    return ("\n".join(rows) + "\n").encode("utf-8", "surrogateescape")


def merge(uses: Iterable[Use]) -> list[Use]:
    """Merge uses into one for each library, blob and archs, sorted by first use. The order of a use
    is the smallest of all, since what a prefetch does first must be ready for the rank that needs
    it first. Other figures are the largest. A name in a plain list adds nothing to a blob whose
    library is known."""
    merged: dict[tuple[str, str, str], Use] = {}
    for use in uses:
        known = merged.get(use.key)
        merged[use.key] = replace(_joined(known, use) if known else use, process=MERGED)
    placed = {u.blob for u in merged.values() if u.library}
    found = [u for u in merged.values() if u.library or u.blob not in placed]
    return sorted(found, key=lambda u: (u.order, u.key))


def _joined(a: Use, b: Use) -> Use:
    return replace(
        a,
        order=min(a.order or b.order, b.order or a.order),
        calls=max(a.calls, b.calls),
        seconds=max(a.seconds, b.seconds),
        peak_kib=max(a.peak_kib, b.peak_kib),
        ranks=tuple(sorted({*a.ranks, *b.ranks})),
        time=max(a.time, b.time),
        kernel=b.kernel or a.kernel,
    )


def only_in(a: Profile, b: Profile) -> list[tuple[str, str]]:
    """Return the blobs that `a` used and `b` did not, as (library, blob), regardless of archs. A
    name in a plain list matches the blob in any library."""
    pairs = {(u.library, u.blob) for u in b.uses}
    bare = {blob for library, blob in pairs if not library}
    every = {blob for _, blob in pairs}
    wanted = dict.fromkeys((u.library, u.blob) for u in merge(a.uses))
    return [p for p in wanted if p not in pairs and p[1] not in (bare if p[0] else every)]


def prune(profile: Profile, is_known: Callable[[Use], bool]) -> tuple[bytes, int]:
    """Return the text without torn lines and unknown blobs, and the number of blobs removed."""
    kept = [line.text for line in profile.lines if not line.is_torn and (line.use is None or is_known(line.use))]
    gone = {line.use.key for line in profile.lines if line.use is not None and not is_known(line.use)}
    return "".join(f"{text}\n" for text in kept).encode("utf-8", "surrogateescape"), len(gone)


def render_table(uses: Sequence[Use]) -> str:
    rows = [("order", "calls", "compile", "memory", "ranks", "blob", "archs", "library")]
    for u in uses:
        seconds = show_seconds(u.seconds) if u.seconds else "-"
        memory = show_kib(u.peak_kib) if u.peak_kib else "-"
        texts = (visible(u.blob), visible(u.archs) or "-", visible(u.library) or "-")
        rows.append((str(u.order), str(u.calls), seconds, memory, show_ranks(u.ranks) or "-", *texts))
    t = totals(uses)
    return "\n".join(aligned(rows, 4)) + (
        f"\n{counted(t['blobs'], 'blob')} of {counted(t['libraries'], 'library', 'libraries')}, "
        f"{counted(t['calls'], 'call')}, {show_seconds(t['seconds'])} of compiles, "
        f"largest {show_kib(t['peak_kib'])}, {counted(t['ranks'], 'rank')}"
    )


def aligned(rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Return the lines of a table. The first `right` columns are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i < right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def totals(uses: Sequence[Use]) -> dict[str, Any]:
    """Return sums over uses. `peak_kib` is the largest."""
    return {
        "blobs": len(uses),
        "libraries": len({u.library for u in uses}),
        "calls": sum(u.calls for u in uses),
        "seconds": round(sum(u.seconds for u in uses), 1),
        "peak_kib": max((u.peak_kib for u in uses), default=0),
        "ranks": len({rank for u in uses for rank in u.ranks}),
    }


def to_json(uses: Sequence[Use]) -> dict[str, object]:
    rows = [{name: value for name, value in vars(u).items() if name not in ("process", "kernel")} for u in uses]
    return {"blobs": rows, "totals": totals(uses)}
