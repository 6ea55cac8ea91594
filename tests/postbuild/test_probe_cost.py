"""Test how many compiles the probe costs, which must stay a fraction of compiling all blobs."""

from collections.abc import Mapping
from pathlib import Path

from support.counting import CountingCompiler
from support.link_contexts import link_context
from support.probe_bench import NO_CACHE

from lazyck.postbuild.eager import HostUnits, compile_eagerly
from lazyck.postbuild.probe.probe import ProbeResult, probe
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains.command import CompileCommand, Invocation

BOX = '#include "box.h"\ntemplate struct Box<{i}>;\n'
BOX_H = "#pragma once\ntemplate <int N> struct Box { int* all[N + 1]; int get() { return N; } };\n"


def blobs(at: Path, compiler: CountingCompiler, texts: Mapping[str, str], *flags: str) -> list[CompileCommand]:
    made = []
    for name, text in texts.items():
        source = str(at / f"{name}.cpp")
        Path(source).write_text(text)
        argv = (str(compiler.path), *flags, "-c", source, "-o", f"{source}.o")
        made.append(CompileCommand(Invocation("c++", "host", str(at), argv, 1, ()), source, f"{source}.o"))
    return made


def in_doubt(found: ProbeResult) -> list[str]:
    return [p.blob.stem for p in found.probed if p.compiled]


def test_a_blob_in_doubt_is_compiled_once_and_most_of_them_are_linked_as_they_are(tmp_path: Path) -> None:
    compiler, cache = CountingCompiler(tmp_path), ProbeCache(tmp_path / "store")
    (tmp_path / "box.h").write_text(BOX_H)
    made = blobs(tmp_path, compiler, {f"b{i}": BOX.format(i=i) for i in range(72)})
    found = probe(made, tmp_path / "work", cache, jobs=2)
    assert [p.blob for p in found.probed] == made[:9]
    assert next(iter(found.eager.values())) == Reason(
        ReasonKind.IN_DOUBT, "explicit instantiation of a class: struct Box<9>"
    )
    context = link_context(tmp_path, cache=cache)
    objects = compile_eagerly(context, found.eager, tmp_path / "eager", found.keys, HostUnits(cache, None, context.env))
    assert all(o.error is None and o.object.stat().st_size for o in objects)
    assert compiler.compiles() == 72  # as many as ahead of time
    assert probe(made, tmp_path / "again", cache, jobs=2).probed == found.probed
    assert compiler.compiles() == 72


def test_a_few_blobs_in_doubt_stay_lazy(tmp_path: Path) -> None:
    compiler = CountingCompiler(tmp_path)
    (tmp_path / "box.h").write_text(BOX_H)
    found = probe(
        blobs(tmp_path, compiler, {f"b{i}": BOX.format(i=i) for i in range(8)}), tmp_path / "work", NO_CACHE, jobs=2
    )
    assert len(found.probed) == 8


def test_what_a_command_hides_is_seen_all_the_same(tmp_path: Path) -> None:
    compiler = CountingCompiler(tmp_path)
    (tmp_path / "box.h").write_text(BOX_H)
    made = blobs(tmp_path, compiler, {"b1": BOX.format(i=1)}, "-fvisibility=hidden", "-flto")
    found = probe(made, tmp_path / "work", NO_CACHE, jobs=1)
    assert "_ZN3BoxILi1EE3getEv" in found.probed[0].symbols


def test_blobs_with_other_includes_are_probed_apart(tmp_path: Path) -> None:
    compiler = CountingCompiler(tmp_path)
    texts = {}
    for family in ("left", "right"):
        (tmp_path / f"{family}.h").write_text(f"#pragma once\nstruct Params {{ int {family}; }};\n")
        for i in range(8):
            texts[f"{family}_{i}"] = f'#include "{family}.h"\nint run_{family}_{i}(Params) {{ return {i}; }}\n'
    found = probe(blobs(tmp_path, compiler, texts), tmp_path / "work", NO_CACHE, jobs=1)
    assert len(found.probed) == 16 and in_doubt(found) == []
    assert compiler.compiles("probe") == 2


def test_blobs_at_fault_are_all_found_at_the_first_attempt(tmp_path: Path) -> None:
    compiler = CountingCompiler(tmp_path)
    texts = {f"right{i}": f"int right{i}() {{ return 1; }}\n" for i in range(40)}
    for i in range(8):
        for kind in ("int", "float"):
            texts[f"{kind}{i}"] = f"{kind} same_{i}(int) {{ return 1; }}\n"
    found = probe(blobs(tmp_path, compiler, texts), tmp_path / "work", NO_CACHE, jobs=2)
    assert len(found.probed) == 56
    assert compiler.compiles("probe") == 3  # all blobs, the blobs at fault, the others
    assert compiler.compiles() == 3


def test_a_group_that_falls_apart_is_given_up(tmp_path: Path) -> None:
    compiler = CountingCompiler(tmp_path)
    # The compiler names one blob at a time, whatever its options were.
    compiler.path.write_text(compiler.path.read_text().replace('"$@"', '"$@" -Wfatal-errors'))
    texts = {f"{kind}{i}": f"{kind} same_{i}(int) {{ return 1; }}\n" for i in range(20) for kind in ("int", "float")}
    found = probe(blobs(tmp_path, compiler, texts), tmp_path / "work", NO_CACHE, jobs=2)
    assert len(found.probed) + len(found.eager) == 40
    assert compiler.compiles("probe") == 8 + 40 // 8  # instead of 21
