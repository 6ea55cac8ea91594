"""Test the table that says, by reason, why sources are eager and what to change."""

import os
import re
from pathlib import Path

import pytest
from support import REPOSITORY
from support.counting import CountingProgram

from lazyck.postbuild.reasons import (
    Downgrade,
    Reason,
    ReasonKind,
    advise,
    of_json,
    of_pair,
    path_from,
    readable,
    summary_lines,
    to_json,
    to_pair,
)

CODE = "".join(p.read_text() for p in (REPOSITORY / "lazyck").rglob("*.py") if p.name != "reasons.py")


def one(source: str, *reasons: Reason) -> Downgrade:
    return Downgrade(source, reasons)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("kind", ReasonKind, ids=lambda k: k.name)
def test_every_reason_has_a_sentence_and_advice_and_is_given(kind: ReasonKind) -> None:
    assert re.fullmatch(r"[a-z]+s .*[^.:]|(?:is|has|could|cannot) .*[^.:]", kind.says), "the source is the subject"
    assert re.fullmatch(r"[A-Z].{30,}\.", kind.advice), "whole sentences"
    told = unwrapped(advise([one("blob/a.cpp", Reason(kind, "x"))]))
    assert told == f"1 source {kind.says} {kind.advice} blob/a.cpp (x)"
    assert kind is ReasonKind.OTHER or re.search(rf"\bReasonKind\.{kind.name}\b", CODE), "no code gives it"


def test_many_sources_with_one_reason_make_one_paragraph() -> None:
    data = [one(f"src/blob/d{i}.cpp", Reason(ReasonKind.DATA, f"table_{i}")) for i in range(500)]
    vtables = [one(f"src/v/{name}.cpp", Reason(ReasonKind.VTABLE, "Widget")) for name in ("a", "b")]
    first, second = advise([*vtables, *data]).split("\n\n")
    assert first.startswith(f"500 sources, each of which {ReasonKind.DATA.says}\n")
    assert first.count(ReasonKind.DATA.advice[:20]) == 1
    assert f" in src/blob/: {'; '.join(f'd{i}.cpp (table_{i})' for i in range(500))}" in unwrapped(first)
    assert max(map(len, first.splitlines())) <= 100
    assert second.endswith("  in src/v/: a.cpp, b.cpp (Widget)")


def test_a_source_with_two_reasons_is_told_once_with_both() -> None:
    found = one("k.cu", Reason(ReasonKind.DATA, "x"), Reason(ReasonKind.NOT_BY_KERNEL, "no steps"))
    told = unwrapped(advise([found]))
    assert f"{ReasonKind.DATA.says} and {ReasonKind.NOT_BY_KERNEL.says}" in told
    assert f"{ReasonKind.DATA.advice} Or: {ReasonKind.NOT_BY_KERNEL.advice} k.cu (x; no steps)" in told
    assert summary_lines("eager", [found]) == [
        f"eager: k.cu {ReasonKind.DATA.says}: x; it {ReasonKind.NOT_BY_KERNEL.says}: no steps"
    ]


def test_the_summary_names_a_few_of_many() -> None:
    found = [one(f"b{i}.cpp", Reason(ReasonKind.STATIC)) for i in range(6)]
    lead = f"eager: 6 sources, each of which {ReasonKind.STATIC.says}: "
    assert summary_lines("eager", found) == [f"{lead}b0.cpp, b1.cpp, b2.cpp, b3.cpp; ..."]


def test_reasons_survive_files_and_a_strange_one_is_told_as_it_is() -> None:
    found = one("a b.cpp", Reason(ReasonKind.NOT_COMPILED, "a.cpp:1: error: x"), Reason(ReasonKind.STATIC))
    assert of_pair(*to_pair(found)) == of_json(to_json(found)) == found
    assert of_pair(*to_pair(one("a", Reason(ReasonKind.LTO, "a\tb\nc")))) == one("a", Reason(ReasonKind.LTO, "a b c"))
    assert of_pair("a", "defines data: x") == one("a", Reason(ReasonKind.OTHER, "defines data: x"))
    assert of_pair("a", "NEWER\tx") == one("a", Reason(ReasonKind.OTHER, "NEWER\tx"))


def test_names_in_all_reasons_are_demangled_by_one_process(tmp_path: Path) -> None:
    program = CountingProgram(tmp_path, "c++filt")
    found = [
        Reason(ReasonKind.HIDDEN, "_Z4onlyi"),
        Reason(ReasonKind.DATA, "plain, _ZN1a1bE"),
        Reason(ReasonKind.VERSIONED, "_Z1fv@V1"),
    ]
    shown = readable(found, {**os.environ, **program.env})
    assert [r.about for r in shown] == ["only(int)", "plain, a::b", "f()@V1"]
    assert program.calls() == 1


def test_a_source_is_named_from_where_the_build_was_called() -> None:
    assert path_from("/home/me/p/blob/a.cpp", "/home/me/p") == "blob/a.cpp"
    assert path_from("/home/me/p/blob/a.cpp", "/home/me/p/build") == "../blob/a.cpp"
    assert path_from("/usr/src/a.cpp", "/home/me/p") == "/usr/src/a.cpp"
    assert path_from("/usr/src/a.cpp", "") == "/usr/src/a.cpp"
