"""Tests that ARCHITECTURE.md's table of "to add X" names each place that an X touches.

The places are derived from the X that there are: a file that at least half of them occur in is one
that the next X touches, too. What reads only one of them is no such place."""

import re
from functools import lru_cache

import pytest
from support import REPOSITORY

from lazyck import abi
from lazyck.cli import COMMANDS
from lazyck.postbuild.reasons import ReasonKind
from lazyck.remote import backend
from lazyck.toolchains import ALL

PAGE = (REPOSITORY / "ARCHITECTURE.md").read_text()
PACKAGE = REPOSITORY / "lazyck"


Examples = list[tuple[str, ...]]  # each with the words that tell it: a name in Python, one in C, its text


def constants(lead: str, *, with_texts: bool = False) -> Examples:
    found = {name: text for name, text in vars(abi).items() if name.startswith(lead)}
    return [(name, f"LAZYCK_{name}", *([text] if with_texts else [])) for name, text in found.items()]


def columns() -> Examples:
    tables = (abi.MANIFEST_HEADER, abi.MANIFEST_BLOB, abi.MANIFEST_SYMBOL, abi.MANIFEST_RECIPE)
    layout = ("blobs_", "strings_", "symbols_", "recipes_", "lists_")
    return [(name,) for table in tables for name in table if "_" in name and not name.startswith(layout)]


# Rows of the table, and the examples of each.
ROWS: dict[str, Examples] = {
    "a remote backend": [(each.target.partition(":")[0],) for each in backend._BACKENDS.values()],
    "a field of the manifest": columns(),
    "a toolchain": [(f"lazyck.toolchains.{t.name}",) for t in ALL],
    "a role of options": [(f"Role.{role.name}", f"LAZYCK_ROLE_{role.name}") for role in abi.Role],
    "a reason against deferring": constants("WHY_", with_texts=True),
    "a reason for being eager": [(f"ReasonKind.{kind.name}", kind.name) for kind in ReasonKind],
    "the form of an entry": constants("ENTRY_"),
    "a figure of statistics": constants("KEY_"),
    "a command": [(f"lazyck {name}", f'"{name}"') for name in COMMANDS],
    "a variable": constants("ENV_", with_texts=True),
}


@lru_cache(maxsize=1)
def words_of_files() -> dict[str, set[str]]:
    """Return the words in the product's files and documents, by the paths that the table has."""
    paths = [p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".c", ".cpp", ".h", ".S")]
    names = {p: p.relative_to(PACKAGE).as_posix().replace("runtime/src/", "rt/", 1) for p in paths}
    names |= {p: f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")}
    forms = (r"\w+", r"[\w-]+", r"[\w.]+", r"lazyck [\w-]+", r'"[\w-]+"')
    found = {}
    for path, name in names.items():
        text = path.read_text()
        found[name] = {word for form in forms for word in re.findall(form, text)}
    return found


def places_of(examples: Examples) -> set[str]:
    """Return the files in which at least half of the examples occur."""
    files = words_of_files()
    counts = {name: sum(not words.isdisjoint(each) for each in examples) for name, words in files.items()}
    return {name for name, count in counts.items() if 2 * count >= len(examples)}


def named_in(row: str) -> set[str]:
    """Return the files that a row of the table names: by a path, a glob, a directory, or a name
    behind a path into the same directory."""
    found = re.search(rf"^\| [^|]*{re.escape(row)}[^|]* \| (.*) \|$", PAGE, re.MULTILINE)
    assert found, f"ARCHITECTURE.md has no row for {row}"
    patterns, directory = [], ""
    for shown in re.findall(r"`([\w./*-]+(?:\.[\w*]+|/))`", found[1]):
        path = shown if "/" in shown or (PACKAGE / shown).is_file() else directory + shown
        directory = path[: path.rfind("/") + 1]
        patterns.append(re.escape(path).replace(r"\*", "[^/]*") + ("[^/]*" if path[-1] == "/" else ""))
    return {name for name in words_of_files() if any(re.fullmatch(p, name) for p in patterns)}


@pytest.mark.parametrize("row", ROWS)
def test_the_table_names_the_places_of(row: str) -> None:
    places = places_of(ROWS[row])
    assert places, row
    assert not places - named_in(row)
