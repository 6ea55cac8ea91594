"""Describe the options of compiler drivers as a table, which both the shim (C) and the recipes
(Python) read.

A word is matched exactly first, then by its longest known beginning. What starts with `-` and
matches no rule is unknown: a compile with such a word is not deferred. It is taken for an option
without a separate value.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from lazyck import abi
from lazyck.abi import Mode, Role

_BEGINNINGS = (Mode.PREFIX, Mode.FAMILY, Mode.NUMERIC)


@dataclass(frozen=True)
class Rule:
    """One line of a table. If the role is a refusal, `reason` is the code that the log gives. For
    words that are passed on, it is what stands before them in the texts of their rules."""

    text: str
    mode: Mode
    role: Role
    reason: str


@dataclass(frozen=True)
class CommandItem:
    """One option or input: all its words, its name (empty for an input), and its value if any."""

    words: tuple[str, ...]
    name: str
    value: str | None = None
    role: Role = Role.FLAG

    def with_value(self, value: str) -> list[str]:
        *lead, last = self.words
        return [*lead, last[: len(last) - len(self.value or "")] + value]


class OptionTable:
    """Rules that split command lines. `rows` have mode, role, texts (with blanks), reason."""

    def __init__(self, rows: Iterable[tuple[Mode, Role, str, str]]) -> None:
        self.rules = tuple(
            Rule(text, mode, role, reason) for mode, role, texts, reason in rows for text in texts.split()
        )
        self._exact = {r.text: r for r in self.rules if r.mode not in _BEGINNINGS}
        prefixes = [r for r in self.rules if r.mode in _BEGINNINGS]
        self._prefixes = sorted(prefixes, key=lambda r: len(r.text), reverse=True)
        # The commands of a build are often thousands that differ only in source and output.
        self._joined = lru_cache(maxsize=4096)(self._take_apart)

    def split(self, words: Sequence[str]) -> list[CommandItem]:
        """Return the options and inputs of a command line, without its compiler, in order."""
        items = []
        it = iter(words)
        for word in it:
            if not word.startswith("-") or word == "-":
                items.append(CommandItem((word,), "", word))
                continue
            rule = self._exact.get(word)
            if rule is not None and rule.mode is Mode.SEPARATE:
                value = next(it, None)
                both = (word,) if value is None else (word, value)
                items.append(CommandItem(both, word, value, rule.role))
            elif rule is not None:
                items.append(CommandItem((word,), word, None, rule.role))
            else:
                items.append(self._joined(word))
        return items

    def takes_next(self, name: str) -> bool:
        """Return whether the word behind the option `name` is its value."""
        return name in self._exact and self._exact[name].mode is Mode.SEPARATE

    def _take_apart(self, word: str) -> CommandItem:
        name, equals, value = word.partition("=")
        role = Role.UNKNOWN
        for rule in self._prefixes:
            if word.startswith(rule.text) and (rule.mode is not Mode.NUMERIC or _is_numeric(value)):
                if rule.mode is Mode.PREFIX:
                    return CommandItem((word,), rule.text.rstrip("="), word[len(rule.text) :], rule.role)
                role = rule.role
                break
        return CommandItem((word,), name, value if equals else None, role)


def _is_numeric(value: str) -> bool:
    return value in abi.SWITCHES.split() or not value.strip("0123456789-")


def join(items: Iterable[CommandItem]) -> tuple[str, ...]:
    return tuple(word for item in items for word in item.words)
