"""A trait as a row: what it adds to a program."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

# What data, a number in a file and the rest of its text are before and after a change.
_VALUES = ({"VALUE": "10%", "DATA": "AAAA"}, {"VALUE": "20%", "DATA": "BBBB"})


@dataclass(frozen=True)
class Row:
    """Describes what a trait adds. In all texts, `%` is the number of the trait in its program, and
    `%%` is a percent sign. VALUE and DATA are what a change changes."""

    both: str = ""  # a header that blob and dispatcher see
    head: str = ""  # of the blob, above its function
    term: str = ""  # what the blob's function adds to its result
    host: str = ""  # of the dispatcher, above its entry
    value: str = ""  # a further result of the entry
    flags: str = ""  # of the blob
    all_flags: str = ""
    files: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)  # files that a change adds
    links: dict[str, tuple[str, str]] = field(default_factory=dict)  # what symbolic links name before and after
    blobs: dict[str, tuple[str, str]] = field(default_factory=dict)  # further ones: source, and flags
    before: str = ""  # lines of shell before the compiles
    after: str = ""  # lines of shell before the link
    objects: str = ""  # what the library is linked of, if not of all objects
    words: str = ""  # what the link ends with
    last: str = ""  # lines of shell at the end
    main: str = ""  # the program, in which CALLS calls the entry
    main_words: str = ""
    preload: str = ""

    def numbered(self, n: str) -> "Row":
        """Return the row as the trait with the number `n`."""
        numbered: dict[str, Any] = {f.name: _numbered(getattr(self, f.name), n) for f in fields(self)}
        return replace(self, **numbered)


def now_and_later(text: str, n: str) -> tuple[str, str]:
    """Return a file's text before and after a change."""
    now, later = (text.replace("VALUE", v["VALUE"]).replace("DATA", v["DATA"]).replace("%", n) for v in _VALUES)
    return now, later


def _numbered(part: object, n: str) -> object:
    if isinstance(part, str):
        return part.replace("%%", "\0").replace("%", n).replace("\0", "%")
    if isinstance(part, tuple):
        return tuple(_numbered(each, n) for each in part)
    assert isinstance(part, dict)
    return {_numbered(key, n): _numbered(each, n) for key, each in part.items()}
