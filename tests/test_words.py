"""Tests that words between programs are spelled in `abi.py` alone. A typo in a constant's name does
not compile; a typo in a word does, and turns a feature off."""

import ast
import re
from collections.abc import Iterator

import pytest
from support import REPOSITORY

from lazyck import abi

# What each group of words is for; `abi.py` says it.
GROUPS = (
    "UNIT", "COST", "TABLE", "SUFFIX", "RT", "ROW", "OPTION", "REMOTE", "LINE", "NOTE", "FAILED", "DID", "WHY",
    "EVENT", "ORIGIN", "KEY",
)  # fmt: skip
PACKAGE = REPOSITORY / "lazyck"
# A word of several parts, such as `no-output`, means one thing wherever it is. A plain one, such as
# `name`, may mean another in a file that has nothing to do with its group.
SEVERAL_PARTS = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
# Files that use a group, and in which a plain word of it means something else, too: a noun in a
# message, a step of a recipe, a command of `lazyck`, a key of SLSA.
OTHERS = {
    "cache/explain.py": {"ROW_ARCH"},
    "cache/stats.py": {"ORIGIN_CACHE"},
    "cache/sweep.py": {"ROW_ENTRY", "RT_VERIFY"},
    "interceptor/project_build.py": {"WHY_BLOB"},
    "prebuild/preambles.py": {"ROW_BLOB"},
    "report/timeline.py": {"EVENT_COMPILE"},
    "runtime/src/entrance/tool_main.cpp": {"RT_TRIM", "RT_VERIFY"},
    "runtime/src/library/readiness.cpp": {"ORIGIN_COMPILED"},
    "runtime/src/history/events.cpp": {"KEY_RANK"},
    "runtime/src/store/compile.cpp": {"EVENT_COMPILE", "ORIGIN_COMPILED"},
    "toolchains/rocm.py": {"UNIT_HOST", "UNIT_KERNEL"},
    "units/src/cuda_kernel.cpp": {"COST_WHOLE"},
}


def words() -> dict[str, str]:
    """Return the words between programs by their constants' names."""
    others = ("UNIT_ASKS", "REMOTE_HELPER")  # a variable, a program
    return {n: v for n, v in vars(abi).items() if n.split("_")[0] in GROUPS and isinstance(v, str) and n not in others}


def sources() -> dict[str, str]:
    paths = (p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".c", ".cpp", ".h", ".hpp"))
    return {p.relative_to(PACKAGE).as_posix(): p.read_text() for p in paths if p.name != "abi.py"}


def constants_in(name: str, text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z]\w+" if name.endswith(".py") else r"\bLAZYCK_(\w+)", text)) & words().keys()


def literals_in(name: str, text: str) -> Iterator[str]:
    """Yield what the string literals of a source spell: the whole, and in C the first word before a
    blank and the names of members of JSON, too."""
    if name.endswith(".py"):
        tree = ast.parse(text)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                yield node.value
    else:
        code = re.sub(r"^\s*//.*|^#include.*", "", text, flags=re.MULTILINE)
        for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
            yield re.sub(r"(?: |\\t).*", "", literal)
            yield from re.findall(r'\\"(\w+)\\":', literal)


def misspelled(name: str, text: str) -> list[str]:
    """Return the constants whose words a source spells itself."""
    used = {constant.split("_")[0] for constant in constants_in(name, text)}
    spelled = set(literals_in(name, text))
    return [
        constant
        for constant, word in words().items()
        if word in spelled
        and (constant.split("_")[0] in used or SEVERAL_PARTS.fullmatch(word))
        and constant not in OTHERS.get(name, ())
    ]


def test_each_word_is_spelled_in_one_place() -> None:
    found = {name: wrong for name, text in sources().items() if (wrong := misspelled(name, text))}
    assert not found


def test_each_word_has_a_constant_that_is_named_after_it() -> None:
    for name, word in words().items():
        assert name.partition("_")[2] == re.sub(r"\W", "_", word.strip("-.")).upper(), name


def test_each_word_is_used() -> None:
    used = {constant for name, text in sources().items() for constant in constants_in(name, text)}
    assert not words().keys() - used


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("x.c", 'say("query");  // LAZYCK_WHY_STDIN', ["WHY_QUERY"]),
        ("x.c", 'say("query");', []),
        ("x.c", 'say("no-output");', ["WHY_NO_OUTPUT"]),
        ("x.cpp", 'out = "{\\"cached\\": " + LAZYCK_ROW_PATH;', ["ROW_CACHED"]),
        ("x.cpp", 'send("bad " + LAZYCK_LINE_KEPT);', ["LINE_BAD"]),
        ("x.py", 'say(abi.LINE_KEPT, "bad")', ["LINE_BAD"]),
        ("x.py", '"""An unseen-link."""', []),
    ],
)
def test_a_word_that_a_source_spells_itself_is_found(name: str, text: str, found: list[str]) -> None:
    assert misspelled(name, text) == found
