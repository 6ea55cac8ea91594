"""Handles what linkers write besides the library because the project asks for it: maps, and rules
for make and ninja that name all files that were read (`--dependency-file`, as CMake 3.29 says)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lazyck.files import write_atomic

_NAME = re.compile(r"(?:\\.|[^\s\\])+")


def adapt_rules(path: Path, library: Path, output: str, names: Mapping[str, str], own: Sequence[str]) -> None:
    """Let the rules at `path` name the project's files alone: `output` instead of the linked
    `library`, files by `names` instead of copies, and nothing else below or among `own`. Else a
    build would look for copies that are gone, and link again each time."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        known = _adapted(line, library, output, names, own)
        lines += [] if known is None else [known]
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


def _adapted(line: str, library: Path, output: str, names: Mapping[str, str], own: Sequence[str]) -> str | None:
    """Return one repaired line of rules, or None if it is to be dropped. A line is a name, maybe
    with `:` or a backslash behind it. mold writes a whole rule as one line."""
    name, end = line.strip(), ""
    if name.endswith("\\"):
        name, end = name[:-1].rstrip(), " \\"
    target, colon, others = name.partition(": ")
    if colon:
        for place in own:  # mold 1 escapes nothing
            others = others.replace(place, place.replace(" ", "\\ "))
        adapted = (_adapted(other, library, output, names, own) for other in _NAME.findall(others))
        return " ".join([_adapted(f"{target}:", library, output, names, own) or "", *filter(None, adapted)]) + end
    if name.endswith(":"):
        name, end = name[:-1], f":{end}"
    file = name.replace("\\ ", " ").replace("\\#", "#").replace("$$", "$")
    known = output if file == str(library) else names.get(file, file)
    if known == file:
        return None if any(file == place or file.startswith(f"{place}/") for place in own) else line
    indent = line[: len(line) - len(line.lstrip())]
    return indent + known.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ") + end
