"""Put rows into the table of docs/projects.md, one per project, from an example's `--row FILE`.

    python examples/table.py docs/projects.md ROW.json...

A row replaces that of the same project; other rows stay as they are. A row file holds one object
with exactly the keys of `COLUMNS`, as text or numbers.
"""

import json
import sys
from pathlib import Path

COLUMNS = {
    "project": "project",
    "build": "built by",
    "toolchain": "toolchain",
    "files": "blobs",
    "symbols": "symbols",
    "lazy": "lazy",
    "eager": "eager",
    "lazy_seconds": "under lazyck, s",
    "ahead": "ahead of time",
    "first_call": "first call",
    "hit": "hit",
    "command": "made by",
}
HEAD = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]


def read_row(path: Path) -> dict[str, str]:
    """Return the cells of one row file; end the program for a file with missing or unknown keys."""
    row = json.loads(path.read_text())
    if set(row) != set(COLUMNS):
        sys.exit(f"{path}: keys {sorted(set(row) ^ set(COLUMNS))} are missing or unknown")
    return {key: str(row[key]).replace("|", "\\|") for key in COLUMNS}


def with_rows(text: str, rows: list[dict[str, str]]) -> str:
    """Return `text` with `rows` in its table, which begins with the line `HEAD[0]`."""
    lines = text.splitlines()
    if HEAD[0] not in lines:
        sys.exit(f"no table that begins with {HEAD[0]!r}")
    first = lines.index(HEAD[0]) + len(HEAD)
    end = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    table = {line.split(" | ")[0].removeprefix("| "): line for line in lines[first:end]}
    for row in rows:
        table[row["project"]] = "| " + " | ".join(row.values()) + " |"
    return "\n".join([*lines[:first], *table.values(), *lines[end:], ""])


def main() -> None:
    """Put the rows into the page."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    page = Path(sys.argv[1])
    page.write_text(with_rows(page.read_text(), [read_row(Path(p)) for p in sys.argv[2:]]))


if __name__ == "__main__":
    main()
