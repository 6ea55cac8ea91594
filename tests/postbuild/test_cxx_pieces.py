"""Test into which pieces text is split, also where its brackets do not match."""

import pytest

from lazyck.postbuild.cxx.lexer import Piece, pieces


def split(text: str) -> list[tuple[str, str]]:
    return [(p.ends, text[p.start : p.end].strip()) for p in walk(text)]


def walk(text: str) -> list[Piece]:
    return list(pieces(text, lambda head: "namespace" in head, lambda text, p: text[p.start : p.last].endswith(") ")))


def test_declarations_end_with_a_semicolon_or_a_block_and_scopes_are_entered() -> None:
    text = "namespace a { int x{1}, y; void f(int n = {}) { g({}); } }\n#pragma x\nint z;"
    assert split(text) == [
        ("{", "namespace a {"),
        (";", "int x{1}, y;"),
        ("block", "void f(int n = {}) { g({}); }"),
        ("}", "}"),
        ("#", "#pragma x"),
        (";", "int z;"),
        ("", ""),
    ]
    assert all(p.is_balanced for p in walk(text))


def test_brackets_within_literals_and_directives_count_for_nothing() -> None:
    assert split('char a = \'{\', *b = "(", *c = R"x(})x";\n  # 1 "{"\nint d;')[1:] == [
        ("#", '# 1 "{"'),
        (";", "int d;"),
        ("", ""),
    ]


@pytest.mark.parametrize("wrong", ["f(;", "f);", "void f() { ( }", "void f() { ) }", "int x = {", "namespace a { ( }"])
def test_brackets_that_do_not_match_are_told(wrong: str) -> None:
    assert not walk(wrong)[-1].is_balanced


def test_a_block_ends_the_parentheses_that_are_open_in_it() -> None:
    assert split("void f() { (( } int after;")[:2] == [("block", "void f() { (( }"), (";", "int after;")]
