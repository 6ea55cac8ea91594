"""Tests which symbols a blob's text could name."""

import tracemalloc
from pathlib import Path

import pytest
from support.probe_bench import Bench

from lazyck.postbuild.cxx.mangled import identifiers, is_of_the_standard_library, is_private, spellings
from lazyck.postbuild.mentions import Mentions


@pytest.mark.parametrize(
    ("symbol", "names"),
    [
        ("plain_c", {"plain_c"}),
        ("_Z5twiceILi2EEii", {"twice"}),
        ("_ZN2ns6RunnerIfLi2EE3runEi", {"run"}),
        ("_ZN2ns6RunnerC2Ev", {"Runner"}),
        ("_ZNK2ns1AplERKS0_", {"A"}),
        ("_ZTVN2ns6WidgetE", {"Widget"}),
        ("_ZN2ns5levelE", {"level"}),
        (
            "_Z9fmha_fwd_I10fmha_traitILi64EDF16_Lb1EN7ck_tile4ModeE0EE6gfx9_tEfRKN7ck_tile13stream_configE4args",
            {"fmha_fwd_"},
        ),
        ("_Z4nameB5cxx11i", {"name"}),
        ("_ZThn16_N1B3fooEv", {"foo"}),
    ],
)
def test_identifiers_of_mangled_names(symbol: str, names: set[str]) -> None:
    assert identifiers(symbol) == names


@pytest.mark.parametrize(
    ("symbol", "ways"),
    [
        ("plain_c", ["plain_c"]),
        ("_ZN2ns6RunnerIfLi2EE3runEi", ["ns Runner run"]),
        ("_ZN2ns6RunnerC2Ev", ["ns Runner"]),
        ("_ZNK2ns1AplERKS0_", ["ns A"]),
        ("_ZTVN2ns6WidgetE", ["ns Widget"]),
        ("_Znwm", [""]),
        ("_ZdlPvSt11align_val_t", [""]),
        ("_ZplRK1A", [""]),
        ("_ZZ5outervENKUlvE_clEv_5inner", ["inner", "outer"]),
    ],
)
def test_the_words_that_a_text_must_have_to_name_a_symbol(symbol: str, ways: list[str]) -> None:
    assert sorted(map(sorted, spellings(symbol))) == [sorted(way.split()) for way in ways]


def test_names_in_a_namespace_without_a_name_are_private() -> None:
    by_nvcc = "_ZN2ns3tree49_GLOBAL__N__7c24800f_16_gpu_predictor_cu_8852372a9LoadGpairEPKi"
    by_us = "_ZN35_GLOBAL__N__LAZYCK_e6e2f491a66ebf4a5innerEPi"
    assert all(map(is_private, (by_nvcc, by_us, "_ZN12_GLOBAL__N_13oneEv")))
    assert not is_private("_ZN2ns5levelE")


def test_names_that_are_not_understood_give_all_that_they_hold() -> None:
    assert {"outer", "inner"} <= identifiers("_ZZ5outervENKUlvE_clEv_5inner")


def test_the_standard_librarys_names_are_known() -> None:
    assert is_of_the_standard_library("_ZNSt6vectorIiSaIiEE9push_backERKi")
    assert is_of_the_standard_library("_ZNKSs4sizeEv") and is_of_the_standard_library("_ZSt4movei")
    assert not is_of_the_standard_library("_ZN2ns3runESt6vectorIiE")


HEAD = """#pragma once
namespace ns { struct Common { int* begin(); static int create(); };
inline int both() { return Common::create(); } template <int N> int shared(int); }
int create(int);
"""


def test_a_text_could_name_what_it_declares_and_not_what_it_has_no_words_for(tmp_path: Path) -> None:
    """The sources only instantiate a template, and go through a range without naming `begin`."""
    (tmp_path / "head.h").write_text(HEAD)
    result = Bench(tmp_path).probe(
        one='#include "head.h"\ntemplate int ns::shared<3>(int);\nint f() { return 1; }\n',
        two='#include "head.h"\nnamespace other { int only(int); }\nint g() { return other::only(1); }\n',
        alone="int h() { return 3; }\n",
    )
    mentions = Mentions(result.texts)
    shared = {"_ZN2ns6Common5beginEv", "_ZN2ns6sharedILi3EEEii", "_Z6createi"}
    named = mentions.by_blob({*shared, "_ZN5other4onlyEi", "_ZN2ns4onlyEi", "_Z4nonev"})
    found = {blob.stem: set(named(blob)) for blob in mentions.groups}
    assert found["one"] == shared
    assert found["two"] == {*shared, "_ZN5other4onlyEi", "_ZN2ns4onlyEi"}
    blob = next(blob for blob in mentions.groups if blob.stem == "one")
    assert Mentions(()).by_blob(shared)(blob) == shared, "a blob without a text"
    assert not mentions.by_blob({"two", "head"})(blob), "names of files"


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("int opt(int) __attribute__((weak));", {"opt"}),
        ("[[gnu::weak]] int opt(int); int plain(int);", {"opt"}),
        ('extern __attribute__((visibility("hidden"))) int opt; int plain(int);', {"opt"}),
        ('int __attribute__((visibility("default"))) plain(int);', set()),
        (
            "#pragma GCC visibility push(hidden)\nint plain(int); int opt(int);\n#pragma GCC visibility pop",
            {"plain", "opt"},
        ),
        ("#pragma weak opt", {"opt"}),
        ("bool compare_exchange_weak(int plain); int opt(int);", set()),
    ],
)
def test_which_references_may_be_weak_or_bound_within_the_library(tmp_path: Path, text: str, symbols: set[str]) -> None:
    result = Bench(tmp_path).probe(one=f"{text}\nint f() {{ return 1; }}\n", two="int g() { return 1; }\n")
    assert Mentions(result.texts).attributed({"opt", "plain"}) == symbols


def test_what_a_blob_spells_is_told_apart_and_takes_no_room_for_each_blob_and_symbol(tmp_path: Path) -> None:
    """This is the shape of aiter's backward library: 15,252 blobs spell the names of 60,540
    instances of a few templates."""
    (tmp_path / "head.h").write_text("template <int N> int instance(int);\n")
    text = '#include "head.h"\n'
    result = Bench(tmp_path).probe(
        **{f"v{i}": text + f"template <> int instance<{i}>(int x) {{ return x; }}\n" for i in range(40)},
        other=text + "int rare(int); int user(int x) { return rare(x); }\n",
    )
    mentions = Mentions(result.texts)
    blobs = list(mentions.groups)
    instances = [f"_Z8instanceILi{i}EEii" for i in range(40_000)]
    before = {b.stem: said for b, said in mentions.digests(instances, blobs).items()}
    assert len(before) == 41 and len(set(before.values())) == 1
    tracemalloc.start()
    mentions.digests(instances, blobs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 40_000 * 8, "not even a pointer for each blob and symbol"
    after = {b.stem: said for b, said in mentions.digests([*instances, "_Z4rarei"], blobs).items()}
    assert [stem for stem in after if after[stem] != before[stem]] == ["other"]
    replaced = {b.stem: said for b, said in mentions.digests([*instances, "_Znwm"], blobs).items()}
    assert not set(replaced.values()) & set(before.values()), "no text spells it: it may concern each"


def test_the_names_of_c_that_a_blob_spells_are_those_of_its_own_text(tmp_path: Path) -> None:
    (tmp_path / "hooks.h").write_text('#pragma once\nextern "C" { int hook(int); int unused(int); }\n')
    lead = '#include "hooks.h"\n'
    result = Bench(tmp_path).probe(
        one=lead + "int one(int x) { return hook(x); }\n",
        two=lead + 'extern "C" int own_hook(int); int two(int x) { return own_hook(x); }\n',
    )
    mentions, blobs = Mentions(result.texts), {p.blob.stem: p.blob for p in result.probed}
    assert mentions.c_names({blobs["one"]}) == {"hook"}
    assert mentions.c_names({blobs["two"]}) == {"own_hook"}
    assert mentions.c_names(blobs.values()) == {"hook", "own_hook"}
