"""Presents the result of a check, for people and for programs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lazyck.check.compare import BY_DESIGN, FAILING, Difference
from lazyck.check.library_check import Checked, first_error
from lazyck.postbuild.cxx import demangle
from lazyck.quantities import counted
from lazyck.visible import visible

_LONGEST = 160  # characters of a name
_SHOWN = 20  # differences of one kind that are listed without --verbose


def render(found: Sequence[Checked], env: Mapping[str, str], *, verbose: bool) -> str:
    texts = _readable(found, env)
    lines = [line for c in found for line in _library(c, texts, verbose=verbose)]
    return "\n".join(f"lazyck: {visible(line)}" for line in lines)


def _readable(found: Sequence[Checked], env: Mapping[str, str]) -> Mapping[str, str]:
    return demangle.all_readable(
        [name for c in found for d in c.comparison.differences for name in d.name.split(" ")], env
    )


def _library(c: Checked, texts: Mapping[str, str], *, verbose: bool) -> list[str]:
    counts = c.comparison.symbols
    lines = [
        f"check: {c.library}: {len(c.compiled.units)} of {c.blobs} blobs compiled ahead of time in {c.seconds:.1f} s; "
        f"of their symbols {counts.get('stub', 0)} are stubs, {counts.get('real', 0)} defined, "
        f"{counts.get('local', 0)} local, {counts.get('different', 0)} different"
    ]
    if c.compiled.left_out:
        lines.append("  a sample: what these blobs define was compared, not the whole library")
    for unit, error in c.compiled.failed:
        why = first_error(error)
        lines.append(f"  not compared, since it does not compile ahead of time: {unit.blob.source}: {why}")
    if c.problem:
        return [*lines, f"  nothing was compared: {c.problem}"]
    by_kind: dict[str, list[Difference]] = {}
    for d in c.comparison.differences:
        by_kind.setdefault(d.kind, []).append(d)
    for kind, differences in sorted(by_kind.items(), key=lambda item: (item[0] in BY_DESIGN, item[0])):
        lines += _kind(kind, differences, texts, verbose=verbose)
    number = sum(d.fails for d in c.comparison.differences)
    if number:
        lines.append(
            f"  {counted(number, 'difference')}, each a bug in lazyck: please report it. Until it is fixed, leave the "
            "source that it names out of --blobs. `lazyck help check` says more about each kind"
        )
    else:
        lines.append("  no difference from the ahead-of-time library")
    return lines


def _kind(kind: str, differences: Sequence[Difference], texts: Mapping[str, str], *, verbose: bool) -> list[str]:
    fails = kind in FAILING
    means = FAILING[kind] if fails else BY_DESIGN[kind]
    lines = [f"  {'DIFFERENT' if fails else 'by design'}, {len(differences)} × {kind}: {means}"]
    shown = differences if verbose else differences[:_SHOWN] if fails else ()
    for d in shown:
        readable = (texts.get(name, name) for name in d.name.split(" "))
        names = " and ".join(n if len(n) <= _LONGEST else f"{n[:_LONGEST]}..." for n in readable)
        source = f", in {os.path.basename(d.source)}" if d.source else ""
        sides = f": ahead of time {d.ahead}; lazily {d.lazily}" if d.ahead or d.lazily else ""
        lines.append(f"    {names}{d.symbol[len(d.name) :]}{source}{sides}")
    if shown and len(shown) < len(differences):
        lines.append(f"    ... and {len(differences) - len(shown)} more (--verbose lists them)")
    return lines


def to_json(found: Sequence[Checked], env: Mapping[str, str]) -> list[dict[str, Any]]:
    texts = _readable(found, env)
    return [
        {
            "library": c.library,
            "output": c.output,
            "same": c.is_same,
            "blobs": c.blobs,
            "compiled": len(c.compiled.units),
            "left_out": len(c.compiled.left_out),
            "failed": [{"source": unit.blob.source, "error": first_error(e)} for unit, e in c.compiled.failed],
            "problem": c.problem,
            "symbols": dict(c.comparison.symbols),
            "seconds": round(c.seconds, 3),
            "differences": [
                {**asdict(d), "fails": d.fails, "demangled": " ".join(texts.get(n, n) for n in d.name.split(" "))}
                for d in c.comparison.differences
            ],
        }
        for c in found
    ]
