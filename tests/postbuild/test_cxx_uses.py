"""Test which names a text uses: a mere declaration does not count, a mention in code does."""

import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from support.probe_bench import Bench

from lazyck.postbuild.cxx.mangled import class_in, identifiers, is_of_the_standard_library, is_private, scope_of
from lazyck.postbuild.cxx.uses import declarations, reaching
from lazyck.postbuild.references import TextReferences

H = frozenset({"hidden"})


@pytest.mark.parametrize(
    "text",
    [
        "float hidden(Args a, int s);",
        "namespace n { extern int hidden; }",
        'extern "C" { int hidden(const char* text); }',
        "struct S { void hidden(); int x; };",
        "template <typename T> float hidden(T t, int n = 3);",
        "template <> float hidden<int>(int x) { return x; }",
        'inline void check(int x) { if (x) fail("lib/hidden.hpp", 3); }',
        'extern "C" int other(const char* text = "hidden");',
    ],
)
def test_a_declaration_is_no_use(text: str) -> None:
    assert not [c.text for c in declarations(text) if c.uses(H)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("inline int f(int x) { return hidden(x); }", {"f"}),
        ('inline void f() { asm("call hidden"); }', {"f"}),
        ("namespace n { template <typename T> auto g(T t) -> T { if (t) { hidden(t); } return t; } }", {"g"}),
        ("static int value = hidden(3);", {"value"}),
        ("int f(int x = hidden());", {"f"}),
        ("auto call = [](int x) { return hidden(x); };", {"call"}),
        ("struct S { int m() const { return hidden; } };", {"S", "m"}),
        ("struct S { S() : a(hidden()) {} int a; };", {"S"}),
        ("struct S { S() : a{hidden()}, b{2} {} int a, b; };", {"S"}),
        ("struct S { public: int x = hidden(); };", {"S", "x"}),
        ("struct S : hidden {};", {"S"}),
        ("using Alias = std::vector<hidden>;", {"Alias"}),
        ("typedef hidden Alias;", {"Alias"}),
        ("hidden make(int);", {"make"}),
        ("template <typename T> void Box<T>::go() { hidden(); }", {"Box", "go"}),
        ("inline bool operator<(const Foo& a, const Foo& b) { return hidden(a, b); }", {"Foo", "a", "b"}),
        ("inline int f() try { return hidden(); } catch (...) { return 1; }", {"f"}),
        ("inline int hidden(float x) { return hidden(int(x)); }", {"hidden"}),
        ("inline int before() { return 1; } inline int f() { return hidden(); }", {"f"}),
        # The word `struct` names the type of a variable in these.
        ("static struct A* table[] = {&hidden};", {"table"}),
        ("static struct A table[] = {{1, &hidden}, {2, 0}};", {"table"}),
        ("const struct n::A value{&hidden};", {"value"}),
        ("struct A *f(int x) { return hidden(x); }", {"f"}),
        ("struct alignas(16) A final { int m() { return hidden; } };", {"A", "m"}),
        ("struct A { int x; }; struct B { struct C { void f() { hidden(); } }; };", {"B", "C", "f"}),
    ],
)
def test_code_that_uses_a_name_is_known_by_its_own_names(text: str, names: set[str]) -> None:
    found = [c for c in declarations(text) if c.uses(H)]
    assert [set(c.names) for c in found] == [names]


def test_a_name_is_reached_through_others() -> None:
    text = """
    int hidden(int);
    inline int check(int x) { return hidden(x); }
    struct Guard { Guard() { check(1); } };
    inline int unrelated(int x) { return x; }
    template <typename T> void run(T t) { Guard g; }
    """
    code = list(declarations(text))
    assert reaching(code, {"hidden": 1}).keys() == {"hidden", "check", "Guard", "run"}
    assert reaching(code, {"hidden": 1, "x": 2, "check": 4, "Guard": 8}) == {
        "hidden": 1, "x": 2, "check": 7, "unrelated": 2, "Guard": 15, "run": 15,
    }  # fmt: skip


def test_any_text_is_read_to_its_end() -> None:
    for text in ("}}}", "{{{", "(((", "int f( { ; }", "#pragma once\nint x;", 'R"(unclosed', "'", "template <"):
        list(declarations(text))


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
    ("symbol", "scope"),
    [
        ("plain_c", ""),
        ("_Z5twiceILi2EEii", ""),
        ("_ZN2ns6RunnerIfLi2EE3runEi", "Runner"),
        ("_ZN2ns6RunnerC2Ev", "ns"),
        ("_ZNK2ns1AplERKS0_", "ns"),
        ("_ZN1AC1Ev", ""),
        ("_ZZ5outervENKUlvE_clEv_5inner", ""),
    ],
)
def test_scope_of_mangled_names(symbol: str, scope: str) -> None:
    assert scope_of(symbol) == scope


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2ns6RunnerC2Ev", "Runner"),
        ("_ZN2ns6RunnerIiED1Ev", "Runner"),
        ("_ZNK2ns6Runner3runEv", "Runner"),
        ("_ZN2ns6Runner3runEv", ""),
        ("_Z5twicei", ""),
        ("plain_c", ""),
    ],
)
def test_symbols_that_show_a_class(symbol: str, name: str) -> None:
    assert class_in(symbol) == name


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


def test_members_are_looked_for_by_two_names(tmp_path: Path) -> None:
    """Many classes have a member `create`. A text that uses the member of one class also spells the
    class's name somewhere."""
    (tmp_path / "classes.h").write_text(
        "#pragma once\nnamespace ns { struct Common { static int create(); int go(); };\n"
        'struct __attribute__((visibility("default"))) Rare { static int create(); int go(); };\n'
        "struct Other { static int create(); }; inline int both() { return Common::create() + Other::create(); }\n"
        "Rare& some(); int create(int); }\n"
    )
    result = Bench(tmp_path).probe(
        common='#include "classes.h"\nint f() { return ns::both() + ns::Common().go(); }\n',
        rare='#include "classes.h"\nint g() { return ns::some().create(); }\n',
        free='#include "classes.h"\nint h() { return ns::create(3); }\n',
    )
    references = TextReferences(result.texts)

    def users(symbol: str, own: Mapping[str, Iterable[str]] | None = None) -> set[str]:
        return {b.stem for b in references.candidates([symbol], own or {})}

    assert users("_ZN2ns4Rare6createEv") == {"rare"}
    assert users("_ZN2ns6createEi") == {"common", "rare", "free"}
    assert users("_ZN2ns6Common2goEv") == {"common"}
    assert users("_ZN2ns4Rare2goEv") == set()
    source = str(tmp_path / "free.cpp")
    assert users("_ZN2ns6createEi", {source: ["_ZN2ns6createEi"]}) == {"common", "rare"}
    two = ["_ZN2ns6createEi", "_ZN2ns6createEl"]
    assert "free" in {b.stem for b in references.candidates(two, {source: two[:1]})}


def test_what_a_blob_spells_is_told_apart_and_takes_no_room_for_each_blob_and_symbol(tmp_path: Path) -> None:
    """This is the shape of aiter's backward library: 15,252 blobs spell the names of 60,540
    instances of a few templates."""
    (tmp_path / "head.h").write_text("template <int N> int instance(int);\n")
    text = '#include "head.h"\n'
    result = Bench(tmp_path).probe(
        **{f"v{i}": text + f"template <> int instance<{i}>(int x) {{ return x; }}\n" for i in range(40)},
        other=text + "int rare(int); int user(int x) { return rare(x); }\n",
    )
    references = TextReferences(result.texts)
    instances = [f"_Z8instanceILi{i}EEii" for i in range(40_000)]
    before = {b.stem: said for b, said in references.spelled(instances).items()}
    assert len(before) == 41 and len(set(before.values())) == 1
    tracemalloc.start()
    references.spelled(instances)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 40_000 * 8, "not even a pointer for each blob and symbol"
    after = {b.stem: said for b, said in references.spelled([*instances, "_Z4rarei"]).items()}
    assert [stem for stem in after if after[stem] != before[stem]] == ["other"]
    replaced = {b.stem: said for b, said in references.spelled([*instances, "_Znwm"]).items()}
    assert not set(replaced.values()) & set(before.values()), "no text spells it: it may concern each"
