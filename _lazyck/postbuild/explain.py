"""Tells people which sources are not lazy, and what to change in them. Sources with one reason are
listed together."""

import os
import textwrap
from collections.abc import Sequence

from _lazyck.postbuild.reasons import Kind, Unlazy
from _lazyck.visible import visible

_WIDTH = 100
_LONGEST = 200  # characters of a name or a message among others
_FEW = 4


def by_kinds(found: Sequence[Unlazy]) -> list[tuple[tuple[Kind, ...], list[Unlazy]]]:
    """Group the sources by the kinds of their reasons. The largest group comes first."""
    groups: dict[tuple[Kind, ...], list[Unlazy]] = {}
    for one in found:
        groups.setdefault(tuple(r.kind for r in one.reasons), []).append(one)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def heading(kinds: Sequence[Kind], count: int) -> str:
    """Return what is to be said of so many sources with these kinds of reasons."""
    says = " and ".join(kind.says for kind in kinds)
    return f"1 source {says}" if count == 1 else f"{count} sources, each of which {says}"


def summary_lines(grade: str, found: Sequence[Unlazy]) -> list[str]:
    """Return a line for each reason why sources are of another `grade`. It says all of a single
    source, and lists a few names of many."""
    lines = []
    for kinds, members in by_kinds(found):
        if len(members) == 1:
            lines.append(f"{grade}: {visible(str(members[0]))}")
        else:
            more = "; ..." if len(members) > _FEW else ""
            lines.append(f"{grade}: {heading(kinds, len(members))}: {_listed(members[:_FEW], '')}{more}")
    return lines


def advise(found: Sequence[Unlazy]) -> str:
    """Return a paragraph for each reason why sources are eager: what to change, and where."""
    paragraphs = [_paragraph(kinds, members) for kinds, members in by_kinds(found)]
    return "\n\n".join(paragraphs or ["no source is eager: there is nothing to change"])


def _paragraph(kinds: Sequence[Kind], members: Sequence[Unlazy]) -> str:
    advice = " Or: ".join(kind.advice for kind in kinds)
    base = _directory(members) if len(members) > 1 else ""
    where = f"in {visible(base)}: " if base else ""
    sources = _wrapped(where + _listed(members, base), "  ", "    ")
    return "\n".join([heading(kinds, len(members)), _wrapped(advice, "  ", "  "), sources])


def _directory(members: Sequence[Unlazy]) -> str:
    """Return the deepest directory of all the sources, with a slash, or an empty string."""
    is_mixed = len({m.source.startswith("/") for m in members}) > 1
    common = "" if is_mixed else os.path.commonpath([os.path.dirname(m.source) for m in members])
    return f"{common}/" if common.strip("/") else ""


def _listed(members: Sequence[Unlazy], base: str) -> str:
    """List sources by their paths from `base`, those with one name or message together."""
    by_about: dict[str, list[str]] = {}
    for m in members:
        about = "; ".join(textwrap.shorten(r.about, _LONGEST, placeholder=" ...") for r in m.reasons if r.about)
        by_about.setdefault(about, []).append(visible(m.source.removeprefix(base)))
    return "; ".join(", ".join(files) + (f" ({visible(a)})" if a else "") for a, files in by_about.items())


def _wrapped(text: str, first: str, others: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def counts(found: Sequence[Unlazy]) -> list[str]:
    """Return a line for each reason, with how many sources have it."""
    return [heading(kinds, len(members)) for kinds, members in by_kinds(found)]
