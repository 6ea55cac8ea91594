"""Compares the options that a compiler or a linker lists with the rows of its table."""

import re
from collections.abc import Callable, Iterable, Sequence

from lazyck.abi import Role
from lazyck.errors import ToolchainError
from lazyck.toolchains import answers, linker_options
from lazyck.toolchains.options import CommandItem, OptionTable

_QUESTIONS = (
    ("--help-hidden",),  # clang
    tuple(f"--help={kind}" for kind in ("common", "optimizers", "target", "warnings", "c", "c++")),  # gcc
    ("--help",),  # nvcc
)
_LISTED = re.compile(r"^(?:  )?(--?[A-Za-z#][^\s<\[,]*)(?:[^\n(]*\((-[\w-]+)\))?", re.MULTILINE)
_OF_LINKER = re.compile(r"(?:^ {1,4}|, )(-z [\w-]+|--?[A-Za-z(][^\s<\[,={]*)", re.MULTILINE)
_FEWEST = 100  # a program that lists fewer options answered something else


def unknown_options(compiler: Sequence[str], table: OptionTable) -> tuple[int, list[str]]:
    """Return how many options `compiler` lists, and those that have no row even with a number for
    a value. A compile with one is not deferred. The number is 0 if the compiler lists none."""
    for question in _QUESTIONS:
        if said := _answer(compiler, question):
            listed = {name for names in _LISTED.findall(said) for name in names if name}
            if len(listed) >= _FEWEST:
                return len(listed), _unknown(listed, table.split)
    return 0, []


def unknown_linker_options(linker: str) -> tuple[int, list[str]]:
    """Return how many options `linker` lists, and those without a row. The blobs of a link with one
    are eager. The number is 0 if the linker lists none."""
    listed = set(_OF_LINKER.findall(_answer((linker,), ("--help",))))
    return (len(listed), _unknown(listed, linker_options.split)) if len(listed) >= _FEWEST else (0, [])


def _answer(program: Sequence[str], question: tuple[str, ...]) -> str:
    try:
        status, said = answers.ask(program, question)
    except ToolchainError:
        return ""
    return said if status == 0 else ""


def _unknown(listed: Iterable[str], split: Callable[[list[str]], list[CommandItem]]) -> list[str]:
    items = {name: split((f"{name}1" if name.endswith("=") else name).split())[0] for name in listed}
    return sorted(name for name, item in items.items() if item.role is Role.UNKNOWN)
