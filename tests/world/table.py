"""Make the table in docs/projects.md of projects whose own tests ran lazily."""

from collections.abc import Sequence

from world.results import COMMAND, count
from world.runner import WAYS, Outcome

COLUMNS = ("project", "built by", "blobs", "lazy", "eager", "tests passed ahead of time", *(name for name, *_ in WAYS))
HEAD = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]


def row(outcome: Outcome) -> str:
    """Return a line of the table."""
    ahead = count(outcome.ahead.tests) if outcome.ahead else "-"
    if outcome.ahead and (varying := outcome.ahead.varying.keys() - {COMMAND}):
        ahead += f", {len(varying)} now and then"
    cells = [
        f"{outcome.name} {outcome.version}",
        outcome.built_by,
        str(outcome.blobs),
        str(outcome.lazy),
        str(len(outcome.eager)),
        ahead,
        *(_way(outcome, name) for name, *_ in WAYS),
    ]
    return "| " + " | ".join(cells) + " |"


def _way(outcome: Outcome, name: str) -> str:
    if name not in outcome.runs:
        return "does not build" if outcome.trouble else "-"
    lines = outcome.differences().get(name)
    if not lines:
        return "same"
    others = [line for line in lines if not line.startswith(COMMAND)]
    return f"{len(others) or len(lines)} differ"


def with_table(page: str, outcomes: Sequence[Outcome]) -> str:
    """Put a row for each outcome into the table of `page` that begins with `HEAD`. The row of
    another version of a project is replaced, and other rows stay.

    Raises `ValueError` if the page has no such table.
    """
    lines = page.splitlines()
    first = lines.index(HEAD[0]) + len(HEAD)
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    table = {line.split()[1]: line for line in lines[first:end]}
    table.update((outcome.name, row(outcome)) for outcome in outcomes)
    return "\n".join([*lines[:first], *table.values(), *lines[end:], ""])
