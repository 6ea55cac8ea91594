"""Handles what linkers write besides the library because the project asks for it: maps, and rules
for make and ninja that name all files that were read (`--dependency-file`, as CMake 3.29 says)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from lazyck.files import write_atomic

_NAMES = frozenset({"Map", "dependency-file", "out-implib", "reproduce", "time-trace-file"})
_RULES = "dependency-file"
_TO_LINKER = re.compile(r"(-Xlinker|--linker-options)(?:=(.*))?", re.DOTALL)
_LIST = re.compile(r"(?:^|,)-")
_NAME = re.compile(r"(?:\\.|[^\s\\])+")


def without(words: Sequence[str]) -> list[str]:
    """Return the words of a link without those that have it write more than the library."""
    found: list[str] = []
    before = ""
    for lead, parts in _taken_apart(words):
        kept = []
        for part in parts:
            if not _names_output(part, before) and _plain(part) not in _NAMES:
                kept.append(part)
            before = part
        if kept or not parts:
            found += [*lead[:-1], lead[-1] + ",".join(kept)]
    return found


def rules_file(words: Sequence[str]) -> str:
    """Return the file for rules that the words of a link name, or an empty string."""
    name = ""
    for before, part in pairwise(["", *(part for _, parts in _taken_apart(words) for part in parts)]):
        lead, equals, value = part.partition("=")
        if _names_output(part, before) and _plain(lead if equals else before) == _RULES:
            name = value if equals else part
    return name


def _taken_apart(words: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of a link with their options for the linker: the words without the last one's
    end, and the options that stand there. There are none in other words."""
    following = iter(words)
    for word in following:
        if word.startswith("-Wl,"):
            yield ["-Wl,"], word.split(",")[1:]
        elif m := _TO_LINKER.fullmatch(word):
            lead, value = ([word, ""], next(following, "")) if m[2] is None else ([f"{m[1]}="], m[2])
            # nvcc takes a list here. For other drivers a comma is a part of the one option.
            yield lead, value.split(",") if _LIST.search(value) else [value]
        else:
            yield [word], []


def _names_output(part: str, before: str) -> bool:
    """Return whether `part` of a linker's options, behind `before`, names an output file."""
    lead, equals, _ = part.partition("=")
    return _plain(lead) in _NAMES if equals else "=" not in before and _plain(before) in _NAMES


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


def _plain(option: str) -> str:
    return option.lstrip("-") if option.startswith("-") else ""
