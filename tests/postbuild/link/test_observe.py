"""Tests what a linked library shows of itself, with real libraries, and how version scripts are
opened."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import HERE
from support.link_contexts import NO_INPUTS, link_context

from lazyck.postbuild.facts import Demands, Plan, Settled
from lazyck.postbuild.link import version_script
from lazyck.postbuild.link.observe import Observed, observe
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.cudart import CudaRuntime
from lazyck.postbuild.objects.elf import SymbolNames
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.ownership import Ownership
from lazyck.postbuild.probe.group import Probed
from lazyck.toolchains.command import CompileCommand, Invocation

A = CompileCommand(Invocation("c++", "host", "/w", ("c++",), 1, ()), "/w/a.cpp", "/w/a.o")


def shared(where: Path, name: str, text: str, *more: str) -> Path:
    source, made = where / f"{name}.cpp", where / f"lib{name}.so"
    source.write_text(text)
    words = [HERE.cxx, "-shared", "-fPIC", "-nostdlib", str(source), "-o", str(made), f"-Wl,-soname,lib{name}.so"]
    subprocess.run([*words, *more], check=True)
    return made


def names(defined: str, hidden: str = "") -> SymbolNames:
    return SymbolNames(frozenset(defined.split()), hidden=frozenset(hidden.split()))


def seen(
    where: Path,
    text: str,
    *words: str,
    lazy: tuple[Probed, ...] = (),
    libraries: tuple[tuple[int, str], ...] = (),
    runtime: CudaRuntime | None = None,
    **plan: Any,
) -> Observed:
    """Return what is seen of a library of `text`, which is linked with `words`."""
    library = shared(where, "x", text, *words)
    context = link_context(where, inputs=replace(NO_INPUTS, libraries=libraries), env={})
    settled = Settled(Ownership({p.blob: p.symbols for p in lazy}, (), {}), lazy, ())
    made = Plan(settled=settled, runtime=runtime, **plan)
    return observe(context, library, settled, made, elf.read_shared(library))


def probed(symbols: str, private: str = "") -> Probed:
    return Probed(tuple(symbols.split()), blob=A, headers=frozenset(), private=frozenset(private.split()))


def test_what_the_link_hides_is_told_from_what_objects_hide(tmp_path: Path) -> None:
    text = 'int shown() { return 1; } int local() { return 2; } extern "C" int stub() { return 3; }'
    (tmp_path / "map").write_text("{ global: _Z5shownv; local: *; };\n")
    real = names("_Z5shownv _Z5localv _Z6hiddenv _ZN12_GLOBAL__N_11fEv", "_Z6hiddenv")
    found = seen(tmp_path, text, f"-Wl,--version-script={tmp_path}/map", lazy=(probed("stub"),), real=real)
    assert found.unexported == {"_Z5localv", "stub"}
    assert found.lost == set()
    taken = names("_Z6memberv _Z5quietv", "_Z5quietv")
    assert seen(tmp_path, text, lazy=(probed("stub"),), real=real, taken=taken).unexported == {"_Z6memberv"}


def test_private_names_that_are_not_there_are_lost(tmp_path: Path) -> None:
    tag = link_context(tmp_path).tag
    offered = {s: private_name(s, tag) for s in ("_Z1av", "_Z1bv")}
    text = f'int a() {{ return 1; }} extern __attribute__((alias("_Z1av"))) int other() asm("{offered["_Z1av"]}");'
    plan: Any = {"lazy": (probed("stub gone", "stub gone"),), "demands": Demands(offered=offered)}
    assert seen(tmp_path, text, **plan).lost == {"_Z1bv", "stub", "gone"}
    text += f'int stub() asm("{private_name("stub", tag)}"); int stub() {{ return 2; }}'
    assert seen(tmp_path, text, **plan).lost == {"_Z1bv", "gone"}


def test_a_library_that_the_linker_dropped_is_told_with_what_it_alone_has(tmp_path: Path) -> None:
    text = "int there() { return 1; } inline int own() { return 2; } int (*user)() = own; int both() { return 3; }"
    other = str(shared(tmp_path, "y", text))
    found = seen(tmp_path, "int both() { return 1; }", libraries=((3, other),))
    assert found.dropped == {other: frozenset({"_Z5therev", "user"})}
    linked = seen(tmp_path, "int there(); int a() { return there(); }", f"-L{tmp_path}", "-ly", libraries=((3, other),))
    assert linked.dropped == {}


def test_a_runtime_that_no_library_has_is_told(tmp_path: Path) -> None:
    runtime = CudaRuntime(("__wrap___cudaRegisterFatBinary",), "table", HERE.name)
    assert seen(tmp_path, "int a() { return 1; }", runtime=runtime).without_runtime == set()
    uses = 'extern "C" int __cudaRegisterFatBinary(); int uses() { return __cudaRegisterFatBinary(); }'
    assert seen(tmp_path, uses, runtime=runtime).without_runtime == {"__cudaRegisterFatBinary"}


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("{ global: f; local: *; };", "{ global: p*; f; local: *; };"),
        ("{ local: *; };", "{ global: p*; local: *; };"),
        ("V1 { f; g; }; V2 { h; } V1;", "V1 { p*; f; g; }; V2 { h; } V1;"),
        ("# {\n/* { */ V1\n{\nglobal :\n f; };", "# {\n/* { */ V1\n{\nglobal : p*;\n f; };"),
        ('{ extern "C++" { "f(int)"; }; local: *; };', '{ p*; extern "C++" { "f(int)"; }; local: *; };'),
        ("{};", "{ p*;};"),
        ("no script", "no script"),
    ],
)
def test_a_version_script_lets_names_pass(tmp_path: Path, text: str, opened: str) -> None:
    assert version_script.opened(text, "p*") == opened


@pytest.mark.parametrize("linker", ["bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize(
    "text", ["{ global: f; local: *; };", "V1 { local: *; };", "{ f; };", "V1 { f; }; V2 { g; } V1;"]
)
def test_each_linker_takes_an_opened_script(tmp_path: Path, linker: str, text: str) -> None:
    (tmp_path / "map").write_text(version_script.opened(text, "private.*"))
    names = ["f", "g", "private.1"]
    code = "".join(f'int f{i}() asm("{name}"); int f{i}() {{ return {i}; }}\n' for i, name in enumerate(names))
    made = shared(tmp_path, "x", code, f"-fuse-ld={linker}", f"-Wl,--version-script={tmp_path}/map")
    shown = subprocess.run(["nm", "-D", "--defined-only", made], check=True, capture_output=True, text=True).stdout
    assert "private.1" in shown
