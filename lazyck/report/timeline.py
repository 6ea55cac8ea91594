"""The timeline of a report: its HTML, and the data from which page.js draws the timeline and the
growth chart."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lazyck import abi
from lazyck.history.events import Event
from lazyck.report.figures import ActivePeriod, Lane
from lazyck.report.formatting import LONGEST_TEXT, count_text, duration, middle, time_text
from lazyck.report.gather import Report

_MOST_EVENTS = 20_000  # so that the page takes only some megabytes
_MOST_LANES = 2000
_MOST_RUNS = 60
_KINDS = {abi.EVENT_COMPILE: 0, abi.EVENT_WAIT: 1, abi.EVENT_LOAD: 2}
_FAILURE = 3


def render_timeline(report: Report) -> str:
    chosen = _chosen_runs(report.runs)
    busiest = max(chosen, key=lambda r: (r.compile_seconds, r.start))
    options = [
        f'<option value="{i}"{" selected" if run is busiest else ""}>{time_text(run.start)} · {_run_text(run)}</option>'
        for i, run in enumerate(chosen, 1)  # 0 is the whole period
    ]
    whole = f'<option value="0">whole period · {len(report.runs):,} runs</option>' if len(report.runs) > 1 else ""
    legend = "".join(
        f'<li><svg aria-hidden="true" viewBox="0 0 16 12"><rect class="{kind}-bar" x="{x}" y="{y}" width="{w}" '
        f'height="{h}"></rect></svg>{kind}</li>'
        for kind, x, y, w, h in (
            (abi.EVENT_COMPILE, 0, 0, 16, 12),
            (abi.EVENT_WAIT, 0, 3, 16, 6),
            (abi.EVENT_LOAD, 6, 8, 4, 4),
            ("failure", 0, 0, 16, 12),
        )
    )
    buttons = "".join(
        f'<button type="button" id="go-{which}" aria-label="{label}" title="{label}">{sign}</button>'
        for which, sign, label in (
            ("in", "+", "zoom in"),
            ("out", "−", "zoom out"),
            ("left", "◂", "earlier"),
            ("right", "▸", "later"),
            ("all", "Whole run", "show the whole run"),
        )
    )
    return (
        '<div class="bar"><label class="quiet" for="run">Run</label>'
        f'<select id="run">{"".join(options)}{whole}</select>{buttons}'
        '<button type="button" id="fold" title="show or hide the threads of every process">Threads</button>'
        f'<ul class="legend">{legend}</ul></div>'
        '<div id="timeline"><div id="axis-row"><span id="day"></span><svg id="axis" role="img" aria-label="time"></svg>'
        '</div><div id="lanes" tabindex="0" role="group" aria-label="processes"></div></div>'
        '<p class="quiet hint below">Drag to move; zoom with the wheel over the time axis, or with Ctrl anywhere. '
        f"Point at a bar for details.{_left_out(report)}</p>"
        "<noscript><p>The timeline and the growth chart are drawn by a script.</p></noscript>"
    )


def _left_out(report: Report) -> str:
    total = sum(len(t) for lane in report.lanes for t in lane.threads)
    if total <= _MOST_EVENTS and len(report.lanes) <= _MOST_LANES:
        return ""
    drawn = len(_drawn(report.lanes))
    return f" {total - drawn:,} of {total:,} events, the shortest, are left out; the sums above include them."


def _run_text(run: ActivePeriod) -> str:
    return f"{duration(run.end - run.start)}, {count_text(run.compiles, 'compile')} in {duration(run.compile_seconds)}"


def _chosen_runs(runs: Sequence[ActivePeriod]) -> list[ActivePeriod]:
    busiest = sorted(runs, key=lambda r: -r.compile_seconds)[:_MOST_RUNS]
    return sorted(busiest, key=lambda r: -r.start)


def script_data(report: Report) -> dict[str, Any]:
    start = report.summary.first
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(middle(text, LONGEST_TEXT), len(words))

    word("")
    rows: list[list[float]] = []
    for lane, thread, e in _drawn(report.lanes):
        when, kind = (round(e.start - start, 4), round(e.seconds, 5)), _FAILURE if e.has_failed else _KINDS[e.kind]
        rows.append([lane, thread, *when, kind, *map(word, (e.blob, e.arch, e.what)), e.peak_kib, e.size, e.pid])
    spans = [(start, report.summary.last), *((r.start, r.end) for r in _chosen_runs(report.runs))]
    offset = datetime.fromtimestamp(report.summary.last).astimezone().utcoffset()
    return {
        "t0": start,
        "offset": offset.total_seconds() if offset else 0,
        "span": [0, round(report.summary.last - start, 3)],
        "lanes": [[middle(lane.label), len(lane.threads)] for lane in report.lanes[:_MOST_LANES]],
        "runs": [[round(a - start, 3), round(b - start, 3)] for a, b in spans],
        "words": list(words),
        "events": rows,
        "growth": [[round(t - start, 3), size] for t, size in report.growth],
    }


def _drawn(lanes: Sequence[Lane]) -> list[tuple[int, int, Event]]:
    """Return (lane, thread, event) for the events that the timeline shows, by start: all of them,
    or failures and the longest."""
    every = [
        (i, j, e) for i, lane in enumerate(lanes[:_MOST_LANES]) for j, thread in enumerate(lane.threads) for e in thread
    ]
    if len(every) > _MOST_EVENTS:
        every.sort(key=lambda row: (not row[2].has_failed, -row[2].seconds))
        every = every[:_MOST_EVENTS]
    return sorted(every, key=lambda row: row[2].start)
