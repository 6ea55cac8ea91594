"""Options of compiler drivers as a table: what the shim (C) and the recipes (Python) both read, written once.

A word is matched exactly first, then by its longest known beginning; a word that starts with `-` and matches no
rule is a flag without a separate value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Mode(str, Enum):
    """How a rule's text meets a word."""

    EXACT = "e"  # the word, without a value
    SEPARATE = "s"  # the word; its value is the next word
    PREFIX = "p"  # the word begins with the text; the rest is its value


class Role(str, Enum):
    """What an option means to lazyck. The letters are the shim's, see `interceptor/shim.h`."""

    FLAG = "f"  # nothing
    COMPILE = "c"  # compile to an object
    OUTPUT = "o"
    LANGUAGE = "x"
    DEPEND = "d"  # write a depfile beside compiling
    DEPEND_USER = "u"  # the same, without system headers
    DEPEND_PHONY = "P"  # a rule without prerequisites for each header
    DEPEND_FILE = "D"
    DEPEND_TARGET = "t"
    DEPEND_QUOTED = "q"
    DEPEND_WORDS = "w"  # -Wp, with a depfile in its value
    DEPEND_WORDS_USER = "W"
    INCLUDE = "I"  # a directory of headers; the order in which the letters are searched: Q, I, Y, A
    INCLUDE_QUOTED = "Q"  # for #include "x" only
    INCLUDE_SYSTEM = "Y"
    INCLUDE_AFTER = "A"
    INCLUDE_FILE = "H"  # a header that is read before the source
    INCLUDE_OTHER = "E"  # may lead to headers in a way that the shim does not follow
    RESPONSE = "r"  # the value names files that hold further words
    LIBRARY = "l"
    LIBRARY_DIR = "L"
    LINKER = "k"  # the value goes to the linker, comma-separated: it may name inputs
    STATIC = "S"
    HOST_COMPILER = "b"  # the compiler below this one
    HOST_OPTIONS = "h"  # words for the compiler below this one: rules for them begin with this option and a comma
    TARGET = "m"  # the value is the triple of the machine that code is made for
    REFUSE = "R"  # run the real compiler
    REFUSE_COMPILE = "C"  # run the real compiler if it is a compile
    REFUSE_IF_TRUE = "T"  # the same, for the value `true`


@dataclass(frozen=True)
class Rule:
    """One line of a table; `reason` is the code that the log gives where the role is a refusal."""

    text: str
    mode: Mode
    role: Role = Role.FLAG
    reason: str = ""


@dataclass(frozen=True)
class Item:
    """One option or input of a command line: all its words, its name ("" for an input), its value, if any."""

    words: tuple[str, ...]
    name: str
    value: str | None = None
    role: Role = Role.FLAG


class OptionTable:
    """Rules, ready to take command lines apart."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._exact = {r.text: r for r in self.rules if r.mode is not Mode.PREFIX}
        prefixes = [r for r in self.rules if r.mode is Mode.PREFIX]
        self._prefixes = sorted(prefixes, key=lambda r: len(r.text), reverse=True)
        # thousands of commands of one build differ in their source and output only
        self._joined = lru_cache(maxsize=4096)(self._take_apart)

    def split(self, words: Sequence[str]) -> list[Item]:
        """The options and inputs of a command line, without its compiler, in order."""
        items = []
        it = iter(words)
        for word in it:
            if not word.startswith("-") or word == "-":
                items.append(Item((word,), "", word))
                continue
            rule = self._exact.get(word)
            if rule is not None and rule.mode is Mode.SEPARATE:
                value = next(it, None)
                both = (word,) if value is None else (word, value)
                items.append(Item(both, word, value, rule.role))
            elif rule is not None:
                items.append(Item((word,), word, None, rule.role))
            else:
                items.append(self._joined(word))
        return items

    def _take_apart(self, word: str) -> Item:
        for rule in self._prefixes:
            if word.startswith(rule.text):
                return Item((word,), rule.text.rstrip("="), word[len(rule.text) :], rule.role)
        name, equals, value = word.partition("=")
        return Item((word,), name, value if equals else None)


def join(items: Iterable[Item]) -> tuple[str, ...]:
    """The words of `items`, in order."""
    return tuple(word for item in items for word in item.words)
