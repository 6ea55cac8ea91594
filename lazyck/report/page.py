"""A report as one HTML page that fetches nothing, and as JSON.

Users of a cache choose the names in it. Every text therefore goes through `html_text`, and data
goes through `_script_json`. A policy allows only the page's own script and style, by their digests.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lazyck import __version__
from lazyck.quantities import show_size
from lazyck.report.failures import MOST_SHOWN, ReportedFailure
from lazyck.report.figures import BlobCost, BuildCoverage
from lazyck.report.formatting import (
    LONGEST_TEXT,
    count_text,
    duration,
    html_text,
    lines_html,
    middle,
    name_html,
    percent,
    time_text,
)
from lazyck.report.gather import Report
from lazyck.report.timeline import render_timeline, script_data

_FIRST_ROWS = 12  # rows of the table of blobs before "show all"
_MOST_ROWS = 1000
_LONGEST_TITLE = 1000  # characters; kernels' names take some hundreds


def render_page(report: Report) -> str:
    here = Path(__file__).parent
    style, script = (here / "page.css").read_text("utf-8"), (here / "page.js").read_text("utf-8")
    parts = {
        "policy": _policy(style, script),
        "title": html_text(f": {report.library}") if report.library else "",
        "style": style,
        "script": script,
        "subtitle": _subtitle(report),
        "sections": "\n".join(_sections(report)),
        "footer": _footer(report),
        "data": _script_json({**script_data(report), "rows": _FIRST_ROWS}),
    }
    # One pass: text that is put in is not searched again.
    template = (here / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)


def _sections(report: Report) -> list[str]:
    if not report.runs:
        return [_section("Nothing yet", _nothing_yet(report))]
    return [
        f'<section aria-label="Summary"><dl class="cards">{_cards(report)}</dl></section>',
        *([_section("Failures", _failures(report.failures))] if report.failures else []),
        _section("Slowest blobs", _slowest(report.blobs)),
        _section("Timeline", render_timeline(report)),
        _section("Against the full build", _coverage(report.coverage)),
        _section("Cache growth", _growth(report)),
    ]


def _section(heading: str, body: str) -> str:
    return f"<section><h2>{heading}</h2>{body}</section>"


def _nothing_yet(report: Report) -> str:
    return (
        f"<p>Nothing was compiled into the cache <code>{html_text(report.cache)}</code> or loaded from it. The runtime "
        "of a lazy library records there what it does, from the first call on.</p>"
        "<ul><li>Call a function of a lazy library, or run <code>lazyck prebuild build --manifest LIB --all</code>; "
        "then make this page again.</li>"
        "<li>A job that has a cache of its own (<code>LAZYCK_CACHE_DIR</code>, another user, another machine): "
        "<code>lazyck report --cache DIR</code>.</li>"
        "<li>A job that wrote a trace (<code>LAZYCK_TRACE</code>): <code>lazyck report --trace FILE</code>.</li>"
        "<li>No lazy library yet: <code>lazyck build full --help</code> says how one is built.</li></ul>"
    )


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    own = f"style-src {digest(style)}; script-src {digest(script)}"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _script_json(data: object) -> str:
    """Return JSON in which no HTML parser finds the end of the script or the start of a comment."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _subtitle(report: Report) -> str:
    s = report.summary
    of = f"library <strong>{html_text(report.library)}</strong> · " if report.library else ""
    hosts = count_text(s.hosts, "host") if s.hosts > 1 else ""
    if not report.runs:
        return f"{of}<code>{html_text(report.cache)}</code>"
    return (
        f"{of}<code>{html_text(report.cache)}</code> · {time_text(s.first)} to {time_text(s.last)} · "
        f"{s.processes:,} process{'' if s.processes == 1 else 'es'}{' on ' + hosts if hosts else ''}"
    )


def _cards(report: Report) -> str:
    s = report.summary
    entries = f"{s.cache_entries:,} entr{'y' if s.cache_entries == 1 else 'ies'}"
    unknown = f", without {s.unknown_hits:,} of unknown cost" if s.unknown_hits else ""
    cards = [
        ("compile", "Compiles", f"{s.compiles:,}", f"of {count_text(s.compiled_blobs, 'blob')}"),
        ("compile", "Spent compiling", duration(s.compile_seconds), "compilers' time, added up"),
        ("load", "Loads from the cache", f"{s.hits:,}", "no compiler needed"),
        ("load", "Compile time saved", duration(s.saved_seconds), "by these loads" + unknown),
        ("wait", "Spent waiting", duration(s.wait_seconds), "for others' compiles and for slots"),
        ("failure" if s.failures else "", "Failures", f"{s.failures:,}", "listed first" if s.failures else "none"),
        ("", "Cache size", show_size(s.cache_bytes), f"{entries}, now"),
    ]
    return "".join(
        f'<div class="{kind}"><dt>{label}</dt><dd class="figure">{figure}</dd><dd class="note">{note}</dd></div>'
        for kind, label, figure, note in cards
    )


def _slowest(blobs: Sequence[BlobCost]) -> str:
    if not blobs:
        return '<p class="quiet">Nothing was compiled in this period: everything came from the cache.</p>'
    top = blobs[:3]
    share = percent(sum(b.share for b in top))
    which = "One blob" if len(top) == 1 else f"The {('two', 'three')[len(top) - 2]} slowest"
    lead = f"{which} took {duration(sum(b.seconds for b in top))}, {share} of all compile time."
    columns = [
        ("Blob", ""), ("Compile time", "number"), ("Share", "number"), ("Compiles", "number"), ("Loads", "number"),
        ("Peak memory", "number"), ("Size", "number"), ("Arch", ""), ("Library", ""),
    ]  # fmt: skip
    sorted_by = ' aria-sort="descending"'
    heads = "".join(
        f'<th scope="col" class="{kind}"{sorted_by if i == 1 else ""}><button type="button">{name}</button></th>'
        for i, (name, kind) in enumerate(columns)
    )
    rows = "".join(_row(i, b, blobs[0].seconds) for i, b in enumerate(blobs[:_MOST_ROWS]))
    below = ""
    if len(blobs) > _FIRST_ROWS:
        shown = min(len(blobs), _MOST_ROWS)
        below = f'<p class="below"><button type="button" id="more">Show all {shown:,}</button></p>'
    if len(blobs) > _MOST_ROWS:
        rest = sum(b.seconds for b in blobs[_MOST_ROWS:])
        below += f'<p class="quiet below">{len(blobs) - _MOST_ROWS:,} more blobs took {duration(rest)} together.</p>'
    return (
        f'<p>{lead}</p><div class="scroll"><table id="blobs"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{below}"
    )


def _row(index: int, b: BlobCost, longest: float) -> str:
    def number(value: float, shown: str, kind: str = "") -> str:
        return f'<td class="number{kind}" data-value="{value}">{shown}</td>'

    def text(value: str, shown: str, kind: str = "") -> str:
        whole = html_text(middle(value, _LONGEST_TITLE))
        return f'<td class="{kind}" title="{whole}">{shown}</td>'

    part = 100 * b.seconds / longest if longest else 0.0
    kind = "top" if index < 3 else "more" if index >= _FIRST_ROWS else ""
    bar = f'<svg aria-hidden="true"><rect width="{part:.2f}%" height="100%"></rect></svg>'
    return (
        f'<tr class="{kind}">'
        + text(b.blob, name_html(b.blob), "blob mono")
        + number(b.seconds, duration(b.seconds), " seconds")
        + f'<td class="share" data-value="{b.share}">{bar}{percent(b.share)}</td>'
        + number(b.compiles, f"{b.compiles:,}")
        + number(b.loads, f"{b.loads:,}")
        + number(b.peak_kib, show_size(1024 * b.peak_kib) if b.peak_kib else "–")
        + number(b.size, show_size(b.size) if b.size else "–")
        + text(b.arch, html_text(middle(b.arch)))
        + text(b.library, html_text(middle(b.library)))
        + "</tr>"
    )


def _coverage(libraries: Sequence[BuildCoverage]) -> str:
    if not libraries:
        return (
            '<p class="quiet">Add <code>--manifest LIB</code> (a lazy library, or the <code>manifest</code> of its '
            "bundle) to see how much of it was never compiled, and what the whole would take.</p>"
        )
    return "".join(map(_library, libraries))


def _library(c: BuildCoverage) -> str:
    part = c.compiled / c.blobs if c.blobs else 0.0
    were = "was" if c.eager == 1 else "were"
    eager = f" {count_text(c.eager, 'more blob')} {were} compiled with the library." if c.eager else ""
    lines = [
        f'<div class="library"><h3>{html_text(c.library)}</h3>',
        f'<svg class="part" aria-hidden="true"><rect width="{100 * part:.2f}%" height="100%"></rect></svg>',
        f"<p><strong>{c.compiled:,} of {count_text(c.blobs, 'lazy blob')}</strong> ({percent(part)}) were compiled."
        f"{eager}</p>",
    ]
    if c.compiled == c.blobs > 0:
        lines.append(
            f"<p>The whole library took <strong>{_core_hours(c.whole_seconds)}</strong> for one arch, "
            f"{duration(c.mean_seconds)} per blob on average.</p>"
        )
    elif c.compiled:
        lines.append(
            f"<p>The whole library would take <strong>{_core_hours(c.whole_seconds)}</strong> for one arch, at "
            f"the average of {duration(c.mean_seconds)} per blob: {count_text(c.compiled, 'compiled blob')} took "
            f"{duration(c.compiled * c.mean_seconds)}. This is an extrapolation from {count_text(c.compiled, 'blob')}, "
            "not a measurement: the rest may be cheaper or more expensive.</p>"
        )
    else:
        lines.append(
            '<p class="quiet">None of its compiles is in this history: there is nothing to extrapolate from.</p>'
        )
    return "".join(lines) + "</div>"


def _core_hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.1f} core-hours" if hours >= 0.1 else f"{hours:.2g} core-hours"


def _growth(report: Report) -> str:
    if not report.growth:
        return '<p class="quiet">No entry was published in this period.</p>'
    total = show_size(report.growth[-1][1])
    return (
        f"<p>Entries published in this period, added up: {total}. What was removed since is not subtracted; the cache "
        f"holds {show_size(report.summary.cache_bytes)} now.</p>"
        f'<svg id="growth" role="img" aria-label="bytes published over time, {total} at the end"></svg>'
    )


def _failures(found: Sequence[ReportedFailure]) -> str:
    more = len(found) - MOST_SHOWN
    below = f'<p class="quiet below">and {more:,} more.</p>' if more > 0 else ""
    return "".join(map(_failure, found[:MOST_SHOWN])) + below


def _failure(f: ReportedFailure) -> str:
    where = " · ".join(html_text(middle(text)) for text in (f.arch, f.library) if text)
    times = f"{time_text(f.last)}{f', the last of {f.count:,} times' if f.count > 1 else ''}"
    what = f.what.removeprefix(f"cannot compile blob '{f.blob}' for {f.arch}: ")
    hint = re.sub("`([^`]*)`", r"<code>\1</code>", html_text(f.hint))
    log = ""
    if f.log:
        log = (
            f"<details><summary>Log and command</summary><pre>{lines_html(f.log.end)}</pre>"
            f"<p>The whole log: <code>{html_text(f.log.path)}</code></p><p>To repeat the compile, in a shell:</p>"
            f'<pre class="wrapped">{html_text(f.log.command)}</pre></details>'
        )
    return (
        f'<div class="failed"><h3 class="mono" title="{html_text(middle(f.blob, _LONGEST_TITLE))}">{name_html(f.blob)}'
        f'</h3><p class="quiet">{where} · {times}</p>'
        f'<p class="what mono">{html_text(middle(what, LONGEST_TEXT) or f.kind + " did not end")}</p>'
        f"<p>{hint}</p>{log}</div>"
    )


def _footer(report: Report) -> str:
    lines = count_text(report.passed_over, "line")
    skipped = f" {lines} of the history could not be read." if report.passed_over else ""
    return f"Made by lazyck {html_text(__version__)} on {time_text(report.made)}. Times are local.{skipped}"


def to_json(report: Report) -> dict[str, Any]:
    """Return the report for programs, without single events, which are in the history."""
    raw = asdict(replace(report, lanes=()))
    del raw["lanes"]
    for row, c in zip(raw["coverage"], report.coverage, strict=True):
        row |= {"extrapolated_seconds": c.whole_seconds, "extrapolated_from": c.compiled}
    raw["growth"] = [{"time": t, "bytes": n} for t, n in report.growth]
    return raw
