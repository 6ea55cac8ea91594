"""Tests what a link must do besides so that lazy blobs find what they use, with real libraries.
What each blob uses is said by the test."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from support import HERE
from support.link_contexts import NO_INPUTS, link_context

from lazyck.postbuild.link import reach
from lazyck.postbuild.link.reach import Demands, Reach
from lazyck.postbuild.objects.cudart import CudaRuntime
from lazyck.postbuild.objects.elf import WANTED_HERE
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.objects.symbols import SymbolNames
from lazyck.postbuild.ownership import Ownership
from lazyck.postbuild.probe.group import Group, Probed
from lazyck.postbuild.probe.probe import ProbeResult
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.postbuild.settle import Settled
from lazyck.toolchains import HOST
from lazyck.toolchains.command import CompileCommand, Invocation


def command(name: str, toolchain: str = "host") -> CompileCommand:
    return CompileCommand(Invocation("c++", toolchain, "/w", ("c++",), 1, ()), f"/w/{name}.cpp", f"/w/{name}.o")


A, B = command("a"), command("b")
NONE, NOTHING = SymbolNames(), Demands()


def probed(blob: CompileCommand, symbols: str, needs: str | None = "", **more: Any) -> Probed:
    wanted = None if needs is None else frozenset(needs.split())
    return Probed(tuple(symbols.split()), blob=blob, headers=frozenset(), needs=wanted, **more)


def names(text: str, strong: str | None = None, state: str = "") -> SymbolNames:
    defined = frozenset(text.split())
    return SymbolNames(
        defined, frozenset(), defined if strong is None else frozenset(strong.split()), frozenset(state.split())
    )


@dataclass
class Text:
    """What the texts of blobs could use: all of them may use anything."""

    blobs: Mapping[CompileCommand, Group] = field(default_factory=dict)
    declared_instances: frozenset[str] = frozenset()
    is_large: bool = False
    held: bool = False

    def candidates(self, wanted: Iterable[str], own: object = None) -> dict[CompileCommand, Group]:
        return dict(self.blobs)

    def are_large(self) -> bool:
        return self.is_large

    def hold(self, offered: object) -> bool:
        return self.held


@dataclass
class Link:
    """A link that made a library with the functions of `text`."""

    where: Path
    lazy: Sequence[Probed]
    text: str = ""
    libraries: tuple[tuple[int, str], ...] = ()
    members: SymbolNames = NONE
    references: Text = field(default_factory=Text)
    said: list[str] = field(default_factory=list)
    words: tuple[str, ...] = ()

    def demands(
        self, real: SymbolNames = NONE, before: Demands = NOTHING, runtime: CudaRuntime | None = None
    ) -> Demands:
        library = shared(self.where, "x", self.text, *self.words)
        blobs = tuple(p.blob for p in self.lazy)
        inputs = replace(NO_INPUTS, libraries=self.libraries, blobs=blobs)
        lazy = {p.blob: p.symbols for p in self.lazy}
        settled = Settled(Ownership(lazy, (), {}, ()), tuple(self.lazy), ())
        keys = {p.blob: f"key of {p.blob.source}" for p in self.lazy}
        result = ProbeResult(tuple(self.lazy), {}, 0, keys=keys)
        context = link_context(self.where, inputs=inputs, env={}, say=self.said.append)
        context.work.mkdir(exist_ok=True)
        found = Reach(context, result, cast(Any, self.references), self.members)
        return found.demands(library, settled, real, before, runtime)


def shared(where: Path, name: str, text: str, *more: str) -> Path:
    source, made = where / f"{name}.cpp", where / f"lib{name}.so"
    source.write_text(text)
    words: list[str | Path] = [
        HERE.cxx,
        "-shared",
        "-fPIC",
        "-nostdlib",
        source,
        "-o",
        made,
        f"-Wl,-soname,lib{name}.so",
        *more,
    ]
    subprocess.run(words, check=True)
    return made


def test_nothing_is_asked_for_if_nothing_is_out_of_reach(tmp_path: Path) -> None:
    link = Link(tmp_path, [probed(A, "_Z1av", "_Z5shownv")], "int shown() { return 1; } int a() { return 2; }")
    assert link.demands(names("_Z5shownv")) == Demands()


def test_a_hidden_symbol_that_a_blob_uses_is_revealed_and_if_that_fails_the_blob_is_eager(tmp_path: Path) -> None:
    link = Link(tmp_path, [probed(A, "_Z1av", "_Z6hiddenv"), probed(B, "_Z1bv")], "int a() { return 1; } int b();")
    found = link.demands(names("_Z6hiddenv _Z6unusedv"))
    assert found.revealed == found.renamed == {"_Z6hiddenv"}
    assert found.eager == {}
    again = link.demands(names("_Z6hiddenv"), found)
    assert again.eager == {A: Reason(ReasonKind.NOT_EXPORTED, "_Z6hiddenv")}
    assert again.unnamed == {"_Z6hiddenv"}
    assert again.renamed == frozenset()


def test_what_a_blob_wants_within_its_library_makes_it_eager_at_once(tmp_path: Path) -> None:
    link = Link(tmp_path, [probed(A, "_Z1av", f"_Z6hiddenv _Z6hiddenv{WANTED_HERE}")], "int a() { return 1; }")
    assert link.demands(names("_Z6hiddenv")).eager == {A: Reason(ReasonKind.NOT_EXPORTED, "_Z6hiddenv")}


def test_a_member_of_an_archive_is_pulled_in_and_if_that_fails_the_blob_is_eager(tmp_path: Path) -> None:
    members = names("_Z6memberv _Z5otherv")
    link = Link(tmp_path, [probed(A, "_Z1av", "_Z6memberv")], "int a() { return 1; }", members=members)
    found = link.demands()
    assert found.pulled == found.revealed == {"_Z6memberv"}
    assert found.eager == {}
    assert link.demands(before=found).eager == {A: Reason(ReasonKind.NOT_EXPORTED, "_Z6memberv")}
    there = replace(link, text="int a() { return 1; } int member() { return 2; }")
    assert there.demands().pulled == frozenset()


def test_names_of_the_standard_library_and_of_unnamed_namespaces_concern_no_blob(tmp_path: Path) -> None:
    text = "_ZNSt6vectorIiE1fEv _ZN12_GLOBAL__N_11fEv"
    link = Link(tmp_path, [probed(A, "_Z1av", text)], "int a() { return 1; }", members=names(text))
    assert link.demands(names(text)) == Demands()


def test_weak_names_of_objects_are_hidden_from_blobs_only_if_these_declare_their_template_extern(
    tmp_path: Path,
) -> None:
    instance = "_Z3getIiET_v"
    link = Link(tmp_path, [probed(A, "_Z1av", instance)], "int a() { return 1; }")
    assert link.demands(names(instance, strong="")).revealed == frozenset()
    link.references.declared_instances = frozenset({"get"})
    assert link.demands(names(instance, strong="")).revealed == {instance}


def test_a_hidden_symbol_of_a_blob_that_another_uses_makes_its_blob_eager(tmp_path: Path) -> None:
    one = probed(A, "_Z1av", unreachable=("_Z3ownv",))
    link = Link(tmp_path, [one, probed(B, "_Z1bv", "_Z3ownv")], "int a() { return 1; } int b() { return 2; }")
    assert link.demands().eager == {A: Reason(ReasonKind.HIDDEN, "_Z3ownv")}
    assert link.demands(names("_Z3ownv")).eager == {}


def test_a_kernel_s_handle_that_another_blob_uses_makes_its_blob_eager(tmp_path: Path) -> None:
    one = probed(A, "_Z1av", kernels=("_Z6kernelv", "_Z4weakv"), weak=frozenset({"_Z4weakv"}))
    text = "int a() { return 1; } int b() { return 2; }"
    link = Link(tmp_path, [one, probed(B, "_Z1bv", "_Z6kernelv _Z4weakv")], text)
    found = link.demands().eager
    assert list(found) == [A]
    assert found[A] == Reason(ReasonKind.KERNEL_USED, "kernel, in b.cpp")


def test_a_weak_instance_of_a_blob_gets_a_stub_where_another_blob_uses_it(tmp_path: Path) -> None:
    member = "_ZN3BoxIiE3getEv"
    how = "has an explicit instantiation of a class: struct ns::Box<int>"
    one = probed(A, "_Z1av", compiled=how, weak=frozenset({member, "_ZN5OtherIiE3getEv"}))
    text = "int a() { return 1; } int b() { return 2; }"
    link = Link(tmp_path, [one, probed(B, "_Z1bv", f"{member} _ZN5OtherIiE3getEv")], text)
    assert link.demands().needed == {member}
    assert reach._instances(replace(one, compiled="is odd")) == set()


def test_private_functions_of_blobs_must_have_their_private_names(tmp_path: Path) -> None:
    one = probed(A, "_Z1av", private=frozenset({"_Z1av", "_Z4gonev"}))
    link = Link(tmp_path, [one, probed(B, "_Z1bv", "_Z1av")], "int a() { return 1; } int b() { return 2; }")
    assert link.demands().revealed == {"_Z1av"}
    alias = f'__attribute__((alias("_Z1av"))) int other() asm("{private_name("_Z1av", "libx.so")}");'
    link.text = f"int a() {{ return 1; }} int b() {{ return 2; }} extern {alias}"
    assert link.demands().revealed == frozenset()


def test_a_dropped_library_is_kept_if_a_blob_uses_it(tmp_path: Path) -> None:
    library = shared(tmp_path, "y", "int there() { return 1; }")
    text = "int a() { return 1; }"
    used = Link(tmp_path, [probed(A, "_Z1av", "_Z5therev")], text, ((3, str(library)),))
    assert used.demands().kept == (3,)
    assert used.demands(before=Demands(kept=(3,))).kept == (3,)
    unused = replace(used, lazy=[probed(A, "_Z1av", "_Z5otherv")])
    assert unused.demands().kept == ()
    linked = replace(used, text="int there(); int a() { return there(); }", words=(f"-L{tmp_path}", "-ly"))
    assert linked.demands().kept == ()
    provided = replace(used, text=f"{text} int there() {{ return 2; }}")
    assert provided.demands().kept == ()


def test_where_finding_out_costs_too_much_the_text_decides(tmp_path: Path) -> None:
    library = shared(tmp_path, "y", "int there() { return 1; }")
    unknown = Link(tmp_path, [probed(A, "_Z1av", None)], "int a() { return 1; }", ((0, str(library)),))
    unknown.references.is_large = True
    assert unknown.demands().kept == ()
    unknown.references.held = True
    assert unknown.demands().kept == (0,)


def test_blobs_whose_needs_are_unknown_are_compiled_once_for_all_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def needs_of(_group: Group, source: str, _output: Path) -> frozenset[str]:
        compiled.append(source)
        return frozenset({"_Z6hiddenv"})

    monkeypatch.setattr(reach, "needs_of", needs_of)
    group = Group(HOST, ("c++",), (), "/w", {}, ".cpp", {}, key="of the group")
    link = Link(tmp_path, [probed(A, "_Z1av", None), probed(B, "_Z1bv")], "int a() { return 1; }")
    link.references.blobs = {A: group}
    assert link.demands(names("_Z6hiddenv")).revealed == {"_Z6hiddenv"}
    assert compiled == ["/w/a.cpp"]
    assert link.said == ["compiling 1 blob for the host, to learn what the library must export"]
    assert link.demands(names("_Z6hiddenv")).revealed == {"_Z6hiddenv"}
    assert compiled == ["/w/a.cpp"], "the store knows"


def test_where_the_wrappers_of_a_runtime_are_out_of_reach_blobs_are_whole_and_may_be_eager(tmp_path: Path) -> None:
    cuda = command("k", "cuda")
    link = Link(tmp_path, [probed(cuda, "_Z1kv"), probed(A, "_Z1av")], "int a() { return 1; } int k() { return 2; }")
    wrapped = CudaRuntime(("__wrap___cudaRegisterFatBinary",), "table_of_it", HERE.name)
    assert link.demands(runtime=wrapped) == Demands(whole=True)
    plain = CudaRuntime(("cudaLaunchKernel",), "table_of_it", HERE.name)
    found = link.demands(runtime=plain)
    assert (found.whole, found.eager) == (True, {cuda: Reason(ReasonKind.CUDART_HIDDEN)})
    link.text += ' extern "C" int table_of_it; int table_of_it = 1;'
    assert link.demands(runtime=plain) == Demands()
    link.text += ' extern "C" int __cudaRegisterFatBinary(); int uses() { return __cudaRegisterFatBinary(); }'
    assert link.demands(runtime=wrapped) == Demands(whole=True), "no library has the runtime"


@pytest.mark.parametrize(
    ("symbol", "binding", "is_asked_for"),
    [("_Z1fv", "GLOBAL", True), ("_Z1fv", "WEAK", False), ("f", "WEAK", True), ("_Z1fIiEvv", "WEAK", True)],
)
def test_which_symbols_of_a_library_its_users_leave_undefined(symbol: str, binding: str, is_asked_for: bool) -> None:
    assert reach._is_asked_for(symbol, binding) is is_asked_for
