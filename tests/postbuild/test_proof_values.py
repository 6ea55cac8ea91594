"""Tests what a proof makes of the files that a preprocessor read or did not find: which of them the
bundle lacks, and what no bundle can hold."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.link_contexts import link_context

from lazyck import abi
from lazyck.formats.manifest import BlobRecord, Recipe
from lazyck.postbuild import proof
from lazyck.postbuild.bundle import FileDigests
from lazyck.postbuild.bundle_paths import BundlePaths
from lazyck.postbuild.probe.group import Group, Probed
from lazyck.postbuild.probe_cache import ProbeCache
from lazyck.postbuild.proof import BundleProof, Case, Finding
from lazyck.postbuild.reasons import Reason, ReasonKind
from lazyck.toolchains import HOST, LLVM
from lazyck.toolchains.command import CompileCommand, Invocation

WORK = "/work/of"


def make_case(at: Path, texts: Mapping[str, str], held: Sequence[str], options: Sequence[str] = ()) -> Case:
    """Make the build's files below `at`/build, and the case whose bundle holds some of them."""
    build = at / "build"
    for name, text in texts.items():
        (build / name).parent.mkdir(parents=True, exist_ok=True)
        (build / name).write_text(text)
    source = str(build / held[0])
    call = Invocation("c++", "host", str(build), ("c++", *options, "-c", source), 1, ())
    command = CompileCommand(call, source, f"{source}.o")
    group = Group(HOST, ("c++", *options), (), str(build), {}, ".cpp", {source: (command,)})
    where = BundlePaths("", {}, "libx", str(build))
    places = {where.in_bundle(str(build / name)): str(build / name) for name in held}
    words = ("c++", *options, "-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT)
    recipe = Recipe("host", "gcc12", "", (), words, (), ())
    record = BlobRecord("blob", where.in_bundle(source), 0, "ab", ("f",))
    blobs = ((Probed(("f",), blob=command, headers=frozenset()), record),)
    return Case(group, blobs, recipe, where, places, at / "bundle", lambda *_: ())


def judged(case: Case, *read: str) -> tuple[set[str], Reason | None]:
    found, reason = proof._judge(case, set(read), WORK)
    build = case.group.cwd + os.sep
    return {path.removeprefix(build) for path in found}, reason


# -- files that the preprocessor read --------------------------------------------------------------


def test_what_the_bundle_holds_and_what_is_of_the_system_is_complete(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": "", "a.h": ""}, ["a.cpp", "a.h"])
    assert judged(case, f"{case.tree}a.cpp", f"{case.tree}a.h", "/usr/include/stdio.h") == (set(), None)


def test_a_file_of_the_tree_that_the_bundle_lacks_is_added_if_the_build_has_it(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": "", "inc/b.h": ""}, ["a.cpp"])
    assert judged(case, f"{case.tree}inc/b.h", f"{case.tree}inc/../a.cpp") == ({"inc/b.h"}, None)
    assert judged(case, f"{case.tree}inc/gone.h") == (set(), None)


def test_a_name_that_was_not_found_is_looked_for_where_the_build_looks(tmp_path: Path) -> None:
    texts = {"a.cpp": "", "src/b.h": "", "inc/b.h": "", "else/b.h": ""}
    case = make_case(tmp_path, texts, ["a.cpp", "src/b.h"], ["-I", "inc"])
    assert judged(case, f"{WORK}/b.h") == ({"inc/b.h"}, None)
    assert judged(case, f"{WORK}/inc/b.h") == ({"inc/b.h"}, None)  # beside a.cpp
    # What only the bundle's own files answer to is not lacking: no bundle can serve it.
    assert judged(case, f"{WORK}/src/b.h") == (set(), Reason(ReasonKind.NOT_IN_BUNDLE, "src/b.h"))
    assert judged(case, f"{WORK}/gone.h") == (set(), Reason(ReasonKind.NOT_IN_BUNDLE, "gone.h"))
    assert judged(case, f"{WORK}/inc/b.h", f"{WORK}/zone.h")[0] == {"inc/b.h"}


@pytest.mark.parametrize(
    ("option", "is_of_the_build"),
    [("-I{}", True), ("-isystem {}", True), ('-DCONFIG="{}/c.h"', True), ("-O2", False), ("-DCONFIG={}x/c.h", False)],
)
def test_a_file_outside_of_the_tree_counts_if_an_option_leads_there(
    tmp_path: Path, option: str, is_of_the_build: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.h").write_text("")
    case = make_case(tmp_path, {"a.cpp": ""}, ["a.cpp"], option.format(outside).split())
    found, reason = proof._judge(case, {str(outside / "c.h")}, WORK)
    assert (found, reason) == ({str(outside / "c.h")} if is_of_the_build else set(), None)
    found, reason = proof._judge(case, {str(outside / "gone.h")}, WORK)
    is_below = is_of_the_build and "c.h" not in option
    assert (found, reason) == (set(), Reason(ReasonKind.ONLY_HERE, str(outside / "gone.h")) if is_below else None)


def test_a_file_that_the_bundle_holds_and_that_was_read_from_the_build_binds_the_blob(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": "", "a.h": ""}, ["a.cpp", "a.h"], [f"-I{tmp_path}/build"])
    read = f"{tmp_path}/build/a.h"
    assert judged(case, read) == (set(), Reason(ReasonKind.ONLY_HERE, read))


def test_an_absolute_include_and_a_variable_lead_to_files_of_the_build(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c.h").write_text("")
    case = make_case(tmp_path, {"a.cpp": f'#include "{outside}/c.h"\n'}, ["a.cpp"])
    assert proof._judge(case, {str(outside / "c.h")}, WORK) == ({str(outside / "c.h")}, None)
    plain = make_case(tmp_path / "second", {"a.cpp": ""}, ["a.cpp"])
    assert proof._judge(plain, {str(outside / "c.h")}, WORK) == (set(), None)
    by_variable = replace(plain, recipe=replace(plain.recipe, env=(("CPATH", f"/x:{outside}"),)))
    assert proof._judge(by_variable, {str(outside / "c.h")}, WORK) == ({str(outside / "c.h")}, None)
    other = replace(plain, recipe=replace(plain.recipe, env=(("OTHER", f"/x:{outside}"),)))
    assert proof._judge(other, {str(outside / "c.h")}, WORK) == (set(), None)


# -- files that are lacking before anything is preprocessed ----------------------------------------


def foreseen(case: Case) -> set[str]:
    return {os.path.relpath(path, case.group.cwd) for path in proof._foreseen(case)}


def test_a_header_that_is_only_asked_for_is_foreseen_with_what_it_leads_to(tmp_path: Path) -> None:
    texts = {
        "a.cpp": '#if __has_include("maybe.h")\n#endif\n',
        "maybe.h": "#if __has_include( <next.h> )\n#endif\n",
        "next.h": "",
        "other.h": "",
    }
    assert foreseen(make_case(tmp_path, texts, ["a.cpp"])) == {"maybe.h", "next.h"}
    assert foreseen(make_case(tmp_path, texts, ["a.cpp", "maybe.h", "next.h"])) == set()


def test_a_header_that_equals_one_that_was_read_is_foreseen_if_no_file_has_its_name(tmp_path: Path) -> None:
    once = "#pragma once\nint x;\n"
    texts = {"a.cpp": '#include "one.h"\n#include "sub/two.h"\n', "one.h": once, "sub/two.h": once}
    assert foreseen(make_case(tmp_path, texts, ["a.cpp", "one.h"])) == {"sub/two.h"}
    assert foreseen(make_case(tmp_path, texts, ["a.cpp", "one.h", "sub/two.h"])) == set()
    texts["sub/two.h"] = once + "// differs\n"
    assert foreseen(make_case(tmp_path, texts, ["a.cpp", "one.h"])) == set()
    texts |= {"a.cpp": '#include "one.h"\n#include "../build/sub/one.h"\n', "sub/one.h": once}
    assert foreseen(make_case(tmp_path, texts, ["a.cpp", "one.h"])) == {"sub/one.h"}


# -- findings from one link to the next ------------------------------------------------------------


def test_a_case_is_another_if_words_files_or_the_place_of_the_bundle_differ(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": "int x;", "a.h": ""}, ["a.cpp"])
    key = case.key(FileDigests())
    assert case.key(FileDigests()) == key
    recipe = case.recipe
    others = [
        replace(case, recipe=replace(recipe, compile=(*recipe.compile, "-g"))),
        replace(case, recipe=replace(recipe, env=(("A", "b"),))),
        replace(case, recipe=replace(recipe, toolchain_id="gcc13")),
        replace(case, root=tmp_path / "elsewhere"),
        replace(case, group=replace(case.group, archs=("x",))),
        replace(case, places={**case.places, "libx/tree/a.h": f"{tmp_path}/build/a.h"}),
        replace(case, blobs=(*case.blobs, *case.blobs)),
    ]
    assert len({key, *(other.key(FileDigests()) for other in others)}) == len(others) + 1
    (tmp_path / "build/a.cpp").write_text("int y;")
    assert case.key(FileDigests()) != key


def prover(case: Case, directory: Path, cache: str = "cache") -> BundleProof:
    directory.mkdir(exist_ok=True)
    context = link_context(directory, final=Path("/libs/libx-1"), cache=ProbeCache(directory.parent / cache))
    return BundleProof(context, [case.group], FileDigests(), case.limits)


def test_findings_of_an_earlier_link_hold_while_their_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make_case(tmp_path, {"a.cpp": "", "b.h": ""}, ["a.cpp"])
    header, source = f"{tmp_path}/build/b.h", f"{tmp_path}/build/a.cpp"
    found = Finding(frozenset({header}), {source: Reason(ReasonKind.NOT_IN_BUNDLE, "c.h")})
    monkeypatch.setattr(proof, "_preprocess", lambda *_: found)
    assert prover(case, tmp_path / "first").examine({0: case}) == found
    monkeypatch.setattr(proof, "_preprocess", lambda *_: pytest.fail("it is known"))
    again = prover(case, tmp_path / "second")
    assert again.foresee({0: case}) == found
    assert again.examine({0: case}) == Finding(unproved=found.unproved), "what was lacking was added"
    (p, _), *_ = case.blobs
    assert again.completed([p])[0].headers == {header}
    assert prover(case, tmp_path / "second").completed([p]) == (p,)
    assert prover(case, tmp_path / "second", "other").foresee({0: case}) == Finding()
    (tmp_path / "build/b.h").unlink()
    assert prover(case, tmp_path / "third").foresee({0: case}) == Finding()


def test_only_cxx_is_proved(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": ""}, ["a.cpp"])
    assert prover(case, tmp_path / "w")._groups == [case.group]
    assert prover(replace(case, group=replace(case.group, toolchain=LLVM)), tmp_path / "w")._groups == []


def test_of_blobs_that_do_not_preprocess_together_each_is_tried(tmp_path: Path) -> None:
    case = make_case(tmp_path, {"a.cpp": ""}, ["a.cpp"])
    names = {"good": "int good;\n", "bad": "#error on purpose\n", "fine": "int fine;\n"}
    blobs = []
    for name, text in names.items():
        place = case.root / "libx" / "tree" / f"{name}.cpp"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        (probed, record) = case.blobs[0]
        command = replace(probed.blob, source=f"/w/{name}.cpp")
        blobs.append((replace(probed, blob=command), replace(record, source=f"libx/tree/{name}.cpp")))
    whole = replace(case, places={r.source: p.blob.source for p, r in blobs})
    (tmp_path / "work").mkdir()
    found = proof._preprocess(whole, tmp_path / "work", blobs)
    assert found.lacking == frozenset()
    assert list(found.unproved) == ["/w/bad.cpp"]
    assert found.unproved["/w/bad.cpp"].kind == ReasonKind.NOT_PREPROCESSED
    assert "on purpose" in found.unproved["/w/bad.cpp"].about
