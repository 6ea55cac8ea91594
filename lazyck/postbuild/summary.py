"""Records what one lazy link did, in a JSON file, and shows it when the build ends."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck.errors import FormatError
from lazyck.files import write_atomic
from lazyck.postbuild.reasons import Downgrade, of_json, summary_lines, to_json
from lazyck.postbuild.state import tuples
from lazyck.quantities import counted, show_size
from lazyck.visible import visible, visible_lines

NAME = "summary.json"  # in the library's directory: what a link of the running, or the last, build did
EARLIER = "earlier.json"  # what the last link did, while a build runs that has not linked this library


@dataclass(frozen=True)
class LinkSummary:
    library: str
    output: str
    deferred: int
    lazy: int
    symbols: int
    spare: int
    eager: tuple[Downgrade, ...]
    warnings: tuple[str, ...]
    probe_seconds: float
    bundle_seconds: float
    eager_seconds: float
    link_seconds: float
    cpu_seconds: float  # lazyck's own share, as the peak is: without eager compiles, which any build pays
    peak_rss_kib: int
    library_bytes: int
    bundle_bytes: int
    installed: str = ""
    archives: tuple[str, ...] = ()  # archives with deferred members
    unneeded: int = 0  # blobs of archives that are left out
    units: int = 0  # host units, whose kernels are compiled one by one
    kernels: int = 0  # those of the host units
    by_kernel: tuple[Downgrade, ...] = ()  # blobs that became host units


def save(summary: LinkSummary, path: Path) -> None:
    write_atomic(path, json.dumps(vars(summary), indent=1, default=to_json).encode())


def load(path: Path) -> LinkSummary:
    """Read what `save` wrote. Raises `FormatError`."""
    try:
        raw = tuples(json.loads(path.read_text()))
        unlazy = {name: tuple(map(of_json, raw.get(name, ()))) for name in ("eager", "by_kernel")}
        return LinkSummary(**(raw | unlazy))
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise FormatError(f"{path}: not a summary of a lazy link ({e})", "run `lazyck build full` again") from e


def render(libraries: Sequence[LinkSummary], intercept_seconds: float, unlinked: Sequence[str]) -> str:
    lines = [line for s in libraries for line in library_lines(s)]
    if libraries:
        lines.append(f"lazyck: intercept {intercept_seconds:.1f} s")
    archives = list(dict.fromkeys(os.path.basename(path) for s in libraries for path in s.archives))
    if archives:
        shown = ", ".join(map(visible, archives[:4])) + (", ..." if len(archives) > 4 else "")
        lines.append(f"lazyck: static libraries with deferred members, which only lazy links can use: {shown}")
    if unlinked:
        shown = "\n".join(f"lazyck:   {visible(name)}" for name in unlinked[:10])
        more = f"\nlazyck:   ... and {len(unlinked) - 10} more" if len(unlinked) > 10 else ""
        objects, whose = ("object was", "it lacks its") if len(unlinked) == 1 else ("objects were", "them lacks their")
        lines.append(
            f"lazyck: warning: {len(unlinked)} deferred {objects} taken by no link that lazyck saw; "
            f"whatever uses {whose} functions:\n{shown}{more}"
        )
    return "\n".join(lines)


def unchanged_lines(s: LinkSummary) -> list[str]:
    counts = f"{counted(s.deferred, 'blob')}, {s.lazy} lazy with {counted(s.symbols, 'symbol')}, {len(s.eager)} eager"
    return [f"lazyck: {visible(s.library)}: up to date, {counts}", f"lazyck:   {visible(s.installed or s.output)}"]


def library_lines(s: LinkSummary) -> list[str]:
    lines = [
        f"lazyck: {visible(s.library)}: {counted(s.deferred, 'blob')} deferred, "
        f"{s.lazy} lazy with {counted(s.symbols, 'symbol')}, {len(s.eager)} eager"
    ]
    if s.units:
        kernels = f"{counted(s.kernels, 'kernel')} of {counted(s.units, 'source')}"
        lines.append(f"lazyck:   {kernels}, each compiled when it is first used")
    if s.spare:
        spare = counted(s.spare, "lazy blob is", "lazy blobs are")
        lines.append(f"lazyck:   {spare} needed by nothing in this link, only exported")
    if s.unneeded:
        unneeded = counted(s.unneeded, "blob of static libraries is", "blobs of static libraries are")
        lines.append(f"lazyck:   {unneeded} needed by nothing in this link, and left out of it")
    reasons = [*summary_lines("by kernel", s.by_kernel), *summary_lines("eager", s.eager)]
    lines += [f"lazyck:   {line}" for line in reasons]
    if s.eager:
        library = shlex.quote(s.installed or s.output)
        lines.append(f"lazyck:   what to change in eager sources: lazyck inspect --explain-eager {library}")
    lines.append(
        f"lazyck:   probe {s.probe_seconds:.1f} s, stubs and bundle {s.bundle_seconds:.1f} s, "
        f"eager compiles {s.eager_seconds:.1f} s, link {s.link_seconds:.1f} s; "
        f"library {show_size(s.library_bytes)}, bundle {show_size(s.bundle_bytes)}"
    )
    lines += [f"lazyck:   warning: {visible_lines(w)}" for w in s.warnings]
    lines.append(f"lazyck:   {visible(s.installed or s.output)}")
    return lines
