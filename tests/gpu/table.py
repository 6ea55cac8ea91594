"""Render the results: what the command prints at its end, and the part of docs/gpu.md that it
generates."""

import json
from pathlib import Path
from typing import Any

from gpu.report import BLIND, MISSED, SEEN

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
_MARKS = {SEEN: "yes", MISSED: "**NO**", BLIND: "not seen"}


def render(*results: Path) -> str:
    """Render Markdown: a line about the machine of each run, a table line for each stage, and below
    what each stage checked. If a stage ran several times, its last run counts, except that a run
    that was cut short does not replace one that passed."""
    runs = [json.loads(path.read_text()) for path in results]
    stages: dict[str, dict[str, Any]] = {}
    for name, stage in (row for run in runs for row in run["stages"].items()):
        if name not in stages or stages[name]["state"] != "passed" or stage["state"] != "cut short":
            stages[name] = stage
    lines = [line for run in runs for line in (_head(run), "")]
    lines += ["| stage | shows | result | seconds: build, proof |", "|---|---|---|---|"]
    for name, stage in stages.items():
        seconds = ", ".join(f"{stage['seconds'][p]:.0f}" for p in ("build", "prove") if p in stage["seconds"])
        lines.append(f"| `{name}` | {stage['shows']} | {stage['state']} | {seconds or '-'} |")
    lines += ["", "| stage | looked at | so? | figures, or why not |", "|---|---|---|---|"]
    for name, stage in stages.items():
        for claim in stage["claims"]:
            lines.append(f"| `{name}` | {claim['text']} | {_MARKS[claim['state']]} | {_cell(claim['detail'])} |")
        if stage["trouble"]:
            mark = _MARKS[BLIND] if stage["is_cut"] else _MARKS[MISSED]
            lines.append(f"| `{name}` | it ran to its end | {mark} | {_cell(stage['trouble'])} |")
    return "\n".join(lines)


def _head(run: dict[str, Any]) -> str:
    """Describe a run: its command, its machine and its date."""
    m: dict[str, Any] = run["machine"]
    gpu = f"{m['gpu']} ({m['arch']}, driver {m['driver']})" if m["gpu"] else f"no GPU; built for {m['arch']}"
    memory = f"{m['cores']} cores, {m['memory_gb']} GB"
    torch = f"torch {m['torch']}" if m["torch"] else f"no torch for {m['platform']}"
    return (
        f"Made by `{run['command']}` on {run['date'][:10]}, at {run['commit']}, in {run['seconds']} s: {gpu}; "
        f"{memory}; {m['compiler']}; {torch}; Python {m['python']}; {m['system']}."
    )


def with_results(page: str, *results: Path) -> str:
    """Replace the text between the two marks of `page` with what `render` makes. Raises
    `ValueError` if a mark is missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{render(*results)}\n\n{END}{after}"


def _cell(text: str) -> str:
    """Return `text` as one line that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")[:300]
