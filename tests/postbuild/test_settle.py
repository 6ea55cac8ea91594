"""Tests which blobs of a link stay lazy, by names alone: what is compiled is said by the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.link_contexts import NO_INPUTS, link_context

from lazyck.errors import CommandError
from lazyck.postbuild import settle
from lazyck.postbuild.eager import EagerObject, HostUnit
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.objects.symbols import LinkSymbols, SymbolNames
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.postbuild.references import ArchiveMembers, TextReferences
from lazyck.postbuild.settle import Settled, Settler, copies_in
from lazyck.toolchains.command import CompileCommand, Invocation

NOT_LAZY = Reason(ReasonKind.DATA, "x")


def names(defined: str = "", undefined: str = "", strong: str | None = None) -> SymbolNames:
    return SymbolNames(*(frozenset(t.split()) for t in (defined, undefined, defined if strong is None else strong)))


NONE = names()


def command(source: str, output: str = "") -> CompileCommand:
    return CompileCommand(Invocation("c++", "host", "/w", ("c++",), 1, ()), f"/w/{source}", output or f"/w/{source}.o")


A, B, C = (command(f"{name}.cpp") for name in "abc")


def probed(blob: CompileCommand, symbols: str, **more: Any) -> Probed:
    return Probed(tuple(symbols.split()), blob=blob, headers=frozenset(), **more)


@dataclass
class Link:
    """A link whose compiles are not run. `made` are the names of the object of each blob, and
    `compiled` lists the blobs whose compile was asked for, with the reasons."""

    probed: Sequence[Probed]
    objects: SymbolNames = NONE
    made: Mapping[CompileCommand, SymbolNames] = field(default_factory=dict)
    failing: frozenset[CompileCommand] = frozenset()
    eager: Sequence[CompileCommand] = ()
    optional: frozenset[CompileCommand] = frozenset()
    wanted: frozenset[str] = frozenset()
    members: tuple[SymbolNames, ...] = ()
    files: Mapping[str, SymbolNames] = field(default_factory=dict)
    unread: str = ""
    units: frozenset[CompileCommand] = frozenset()
    compiled: list[tuple[CompileCommand, Reason]] = field(default_factory=list)

    @property
    def inputs(self) -> LinkInputs:
        blobs = (*(p.blob for p in self.probed), *self.eager)
        return replace(NO_INPUTS, blobs=blobs, optional=self.optional, wanted=self.wanted)

    @property
    def found(self) -> LinkSymbols:
        return LinkSymbols(self.objects, SymbolNames(), self.unread, self.files, self.members)

    def compile(self, _context: LinkContext, blobs: Mapping[CompileCommand, Reason], *_: object) -> list[EagerObject]:
        self.compiled += blobs.items()
        unit = cast(HostUnit, "unit")
        error = CommandError("it", ["c++"], 1, "")
        return [
            EagerObject(
                b, (r,), Path(b.output), error if b in self.failing else None, unit if b in self.units else None
            )
            for b, r in blobs.items()
        ]

    def object(self, path: str) -> SymbolNames | None:
        return next((n for blob, n in self.made.items() if blob.output == path), None)

    def settler(self, where: Path) -> Settler:
        result = ProbeResult(tuple(self.probed), dict.fromkeys(self.eager, NOT_LAZY), 0)
        context = link_context(where, inputs=self.inputs)
        return Settler(context, result, self.found, cast(Any, self), TextReferences(()), cast(Any, None))


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(link: Link, eager: Mapping[CompileCommand, Reason] | None = None, needed: Iterable[str] = ()) -> Settled:
        monkeypatch.setattr(settle, "compile_eagerly", link.compile)
        return link.settler(tmp_path / "eager").settle(eager or {}, frozenset(needed))

    return run


def test_blobs_that_nothing_speaks_against_are_lazy_and_nothing_is_compiled(settled: Any) -> None:
    link = Link([probed(A, "f"), probed(B, "g")], names(undefined="f"))
    done = settled(link)
    assert [p.blob for p in done.lazy] == [A, B]
    assert done.owned.lazy == {A: ("f",), B: ("g",)}
    assert (done.objects, link.compiled) == ((), [])


def test_a_blob_that_must_be_eager_is_a_real_object_which_defines_what_it_does(settled: Any) -> None:
    link = Link([probed(A, "f"), probed(B, "g")], names(undefined="f g"), {A: names("f", "g")})
    done = settled(link, {A: NOT_LAZY})
    assert [p.blob for p in done.lazy] == [B]
    assert done.owned.lazy == {B: ("g",)}
    assert [made.blob for made in done.compiled] == [A]
    assert (done.failed, done.units) == ([], [])
    assert link.compiled == [(A, NOT_LAZY)]


def test_what_the_probe_could_not_read_is_compiled_first(settled: Any) -> None:
    link = Link([probed(A, "f")], names(undefined="f"), {B: names("x", "f")}, eager=[B])
    assert [p.blob for p in settled(link).lazy] == [A]
    assert link.compiled == [(B, NOT_LAZY)]


def test_what_eager_objects_ask_for_is_needed_too(settled: Any) -> None:
    weak = probed(B, "inline", weak=frozenset({"inline"}))
    link = Link([probed(A, "f"), weak], names(undefined="f"), {A: names("f", "inline")})
    assert settled(link, {A: NOT_LAZY}).owned.lazy == {B: ("inline",)}


def test_a_blob_that_gives_way_to_an_eager_one_is_eager_in_a_later_round(settled: Any) -> None:
    link = Link([probed(A, "f"), probed(B, "f")], names(undefined="f"), {A: names("f"), B: names("f")})
    done = settled(link, {A: NOT_LAZY})
    assert done.lazy == ()
    assert link.compiled == [(A, NOT_LAZY), (B, Reason(ReasonKind.RIVALLED, "f"))]


def test_symbols_that_blobs_need_count_as_needed(settled: Any) -> None:
    inline = probed(A, "f", weak=frozenset({"f"}))
    assert settled(Link([inline]), needed={"f"}).owned.lazy == {A: ("f",)}
    unneeded = Link([inline], made={A: names("f", strong="")})
    assert settled(unneeded).lazy == ()
    assert unneeded.compiled == [(A, Reason(ReasonKind.UNNEEDED))]


@pytest.mark.parametrize("needed_by", ["object", "blob"])
def test_a_symbol_that_no_slot_can_reach_makes_its_blob_eager_if_it_is_needed(settled: Any, needed_by: str) -> None:
    blob = probed(A, "f", unreachable=("quiet", "more"))
    made = {A: names("f quiet more")}
    assert settled(Link([blob], names(undefined="f"), made)).lazy == (blob,)
    link = Link([blob], names(undefined="f quiet" if needed_by == "object" else "f"), made)
    assert settled(link, needed={"quiet"} if needed_by == "blob" else ()).lazy == ()
    assert link.compiled == [(A, Reason(ReasonKind.HIDDEN, "quiet"))]
    has_it = Link([blob], names("quiet", "f quiet"), made)
    assert settled(has_it).lazy == (blob,)


def test_data_that_only_one_lazy_blob_has_makes_it_eager_if_others_need_it(settled: Any) -> None:
    data = probed(A, "f", weak_data=frozenset({"v1", "v2", "v3", "v4"}))
    made = {A: names("f v1 v2 v3 v4")}
    assert settled(Link([data], names(undefined="f"), made)).lazy == (data,)
    link = Link([data, probed(B, "g", needs=frozenset({"v1", "v2", "v3", "v4", "h"}))], names(undefined="f"), made)
    assert [p.blob for p in settled(link).lazy] == [B]
    assert link.compiled == [(A, Reason(ReasonKind.TEMPLATE_DATA, "v1, v2, v3"))]
    has_it = Link([data, probed(B, "g", needs=frozenset({"v1"}))], names("v1", "f"), made)
    assert len(settled(has_it).lazy) == 2


def test_a_kernel_that_an_object_launches_makes_its_blob_eager(settled: Any, tmp_path: Path) -> None:
    caller = tmp_path / "caller.o"
    caller.write_bytes(b"no object")
    link = Link(
        [probed(A, "f", kernels=("kernel", "other"))],
        names(undefined="f kernel"),
        {A: names("f kernel")},
        files={"/w/else.o": names(undefined="f"), str(caller): names(undefined="kernel")},
    )
    assert settled(link).lazy == ()
    assert link.compiled == [(A, Reason(ReasonKind.KERNEL_USED, "kernel, in caller.o"))]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, Reason(ReasonKind.NO_FUNCTION)),
        ({"kernels": ("k", "l")}, Reason(ReasonKind.KERNELS_ALONE)),
        ({"kernels": ("k", "l"), "unreachable": ("k",)}, Reason(ReasonKind.KERNELS_ALONE)),
        ({"kernels": ("k",), "unreachable": ("k", "q")}, Reason(ReasonKind.KERNELS_HIDDEN)),
        ({"unreachable": ("q", "r")}, Reason(ReasonKind.HIDDEN, "q")),
    ],
)
def test_a_blob_without_a_function_is_eager_for_what_it_has(settled: Any, more: Any, reason: Reason) -> None:
    link = Link([probed(A, "", **more)], made={A: names()})
    assert settled(link).lazy == ()
    assert link.compiled == [(A, reason)]


def test_a_blob_that_fails_to_compile_is_told_and_defines_nothing(settled: Any) -> None:
    link = Link([probed(A, "f"), probed(B, "f g")], names(undefined="f"), failing=frozenset({A}))
    done = settled(link, {A: NOT_LAZY})
    assert [made.blob for made in done.failed] == [A]
    assert done.compiled == []
    assert done.owned.lazy == {B: ("f", "g")}


def test_the_second_object_of_one_source_is_left_out(settled: Any) -> None:
    copy = replace(A, output="/w/pic/a.o")
    done = settled(Link([probed(A, "f"), probed(copy, "f"), probed(B, "g")], names(undefined="f")))
    assert [p.blob for p in done.lazy] == [A, B]
    assert done.copies == {copy}
    link = Link([], names(undefined="f"), {A: names("f"), copy: names("f")}, eager=[A])
    link.eager = [A, copy]
    done = settled(link)
    assert ([made.blob for made in done.objects], done.copies) == ([A], {copy})


def test_copies_define_the_same_and_come_from_one_source() -> None:
    f, none = frozenset({"f"}), frozenset[str]()
    other = replace(A, output="/w/other.o")
    assert copies_in([(A, f), (other, f), (B, f)]) == {other}
    assert copies_in([(A, f), (other, frozenset({"g"}))]) == frozenset()
    assert copies_in([(A, none), (other, none)]) == frozenset()


def test_a_unit_is_compiled_anew_once_it_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {A: names("f"), B: names("g")}
    link = Link([probed(A, "f"), probed(B, "g")], made=made, units=frozenset({A}))
    monkeypatch.setattr(settle, "compile_eagerly", link.compile)
    settler = link.settler(tmp_path / "eager")
    done = settler.settle({A: NOT_LAZY, B: NOT_LAZY}, frozenset())
    assert len(done.units) == 1
    settler.settle({A: NOT_LAZY, B: NOT_LAZY}, frozenset())
    assert [blob for blob, _ in link.compiled] == [A, B]
    settler.forget_units([A, B, C])
    settler.settle({A: NOT_LAZY, B: NOT_LAZY}, frozenset())
    assert [blob for blob, _ in link.compiled] == [A, B, A]
    assert settler.real().defined == {"f", "g"}


# -- members of archives ---------------------------------------------------------------------------


def unneeded(link: Link, compiled: Mapping[CompileCommand, SymbolNames] | None = None, needed: str = "") -> set[str]:
    result = ProbeResult(tuple(link.probed), dict.fromkeys(link.eager, NOT_LAZY), 0)
    found = ArchiveMembers(link.inputs, result, link.found, TextReferences(())).unneeded(
        compiled or {}, frozenset(needed.split())
    )
    return {blob.stem for blob in found}


def member(blob: CompileCommand, symbols: str, needs: str = "", **more: Any) -> Probed:
    return probed(blob, symbols, needs=frozenset(needs.split()), **more)


def test_members_that_something_needs_are_taken_with_what_they_need() -> None:
    parts = [member(A, "f", "g"), member(B, "g"), member(C, "h")]
    link = Link(parts, names(undefined="f"), optional=frozenset({A, B, C}))
    assert unneeded(link) == {"c"}
    assert unneeded(link, needed="h") == set()
    assert unneeded(replace(link, wanted=frozenset({"h"}))) == set()
    assert unneeded(replace(link, objects=names("f", "f"))) == {"a", "b", "c"}
    assert unneeded(replace(link, optional=frozenset({B, C}))) == {"c"}
    assert unneeded(replace(link, optional=frozenset())) == set()
    assert unneeded(replace(link, unread="/w/lto.o")) == set()


def test_a_blob_that_is_linked_anyway_defines_and_needs() -> None:
    parts = [member(A, "f", "h"), member(B, "f"), member(C, "h")]
    link = Link(parts, names(undefined="f"), optional=frozenset({B, C}))
    assert unneeded(link) == {"b"}


def test_the_names_of_a_compiled_blob_count_and_not_those_of_the_probe() -> None:
    link = Link([member(A, "f"), member(B, "g")], names(undefined="f"), optional=frozenset({A, B}))
    assert unneeded(link) == {"b"}
    assert unneeded(link, {A: names("f", "g")}) == set()
    assert unneeded(link, {A: names("x", "g")}) == {"a", "b"}


@pytest.mark.parametrize("kind", ["unreachable", "kernels", "weak_data"])
def test_a_member_is_taken_for_what_no_stub_stands_for(kind: str) -> None:
    named: Any = ("x",) if kind != "weak_data" else frozenset({"x"})
    link = Link([member(A, "", **{kind: named})], names(undefined="x"), optional=frozenset({A}))
    assert unneeded(link) == set()


def test_a_real_member_leads_to_blobs() -> None:
    link = Link([member(A, "f"), member(B, "g")], names(undefined="real"), optional=frozenset({A, B}))
    assert unneeded(replace(link, members=(names("real", "f"), names("unused", "g")))) == {"b"}


def test_a_blob_that_cannot_be_read_needs_all_that_its_text_may_name() -> None:
    """Without a text, that is everything of interest."""
    unknown = probed(A, "f")
    link = Link([unknown, member(B, "g"), member(C, "i", weak=frozenset({"i"}))], names(undefined="f"))
    link = replace(link, optional=frozenset({B, C}))
    assert unneeded(link) == {"c"}  # each file that uses an inline function has it
    assert unneeded(replace(link, members=(names("m", "i"),))) == {"c"}
