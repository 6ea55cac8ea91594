"""Compares the options that a compiler lists with the rows of its toolchain's table."""

import re
from collections.abc import Sequence

from lazyck.abi import Role
from lazyck.errors import ToolchainError
from lazyck.toolchains import answers
from lazyck.toolchains.options import OptionTable

_QUESTIONS = (
    ("--help-hidden",),  # clang
    tuple(f"--help={kind}" for kind in ("common", "optimizers", "target", "warnings", "c", "c++")),  # gcc
    ("--help",),  # nvcc
)
_LISTED = re.compile(r"^(?:  )?(--?[A-Za-z#][^\s<\[,]*)(?:[^\n(]*\((-[\w-]+)\))?", re.MULTILINE)
_FEWEST = 100  # a compiler that lists fewer options answered something else


def unknown_options(compiler: Sequence[str], table: OptionTable) -> tuple[int, list[str]]:
    """Return how many options `compiler` lists, and those that have no row even with a number for
    a value. A compile with one is not deferred. The number is 0 if the compiler lists none."""
    for question in _QUESTIONS:
        try:
            status, said = answers.ask(compiler, question)
        except ToolchainError:
            continue
        listed = {name for names in _LISTED.findall(said) for name in names if name}
        if status == 0 and len(listed) >= _FEWEST:
            items = {name: table.split([f"{name}1" if name.endswith("=") else name])[0] for name in listed}
            return len(listed), sorted(name for name, item in items.items() if item.role is Role.UNKNOWN)
    return 0, []
