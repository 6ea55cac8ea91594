"""Tests which differences the comparison sees between constructed libraries."""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from support.cuda_machine import cuda_home, needs_nvcc

from lazyck.check.blob_objects import BlobObject, Defined, read_blob_object
from lazyck.check.compare import BY_DESIGN, FAILING, Comparison, Lazy, compare
from lazyck.postbuild.objects.elf import Symbol
from lazyck.postbuild.objects.offered import Offered
from lazyck.postbuild.objects.reveal import private_name

needs_clang = pytest.mark.skipif(not shutil.which("clang++-19"), reason="no clang++-19 on PATH")


def export(name: str, version: str = "", *, place: Any = None, **other: Any) -> tuple[str, Symbol]:
    """Return the name with its version, and the symbol."""
    section, value = place or (1, crc32(name.encode()))
    return name + version, Symbol(name, "GLOBAL", "FUNC", section, value, 8)._replace(**other)


def library(*exports: tuple[str, Symbol], names: Iterable[str] = (), undefined: Iterable[str] = ()) -> Offered:
    return Offered(
        exports=dict(exports),
        names=frozenset({e.name for _, e in exports} | set(names)),
        undefined=frozenset(undefined),
        taken=frozenset(),
        needed=("libc.so.6",),
        entries={"SONAME": "libx.so"},
        code=frozenset({"INIT_ARRAY"}),
        flags=frozenset(),
        versions=frozenset(),
    )


def defined(name: str, **other: object) -> Defined:
    plain = Defined(name, "GLOBAL", "FUNC", "default", 8, False, (1, crc32(name.encode())))
    return replace(plain, **other)  # type: ignore[arg-type]


def variable(name: str, **other: object) -> Defined:
    return defined(name, **{"type": "OBJECT", "is_state": True, "binding": "WEAK", **other})


def found(
    ahead: Offered,
    lazily: Offered,
    *blobs: BlobObject,
    stubs: Iterable[str] = (),
    tag: str = "",
    shared: bool = True,
    whole: bool = True,
    kept: Iterable[str] = (),
) -> Comparison:
    lazy = Lazy(lazily, frozenset(stubs), tag, frozenset({"e", *kept}), shared)
    return compare(ahead, lazy, blobs, whole=whole)


def kinds(comparison: Comparison) -> list[tuple[str, str, str]]:
    return [(d.kind, d.symbol, d.source) for d in comparison.differences]


F = BlobObject("/p/f.cpp", "", (defined("f"),))


def test_equal_libraries_differ_in_nothing_and_symbols_are_sorted() -> None:
    blob = BlobObject("/p/f.cpp", "", (defined("f"), defined("h", visibility="hidden"), defined("g")))
    both = library(export("f"), export("g"))
    comparison = found(both, both, blob, stubs=["f"])
    assert comparison.differences == ()
    assert comparison.symbols == {"stub": 1, "local": 1, "real": 1}


@pytest.mark.parametrize(
    ("lazily", "kind"),
    [
        (library(), "lost"),
        (library(names=["f"]), "internal"),
        (library(undefined=["f"]), "undefined"),
        (library(export("f", "@V1")), "version"),
        (library(export("f", type="NOTYPE")), "type"),
        (library(export("f", visibility="protected")), "visibility"),
        (library(export("f", binding="WEAK")), "binding"),
    ],
)
def test_a_function_that_is_offered_otherwise_is_named_with_its_blob(lazily: Offered, kind: str) -> None:
    comparison = found(library(export("f")), lazily, F)
    assert (kind, "f", "/p/f.cpp") in kinds(comparison)
    assert comparison.symbols == {"different": 1}
    assert all(d.fails for d in comparison.differences)


def test_of_data_the_size_counts_and_of_functions_not() -> None:
    data = {"type": "OBJECT", "size": 4}
    blob = BlobObject("/p/d.cpp", "data", (defined("d", **data), defined("f")))
    ahead = library(export("d", "", **data), export("f", size=100))
    comparison = found(ahead, library(export("d", type="OBJECT", size=8), export("f", size=10)), blob)
    assert kinds(comparison) == [("size", "d", "/p/d.cpp")]
    assert (comparison.differences[0].ahead, comparison.differences[0].lazily) == ("4 bytes", "8 bytes")


def test_a_second_version_of_a_symbol_counts_by_itself() -> None:
    ahead = library(export("f", "@V1"), export("f", "@@V2"))
    assert kinds(found(ahead, library(export("f", "@@V2")), F)) == [("version", "f@V1", "/p/f.cpp")]
    assert kinds(found(library(export("f", "@@V2")), ahead, F)) == [("version", "f@V1", "/p/f.cpp")]
    assert kinds(found(ahead, ahead, F)) == []


def test_what_only_the_lazy_library_exports_is_told_apart_by_whose_it_is() -> None:
    hidden = BlobObject("/p/h.cpp", "", (defined("h", visibility="hidden"), defined("f")))
    names = ("f", "h", "lazyck_drain", "_ZTVN6lazyck12CompileErrorE", "_ZNSt6vectorIiE4pushEv")
    lazily = library(*map(export, names))
    comparison = found(library(), lazily, hidden, stubs=["h", "f"])
    assert [d.kind for d in comparison.differences] == ["added", "added", "own", "own", "runtime"]
    assert [d.fails for d in comparison.differences] == [True, True, False, False, True]
    program = found(library(), lazily, hidden, stubs=["h", "f"], shared=False)
    assert [d.kind for d in program.differences] == ["program", "program", "own", "own", "program"]


def test_an_archive_s_member_that_a_blob_may_need_is_kept_by_design() -> None:
    lazily = library(export("member"), export("other"))
    blob = BlobObject("/p/m.cpp", "", (defined("member"), defined("other")))
    comparison = found(library(), lazily, blob, stubs=["member", "other"], kept={"member"})
    assert [(d.kind, d.symbol) for d in comparison.differences] == [("member-kept", "member"), ("added", "other")]


def test_a_stub_may_be_global_for_a_weak_function_and_a_function_for_an_ifunc() -> None:
    ahead = library(export("f", binding="WEAK"), export("g", type="IFUNC"))
    blob = BlobObject("/p/f.cpp", "", (defined("f", binding="WEAK"), defined("g", type="IFUNC")))
    comparison = found(ahead, library(export("f"), export("g")), blob, stubs=["f", "g"])
    assert [(d.kind, d.fails) for d in comparison.differences] == [("stub-binding", False), ("ifunc", False)]
    assert comparison.symbols == {"stub": 2}


def test_names_of_one_function_must_have_one_address() -> None:
    here = (3, 0)
    blob = BlobObject("/p/a.cpp", "", (defined("one", place=here), defined("uno", place=here)))
    ahead = library(export("one", place=(9, 4)), export("uno", place=(9, 4)))
    apart = library(export("one", place=(7, 0)), export("uno", place=(7, 16)))
    assert kinds(found(ahead, apart, blob, stubs=["one", "uno"])) == [("alias", "one uno", "/p/a.cpp")]
    assert kinds(found(ahead, ahead, blob)) == []
    chosen = replace(blob, symbols=(blob.symbols[0], replace(blob.symbols[1], type="IFUNC")))
    assert kinds(found(ahead, apart, chosen)) == []


def test_the_variants_of_a_constructor_are_no_aliases() -> None:
    names = ("_ZN1XC1Ev", "_ZN1XC2Ev")
    blob = BlobObject("/p/x.cpp", "", tuple(defined(n, place=(3, 0)) for n in names))
    lazily = library(*(export(n, place=(7, 16 * i)) for i, n in enumerate(names)))
    assert kinds(found(library(*map(export, names)), lazily, blob, stubs=names)) == []


def test_a_variable_of_a_blob_and_of_the_library_must_be_one() -> None:
    blob = BlobObject("/p/v.cpp", "", (variable("count"), variable("_ZGVcount")))
    both = library(export("count", type="OBJECT", binding="WEAK"))
    assert kinds(found(both, both, blob)) == []
    inside = library(names=["count"])
    assert kinds(found(inside, inside, blob)) == [("copies", "count", "/p/v.cpp")]
    offered = library(export(private_name("count", "tag"), type="OBJECT"), names=["count"])
    assert [kind for kind, _, _ in kinds(found(inside, offered, blob, tag="tag"))] == ["own"]


def test_what_a_lazy_blob_needs_of_its_library_must_be_in_its_reach() -> None:
    blob = BlobObject("/p/a.cpp", "", (defined("f"),), needs=frozenset({"_Z6hiddenv", "_Z5shownv", "other", "atexit"}))
    ahead = library(export("f"), export("_Z5shownv"), names=["_Z6hiddenv", "atexit"], undefined=["other"])
    lazily = library(export("f"), export("_Z5shownv"), names=["_Z6hiddenv"])
    assert kinds(found(ahead, lazily, blob, stubs=["f"])) == [("unreachable", "_Z6hiddenv", "/p/a.cpp")]
    assert kinds(found(ahead, lazily, replace(blob, eager="it is"), stubs=["f"])) == []
    offered = library(export("f"), export("_Z5shownv"), export(private_name("_Z6hiddenv", "tag")), names=["_Z6hiddenv"])
    assert [kind for kind, _, _ in kinds(found(ahead, offered, blob, stubs=["f"], tag="tag"))] == ["own"]


def test_a_variable_that_blobs_alone_have_is_one_for_them() -> None:
    one, two = (BlobObject(f"/p/{n}.cpp", "", (variable("count"),)) for n in ("one", "two"))
    assert kinds(found(library(), library(), one, two)) == []


def test_a_library_that_keeps_its_variable_to_itself_has_another_than_its_blobs() -> None:
    blob = BlobObject("/p/one.cpp", "", (variable("count"),))
    inside = library(names=["count"])
    assert kinds(found(inside, inside, replace(blob, eager="defines data"))) == []
    constant = BlobObject("/p/c.cpp", "", (variable("count", is_state=False),))
    assert kinds(found(inside, inside, constant)) == []


def test_a_stub_that_no_blob_stands_behind_is_hollow() -> None:
    both = library(export("f"), export("gone"))
    assert kinds(found(both, both, F, stubs=["f", "gone"])) == [("hollow", "gone", "")]
    unread = BlobObject("/p/lto.cpp", "", (), is_readable=False)
    assert kinds(found(both, both, F, unread, stubs=["f", "gone"])) == []


def test_what_the_library_had_for_itself_must_not_be_asked_of_others() -> None:
    ahead = library(export("f"), names=["helper"])
    lazily = library(export("f"), undefined=["helper", "printf"])
    assert kinds(found(ahead, lazily, F)) == [("undefined", "helper", "")]


def test_a_version_that_a_lazy_blob_gives_itself_is_a_difference_and_of_an_eager_one_none() -> None:
    blob = BlobObject("/p/s.cpp", "", (defined("f@V1"),))
    assert kinds(found(library(), library(), blob)) == [("versioned", "f@V1", "/p/s.cpp")]
    assert kinds(found(library(), library(), replace(blob, eager="symver"))) == []


def test_a_lazy_blob_with_start_up_code_is_a_difference_and_an_eager_one_none() -> None:
    blob = replace(F, start_up=frozenset({"_ZN8RegistryC1Ev", "f"}))
    same = library(export("f"))
    assert kinds(found(same, same, blob, stubs=["f"])) == [("start-up", "_ZN8RegistryC1Ev f", "/p/f.cpp")]
    assert kinds(found(same, same, replace(blob, eager="defines data"))) == []


@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++-19", marks=needs_clang)])
@pytest.mark.parametrize("flags", ["-O0", "-O2 -fno-inline", "-O3"])
def test_which_start_up_code_is_seen(tmp_path: Path, compiler: str, flags: str) -> None:
    (tmp_path / "reg.h").write_text(
        "#include <string>\nstatic const std::string header = std::string(40, 'x');\nint of_header();\n"
        "template <class T> struct Registered { static int at; };\n"
        "template <class T> int Registered<T>::at = of_header();\n"
    )
    head = '#include "reg.h"\n#include <iostream>\nstruct Registrar { Registrar(int (*)()); ~Registrar(); };\n'
    own = "int outside();\nint f() { return outside(); }\n"
    texts = {
        "registers": f"{head}{own}static Registrar here(f);\n",
        "within": f"{head}{own}namespace app {{ namespace {{ int begin = f(); int begin_2 = begin; }} }}\n",
        "other": f"{head}{own}int g() {{ int begin = 3; return begin; }}\n",
        "constructor": f"{head}{own}__attribute__((constructor)) static void at_load() {{ f(); }}\n",
        "plain": f"{head}{own}static int private_state = 3;\nint g() {{ std::cout << private_state; return f(); }}\n",
        "instance": f"{head}{own}int g() {{ return Registered<int>::at; }}\n",
        "program": f"{head}{own}int main() {{ static Registrar inside(f); return f(); }}\n",
    }
    seen = {}
    for name, text in texts.items():
        source, made = tmp_path / f"{name}.cpp", tmp_path / f"{name}.o"
        source.write_text(text)
        subprocess.run([compiler, *flags.split(), "-fPIC", "-c", str(source), "-o", str(made)], check=True)
        seen[name] = read_blob_object(made, str(source), "").start_up
    assert {name for name, what in seen.items() if what} == {"registers", "within", "constructor", "instance"}, seen
    assert "_ZN9RegistrarC1EPFivE" in seen["registers"]


@pytest.mark.cuda
@needs_nvcc
def test_that_a_kernel_is_registered_is_no_start_up_code_of_a_source(tmp_path: Path) -> None:
    kernel = "__global__ void scale(float *x) { *x *= 2; }\nvoid run(float *x) { scale<<<1, 1>>>(x); }\n"
    runs = "int outside(void (*)(float *));\nstatic int here = outside(run);\n"
    for text, expected in ((kernel, set()), (kernel + runs, {"_Z3runPf", "_Z7outsidePFvPfE"})):
        source, made = tmp_path / "k.cu", tmp_path / "k.o"
        source.write_text(text)
        nvcc = cuda_home() / "bin" / "nvcc"
        subprocess.run([nvcc, "-O3", "-arch=sm_90", "-Xcompiler=-fPIC", "-c", source, "-o", made], check=True)
        assert read_blob_object(made, str(source), "").start_up == expected


def test_what_every_file_that_uses_it_defines_anew_may_be_missing() -> None:
    blob = BlobObject("/p/v.cpp", "", (defined("f", binding="WEAK"), variable("count")))
    ahead = library(export("f", binding="WEAK"), export("count", type="OBJECT", binding="WEAK"))
    lazy = Lazy(library(), frozenset())
    comparison = compare(ahead, lazy, [blob], whole=True, vague=frozenset({"f", "count"}))
    assert [(d.kind, d.fails) for d in comparison.differences] == [("vague", False), ("vague-state", False)]


@pytest.mark.parametrize(("taken", "kind"), [(["f"], "vague"), ([], "undefined")])
def test_an_inline_function_may_come_from_a_needed_library_that_has_it(taken: list[str], kind: str) -> None:
    ahead = library(export("f", binding="WEAK"))
    lazily = replace(library(undefined=["f"]), taken=frozenset(taken))
    blob = BlobObject("/p/f.cpp", "", (defined("f", binding="WEAK", is_merged=True),))
    comparison = compare(ahead, Lazy(lazily, frozenset()), [blob], whole=True, vague=frozenset("f"))
    assert [(d.kind, d.symbol) for d in comparison.differences] == [(kind, "f")]


def test_a_kernels_handle_that_only_its_blob_uses_may_stay_there() -> None:
    blob = BlobObject("/p/k.hip", "", (defined("k", type="OBJECT"),), frozenset({"k"}))
    comparison = found(library(export("k", type="OBJECT")), library(), blob)
    assert [(d.kind, d.fails) for d in comparison.differences] == [("handle", False)]


def test_the_dynamic_section_is_compared() -> None:
    ahead = library(export("f"))
    ahead = replace(
        ahead, needed=("a", "b", "c"), entries={"RUNPATH": "$ORIGIN"}, code=frozenset({"INIT_ARRAY", "FINI"})
    )
    lazily = replace(
        ahead,
        needed=("c", "a", "d", "e", "libstdc++.so.6"),
        entries={"RUNPATH": "/x", "SONAME": "libx.so"},
        code=frozenset({"INIT_ARRAY"}),
        flags=frozenset({"BIND_NOW"}),
        versions=frozenset({"V1"}),
    )
    assert [(d.kind, d.symbol) for d in found(ahead, lazily, F).differences] == [
        ("needed-lost", "b"),
        ("needed-added", "d"),
        ("needed-kept", "e"),
        ("needed-runtime", "libstdc++.so.6"),
        ("needed-order", "DT_NEEDED"),
        ("entry", "DT_RUNPATH"),
        ("entry", "DT_SONAME"),
        ("code", "DT_FINI"),
        ("flag", "BIND_NOW"),
        ("version-name", "V1"),
    ]


def test_a_sample_says_nothing_of_what_it_did_not_compile() -> None:
    ahead, lazily = library(export("f"), export("other")), library(export("g"), export("h", visibility="protected"))
    assert kinds(found(ahead, lazily, F, stubs=["g"], whole=False)) == [("lost", "f", "/p/f.cpp")]


def test_every_kind_is_told_in_words() -> None:
    assert all((*FAILING.values(), *BY_DESIGN.values()))
    assert not FAILING.keys() & BY_DESIGN.keys()
    assert set(BY_DESIGN) == {
        "own", "program", "needed-kept", "member-kept", "needed-runtime", "device", "handle", "stub-binding",
        "ifunc", "vague", "vague-state",
    }  # fmt: skip
