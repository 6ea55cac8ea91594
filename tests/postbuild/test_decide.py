"""Tests what becomes of the blobs of a link, by names alone: what is compiled, what a blob needs
and what its text could name is said by the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.link_contexts import NO_INPUTS, link_context

from lazyck.errors import CommandError
from lazyck.postbuild.archives import Archives, Members
from lazyck.postbuild.decide import Given, copies_in, decide
from lazyck.postbuild.eager import EagerObject, HostUnit
from lazyck.postbuild.facts import Demands, Facts, Plan, Settled
from lazyck.postbuild.objects.cudart import CudaRuntime
from lazyck.postbuild.objects.elf import WANTED_HERE, SymbolNames
from lazyck.postbuild.objects.inputs import LinkInputs
from lazyck.postbuild.objects.symbols import LinkSymbols
from lazyck.postbuild.probe.group import Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains.command import CompileCommand, Invocation

NO_FACTS, NOT_LAZY = Facts(), Reason(ReasonKind.DATA, "x")


def names(
    defined: str = "", undefined: str = "", strong: str | None = None, hidden: str = "", **more: Any
) -> SymbolNames:
    texts = (defined, undefined, defined if strong is None else strong, hidden, undefined)
    d, u, s, h, a = (frozenset(t.split()) for t in texts)
    return SymbolNames(d, u, s, h, a, **more)


NONE = names()


def command(source: str, output: str = "") -> CompileCommand:
    return CompileCommand(Invocation("c++", "host", "/w", ("c++",), 1, ()), f"/w/{source}", output or f"/w/{source}.o")


A, B, C = (command(f"{name}.cpp") for name in "abc")


def probed(blob: CompileCommand, symbols: str, **more: Any) -> Probed:
    return Probed(tuple(symbols.split()), blob=blob, headers=frozenset(), **more)


@dataclass
class Link:
    """A link whose compiles are not run. `made` are the names of the object of each blob, `needs`
    what a compile would tell of it, and `text` what its text could name (default: everything).
    `compiled` lists the blobs whose compile was asked for, with the reasons, and `asked` those of
    which only the needs were."""

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
    needs: Mapping[CompileCommand, str] = field(default_factory=dict)
    text: Mapping[CompileCommand, str] = field(default_factory=dict)
    attributes: str = ""
    declared_instances: frozenset[str] = frozenset()
    runtime: CudaRuntime | None = None
    compiled: list[tuple[CompileCommand, Reason]] = field(default_factory=list)
    asked: list[CompileCommand] = field(default_factory=list)

    @property
    def inputs(self) -> LinkInputs:
        blobs = (*(p.blob for p in self.probed), *self.eager)
        files: Any = {"records": {"lib.a": blobs}, "scanned": (("",), ("lib.a",))}
        return replace(NO_INPUTS, blobs=blobs, optional=self.optional, wanted=self.wanted, **files)

    @property
    def given(self) -> Given:
        result = ProbeResult(tuple(self.probed), dict.fromkeys(self.eager, NOT_LAZY), 0)
        found = LinkSymbols(
            self.objects, SymbolNames(), self.unread, {**self.files, "": self.objects}, {"lib.a": self.members}
        )
        mentions: Any = self
        archives = Archives(self.inputs, result, found, mentions, ("c++",))
        return Given(link_context(Path("/w"), inputs=self.inputs, env={}), result, found, mentions, archives)

    def by_blob(self, symbols: Iterable[str]) -> Any:
        every = frozenset(symbols)
        return lambda blob: every & frozenset(self.text[blob].split()) if blob in self.text else every

    def attributed(self, symbols: Iterable[str]) -> frozenset[str]:
        return frozenset(symbols) & frozenset(self.attributes.split())

    def runtime_of(self, settled: Settled, demands: Demands) -> CudaRuntime | None:
        return self.runtime

    def carry_out(self, plan: Plan, facts: Facts) -> Facts:
        self.compiled += plan.compile.items()
        self.asked += plan.ask
        unit, error = cast(HostUnit, "unit"), CommandError("it", ["c++"], 1, "")
        made = {
            b: EagerObject(
                b,
                (r,),
                Path(b.output),
                error if b in self.failing else None,
                unit if b in self.units and b not in facts.refused else None,
            )
            for b, r in plan.compile.items()
        }
        defined = {b: self.made.get(b, NONE) for b in made if b not in self.failing}
        needs = {b: frozenset(self.needs.get(b, "").split()) for b in plan.ask}
        objects, of_all = {**facts.objects, **made}, {**facts.names, **defined}
        return replace(facts, objects=objects, names=of_all, needs={**facts.needs, **needs})

    def plan(self, facts: Facts = NO_FACTS) -> Plan:
        """Return the plan of the link, after all that has to be found out before."""
        plan = decide(self.given, facts, self.runtime_of)
        while plan.settled is None:
            assert plan.compile or plan.ask
            facts = self.carry_out(plan, facts)
            plan = decide(self.given, facts, self.runtime_of)
        return plan


def settled(link: Link, eager: Mapping[CompileCommand, Reason] | None = None) -> Settled:
    found = link.plan(Facts(refused=eager or {})).settled
    assert found
    return found


def test_blobs_that_nothing_speaks_against_are_lazy_and_nothing_is_compiled() -> None:
    link = Link([probed(A, "f"), probed(B, "g")], names(undefined="f"))
    done = settled(link)
    assert [p.blob for p in done.lazy] == [A, B]
    assert done.owned.lazy == {A: ("f",), B: ("g",)}
    assert (done.objects, link.compiled) == ((), [])


def test_a_blob_that_must_be_eager_is_a_real_object_which_defines_what_it_does() -> None:
    link = Link([probed(A, "f"), probed(B, "g")], names(undefined="f g"), {A: names("f", "g")})
    done = settled(link, {A: NOT_LAZY})
    assert [p.blob for p in done.lazy] == [B]
    assert done.owned.lazy == {B: ("g",)}
    assert [made.blob for made in done.compiled] == [A]
    assert (done.failed, done.units) == ([], [])
    assert link.compiled == [(A, NOT_LAZY)]


def test_what_the_probe_could_not_read_is_compiled_first() -> None:
    link = Link([probed(A, "f")], names(undefined="f"), {B: names("x", "f")}, eager=[B])
    assert [p.blob for p in settled(link).lazy] == [A]
    assert link.compiled == [(B, NOT_LAZY)]


def test_what_eager_objects_ask_for_is_needed_too() -> None:
    weak = probed(B, "inline", weak=frozenset({"inline"}))
    link = Link([probed(A, "f"), weak], names(undefined="f"), {A: names("f", "inline")})
    assert settled(link, {A: NOT_LAZY}).owned.lazy == {B: ("inline",)}


def test_a_blob_that_gives_way_to_an_eager_one_is_eager_in_a_later_round() -> None:
    link = Link([probed(A, "f"), probed(B, "f")], names(undefined="f"), {A: names("f"), B: names("f")})
    done = settled(link, {A: NOT_LAZY})
    assert done.lazy == ()
    assert link.compiled == [(A, NOT_LAZY), (B, Reason(ReasonKind.RIVALLED, "f"))]


def test_an_instance_that_the_text_of_another_blob_names_has_a_stub() -> None:
    member = "_ZN3BoxIiE3getEv"
    how = "has an explicit instantiation of a class: struct ns::Box<int>"
    one = probed(
        A, "f _ZN3BoxIiE3getEv _ZN5OtherIiE3getEv", compiled=how, weak=frozenset({member, "_ZN5OtherIiE3getEv"})
    )
    link = Link([one, probed(B, "g")], names(undefined="f"))
    assert settled(link).owned.lazy == {A: ("f", member), B: ("g",)}
    assert settled(replace(link, text={B: "g"})).owned.lazy == {A: ("f",), B: ("g",)}
    assert settled(replace(link, probed=[replace(one, compiled="is odd")])).owned.lazy == {A: ("f",)}


def test_a_symbol_that_no_slot_can_reach_makes_its_blob_eager_if_an_object_needs_it() -> None:
    blob = probed(A, "f", unreachable=("quiet", "more"))
    made = {A: names("f quiet more")}
    assert settled(Link([blob], names(undefined="f"), made)).lazy == (blob,)
    link = Link([blob], names(undefined="f quiet"), made)
    assert settled(link).lazy == ()
    assert link.compiled == [(A, Reason(ReasonKind.HIDDEN, "quiet"))]
    has_it = Link([blob], names("quiet", "f quiet"), made)
    assert settled(has_it).lazy == (blob,)


def test_data_that_only_one_lazy_blob_has_makes_it_eager_if_others_need_it() -> None:
    data = probed(A, "f", weak_data=frozenset({"v1", "v2", "v3", "v4"}))
    made = {A: names("f v1 v2 v3 v4")}
    assert settled(Link([data], names(undefined="f"), made)).lazy == (data,)
    link = Link([data, probed(B, "g", needs=frozenset({"v1", "v2", "v3", "v4", "h"}))], names(undefined="f"), made)
    assert [p.blob for p in settled(link).lazy] == [B]
    assert link.compiled == [(A, Reason(ReasonKind.TEMPLATE_DATA, "v1, v2, v3"))]
    has_it = Link([data, probed(B, "g", needs=frozenset({"v1"}))], names("v1", "f"), made)
    assert len(settled(has_it).lazy) == 2


def test_a_kernel_that_an_object_launches_makes_its_blob_eager(tmp_path: Path) -> None:
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
def test_a_blob_without_a_function_is_eager_for_what_it_has(more: Any, reason: Reason) -> None:
    link = Link([probed(A, "", **more)], made={A: names()})
    assert settled(link).lazy == ()
    assert link.compiled == [(A, reason)]


def test_a_blob_that_fails_to_compile_is_told_and_defines_nothing() -> None:
    link = Link([probed(A, "f"), probed(B, "f g")], names(undefined="f"), failing=frozenset({A}))
    done = settled(link, {A: NOT_LAZY})
    assert [made.blob for made in done.failed] == [A]
    assert done.compiled == []
    assert done.owned.lazy == {B: ("f", "g")}


def test_the_second_object_of_one_source_is_left_out() -> None:
    copy = replace(A, output="/w/pic/a.o")
    done = settled(Link([probed(A, "f"), probed(copy, "f"), probed(B, "g")], names(undefined="f")))
    assert [p.blob for p in done.lazy] == [A, B]
    assert done.copies == {copy}
    link = Link([], names(undefined="f"), {A: names("f"), copy: names("f")}, eager=[A])
    link.eager = [A, copy]
    done = settled(link)
    assert ([made.blob for made in done.objects], done.copies) == ([A], frozenset({copy}))


def test_copies_define_the_same_and_come_from_one_source() -> None:
    f, none = frozenset({"f"}), frozenset[str]()
    other = replace(A, output="/w/other.o")
    assert copies_in([(A, f), (other, f), (B, f)]) == {other}
    assert copies_in([(A, f), (other, frozenset({"g"}))]) == frozenset()
    assert copies_in([(A, none), (other, none)]) == frozenset()


def test_a_unit_that_no_bundle_can_serve_is_compiled_anew() -> None:
    link = Link([probed(B, "g")], made={A: names("f")}, units=frozenset({A}), eager=[A])
    facts = link.carry_out(decide(link.given, Facts(), link.runtime_of), Facts())
    assert link.plan(facts).settled.units == ["unit"]  # type: ignore[union-attr]
    plan = link.plan(replace(facts, refused={A: NOT_LAZY}))
    assert plan.settled and plan.settled.units == []
    assert [blob for blob, _ in link.compiled] == [A, A]
    assert plan.real.defined == {"f"}


# -- what blobs could need -------------------------------------------------------------------------


def offered(link: Link, facts: Facts = NO_FACTS) -> set[str]:
    return set(link.plan(facts).demands.offered)


def test_what_objects_hide_is_offered_if_a_text_could_name_it_and_nothing_is_compiled() -> None:
    link = Link(
        [probed(A, "f"), probed(B, "g")],
        names("_Z5shownv _Z6hiddenv _Z4weakv", strong="", hidden="_Z6hiddenv _Z4weakv"),
    )
    assert offered(link) == {"_Z6hiddenv", "_Z4weakv"}
    link = replace(link, text={A: "_Z6hiddenv _Z5shownv", B: ""})
    assert offered(link) == {"_Z6hiddenv"}
    assert (link.compiled, link.asked) == ([], [])
    assert offered(replace(link, probed=[])) == set()


def test_what_no_text_need_declare_is_offered_in_any_case() -> None:
    hidden = "memcpy _ZN12_GLOBAL__N_11fEv _ZNSt6vectorIiE1fEv DW.ref.x"
    assert offered(Link([probed(A, "f")], names(hidden, hidden=hidden), text={A: ""})) == {"memcpy"}


def test_what_the_link_hides_is_offered_too_and_stubs_have_private_names() -> None:
    link = Link([probed(A, "f")], names("_Z5shownv", "f"))
    facts = Facts(unexported=frozenset({"_Z5shownv", "f", "other"}))
    plan = link.plan(facts)
    assert set(plan.demands.offered) == {"_Z5shownv"}
    assert plan.settled and plan.settled.lazy[0].private == {"f"}


def test_what_options_hide_stays_hidden_and_what_a_source_protects_stays_exported() -> None:
    hiding = replace(B, call=replace(B.call, argv=("c++", "-fvisibility=hidden")))
    private = {"private": frozenset({"f", "g"})}
    link = Link([probed(A, "f", **private), probed(hiding, "g", **private)], names(undefined="f g"))
    plan = link.plan(Facts(unexported=frozenset({"other"})))
    assert plan.settled and plan.settled.plain == {}
    link.probed = [probed(A, "f", private=frozenset({"f"})), probed(hiding, "g", private=frozenset({"g"}))]
    assert link.plan().settled.plain == {"f": "protected"}  # type: ignore[union-attr]


def test_of_what_cannot_be_offered_only_a_compile_tells_whether_a_blob_is_eager() -> None:
    facts = Facts(lost=frozenset({"_Z6hiddenv"}))
    link = Link([probed(A, "f"), probed(B, "g")], names("_Z6hiddenv", hidden="_Z6hiddenv"))
    link = replace(link, needs={A: "_Z6hiddenv"}, text={B: ""})
    plan = link.plan(facts)
    assert link.asked == [A]
    assert link.compiled == [(A, Reason(ReasonKind.NOT_EXPORTED, "_Z6hiddenv"))]
    assert plan.demands.offered == {}
    known = replace(link, probed=[probed(A, "f", needs=frozenset({"x"}))], asked=[], compiled=[])
    assert (known.plan(facts).settled.lazy, known.asked) == (tuple(known.probed), [])  # type: ignore[union-attr]


def test_what_a_text_binds_within_its_library_makes_a_blob_eager_that_uses_it() -> None:
    objects = names("_Z6hiddenv", hidden="_Z6hiddenv")
    link = Link([probed(A, "f")], objects, attributes="_Z6hiddenv", needs={A: f"_Z6hiddenv _Z6hiddenv{WANTED_HERE}"})
    link.plan()
    assert link.compiled == [(A, Reason(ReasonKind.NOT_EXPORTED, "_Z6hiddenv"))]
    plain = Link([probed(A, "f")], objects, attributes="_Z6hiddenv", needs={A: "_Z6hiddenv"})
    assert (offered(plain), plain.asked, plain.compiled) == ({"_Z6hiddenv"}, [A], [])


def test_a_hidden_function_of_a_blob_that_another_uses_makes_its_blob_eager() -> None:
    parts = [probed(A, "f", unreachable=("_Z3ownv",)), probed(B, "g")]
    link = Link(parts, needs={B: "_Z3ownv"}, text={A: "_Z3ownv"}, made={A: names("f")})
    link.plan()
    assert (link.asked, link.compiled) == ([B], [(A, Reason(ReasonKind.HIDDEN, "_Z3ownv"))])
    inline = Link([replace(parts[0], weak=frozenset({"_Z3ownv"})), parts[1]])
    inline.plan()
    assert (inline.asked, inline.compiled) == ([], [])


def test_a_kernel_s_handle_that_another_blob_uses_makes_its_blob_eager() -> None:
    one = probed(A, "f", kernels=("_Z6kernelv", "_Z4weakv"), weak=frozenset({"_Z4weakv"}))
    link = Link([one, probed(B, "g")], needs={B: "_Z6kernelv _Z4weakv"}, made={A: names("f")})
    link.plan()
    assert link.compiled == [(A, Reason(ReasonKind.KERNEL_USED, "kernel, in b.cpp"))]


def test_a_library_that_the_linker_dropped_is_kept_if_a_text_could_name_what_it_alone_has() -> None:
    facts = Facts(dropped={"/l/a.so": frozenset({"_Z5therev"}), "/l/b.so": frozenset({"_Z5otherv"})})
    link = Link([probed(A, "f")], text={A: "_Z5therev"})
    assert link.plan(facts).demands.kept == ("/l/a.so",)


def test_where_the_wrappers_of_a_runtime_are_out_of_reach_blobs_are_whole() -> None:
    call = Invocation("nvcc", "cuda", "/w", ("nvcc",), 1, ())
    cuda = CompileCommand(call, "/w/k.cu", "/w/k.o")
    wrapped = CudaRuntime(("__wrap_cudaLaunchKernel",), "table", "x86_64")
    link = Link([probed(cuda, "k"), probed(A, "f")], runtime=wrapped, made={cuda: names("k")})
    assert not link.plan().demands.whole
    assert link.plan(Facts(without_runtime=frozenset({"cudaLaunchKernel"}))).demands.whole
    assert link.compiled == []


def test_facts_are_counted() -> None:
    assert len(Facts()) == 0
    assert len(Facts(lost=frozenset({"a"}), dropped={"/l/a.so": frozenset()}, refused={A: NOT_LAZY})) == 3


# -- members of archives ---------------------------------------------------------------------------


def members(link: Link, compiled: Mapping[CompileCommand, SymbolNames] | None = None, needed: str = "") -> Members:
    needs = {p.blob: p.needs for p in link.probed if p.needs is not None}
    return link.given.archives.decide(compiled or {}, frozenset(needed.split()), needs)


def unneeded(link: Link, compiled: Mapping[CompileCommand, SymbolNames] | None = None, needed: str = "") -> set[str]:
    return {blob.stem for blob in members(link, compiled, needed).unneeded}


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
    assert unneeded(replace(link, members=(names("m", "i"),))) == set()


def test_a_member_that_a_text_could_name_is_pulled_in() -> None:
    link = Link(
        [probed(A, "f")], names(undefined="f"), members=(names("helper more"), names("spare")), text={A: "helper"}
    )
    assert members(link).pulled == {"helper"}
    assert members(replace(link, objects=names("helper", "f"))).pulled == set()
    assert members(replace(link, probed=[member(A, "f")])).pulled == set()


@pytest.mark.parametrize(
    "more", [{"has_startup": True}, {"strong": "helper f2"}], ids=["code-that-runs-at-load", "another-definition"]
)
def test_where_a_member_could_do_harm_the_compiler_is_asked(more: Any) -> None:
    link = Link([probed(A, "f"), probed(B, "g")], names("f2", "f"), members=(names("helper f2", **more),))
    link = replace(link, text={A: "helper", B: ""})
    assert members(link).asks == {A}
    assert members(replace(link, attributes="helper", members=(names("helper"),))).asks == {A}, "may be weak"
    assert members(replace(link, members=(names("helper"),))).asks == set()
    asked = replace(link, probed=[member(A, "f", "helper"), probed(B, "g")])
    assert members(asked).asks == set()
    assert members(asked).pulled == {"helper"}
