"""Tests what symbols' names alone tell: of vtables, of `nm`'s output, of private names, of
templates and scopes."""

import subprocess
from pathlib import Path

import pytest

from lazyck.postbuild.cxx.mangled import identifiers, is_of_the_standard_library, last_name, template_of
from lazyck.postbuild.objects.elf import SymbolNames, open_image
from lazyck.postbuild.objects.reveal import plain_name, private_name
from lazyck.postbuild.objects.symbols import parse_nm, together
from lazyck.postbuild.objects.vtables import class_of, is_member, is_of_class, of_classes_with, with_key_functions

# -- vtables ---------------------------------------------------------------------------------------


def test_symbols_of_classes_are_told_from_others() -> None:
    assert all(map(is_of_class, ("_ZTV1A", "_ZTI1A", "_ZTS1A", "_ZTT1A", "_ZTVN2ns1AE")))
    assert not any(map(is_of_class, ("_ZThn8_N1A1fEv", "_ZN1A1fEv", "_ZTCN1A1BE", "ZTV1A", "")))
    assert class_of("_ZTVN2ns1AE") == "_ZN2ns1AE"
    assert class_of("_ZTI1A") == "_Z1A"


@pytest.mark.parametrize(
    ("function", "name", "expected"),
    [
        ("_ZN1A1fEv", "_Z1A", True),
        ("_ZNK1A1fEv", "_Z1A", True),
        ("_ZNVKO1A1fEv", "_Z1A", True),
        ("_ZNKR1A1fEv", "_Z1A", True),
        ("_ZThn8_N1A1fEv", "_Z1A", True),
        ("_ZTv0_n24_N1A1fEv", "_Z1A", True),
        ("_ZTchn8_h8_N1A1fEv", "_Z1A", True),
        ("_ZN2ns1A1fEv", "_ZN2ns1AE", True),
        ("_ZN2ns1A1fEv", "_Z1A", False),
        ("_ZN1AIiE1fEv", "_Z1A", False),
        ("_ZN1AIiE1fEv", "_Z1AIiE", True),
        ("_ZN1B1fEv", "_Z1A", False),
        ("_Z1fv", "_Z1A", False),
        ("f", "_Z1A", False),
    ],
)
def test_members_of_a_class_are_known_by_its_name(function: str, name: str, expected: bool) -> None:
    assert is_member(function, name) is expected


def test_classes_are_found_by_their_members() -> None:
    symbols = ["_ZTV1A", "_ZTI1A", "_ZTVN2ns1BE", "_ZTV1C", "_ZTV1T", "_Z1fv"]
    functions = ["_ZN1AD0Ev", "_ZThn8_N2ns1B1fEv", "_ZN1TIiE1fEv", "_Z1Cv", "plain"]
    assert of_classes_with(functions, symbols) == {"_ZTV1A", "_ZTI1A", "_ZTVN2ns1BE"}
    assert of_classes_with([], symbols) == frozenset()


# -- `nm -P` ---------------------------------------------------------------------------------------


def test_nm_tells_defined_and_undefined_and_strong_names() -> None:
    text = """
one.o:
def T 0 10
data D 0 4
local t 0 4
weak W 0 1
weak_object V 0 1
unique u 0 1
common C 4 4
undef U
weak_undef w
weak_undef_object v
lib.a[member.o]:
no_kind
long_kind XX 1
"""
    assert parse_nm(text) == SymbolNames(
        frozenset({"def", "data", "weak", "weak_object", "unique", "common"}),
        frozenset({"undef", "weak_undef", "weak_undef_object"}),
        frozenset({"def", "data", "common"}),
        asked_for=frozenset({"undef"}),
        functions=frozenset({"def", "weak"}),
        unique=frozenset({"unique"}),
        has_startup=True,
    )


def test_names_of_several_objects_come_together() -> None:
    def part(i: int) -> SymbolNames:
        d, u, s, h, a, f, r = (frozenset({f"{kind}{i}"}) for kind in "dushafr")
        return SymbolNames(d, u, s, h, a, f, has_startup=i == 1, resolved=r)

    d, u, s, h, a, f, r = (frozenset({f"{kind}0", f"{kind}1"}) for kind in "dushafr")
    assert together([part(0), None, part(1)]) == SymbolNames(d, u, s, h, a, f, has_startup=True, resolved=r)
    assert together([]) == SymbolNames()


# -- private names ---------------------------------------------------------------------------------


def test_a_private_name_is_short_and_of_one_symbol_and_library() -> None:
    name = private_name("_Z3addii", "tag")
    assert (name.partition(".")[0], len(name)) == ("lazyck", len("lazyck.0123456789ab"))
    assert len({name, private_name("_Z3addii", "other"), private_name("_Z3addil", "tag")}) == 3
    assert (plain_name("_Z3addii.lazyck"), plain_name("_Z3addii")) == ("_Z3addii", "_Z3addii")


# -- templates and scopes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z5twiceIiEvT_", "twice"),
        ("_ZN2ns6RunnerIfE3runEi", "Runner"),
        ("_ZN2ns6Runner3runIiEEvT_", "run"),
        ("_ZNK6RunnerIfE3runEi", "Runner"),
        ("_ZNKR6RunnerIfE3runEi", "Runner"),
        ("_ZTV6RunnerIfE", "Runner"),
        ("_ZTIN2ns6RunnerIfEE", "Runner"),
        ("_ZGV5levelIiE", "level"),
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", "vector"),
        ("_ZN1AC2IiEET_", "A"),
        ("_ZN2nsB5cxx116RunnerIiE1fEv", "Runner"),
        ("_ZN2ns6Runner3runEi", ""),
        ("_ZN2nsplIiEEvT_", ""),
        ("_Z5twicei", ""),
        ("plain", ""),
        ("_Z9short", ""),
        ("_ZN", ""),
    ],
)
def test_the_outermost_template_of_a_symbol(symbol: str, name: str) -> None:
    assert template_of(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "last"),
    [
        ("_ZN2ns6RunnerIfLi2EE3runEi", "run"),
        ("_ZN2ns6RunnerC2Ev", "Runner"),
        ("_ZN2ns12_GLOBAL__N_11fEv", "f"),
        ("_ZTVN2ns1AE", "A"),
        ("_ZGVN2ns5levelE", "level"),
        ("_ZThn16_N1B3fooEv", "foo"),
        ("_ZTv0_n24_N1B3fooEv", "foo"),
        ("_Z5twicei", "twice"),
        ("_ZL5innerv", "inner"),
        ("plain", "plain"),
        ("_ZZ5outervENKUlvE_clEv", "_ZZ5outervENKUlvE_clEv"),
        ("_ZGTt1f", "_ZGTt1f"),
        ("_ZTc1f", "_ZTc1f"),
        ("_Z99f", "_Z99f"),
        ("_Z", "_Z"),
        # Arguments of every shape: literals, packs, arrays, functions, vectors, member pointers.
        ("_ZN1AILin3EXadL_Z1fvEEE1gEv", "_ZN1AILin3EXadL_Z1fvEEE1gEv"),
        ("_ZN1AILin3ELb1EE1gEv", "g"),
        ("_ZN1AIJiN2ns1BEEE1gEv", "g"),
        ("_ZN1AIA3_iFvvEE1gEv", "g"),
        ("_ZN1AIDv4_fDF16_DnE1gEv", "g"),
        ("_ZN1AIM1BFvvEE1gEv", "g"),
        ("_ZN1AILN2ns4ModeE2EE1gEv", "g"),
        ("_ZN1AIU8__vectoriT_S_StE1gEv", "g"),
    ],
)
def test_last_name_of_a_symbol(symbol: str, last: str) -> None:
    assert last_name(symbol) == last


def test_the_standard_library_is_told_in_every_kind_of_symbol() -> None:
    for symbol in (
        "_ZTVSt9exception",
        "_ZN9__gnu_cxx3runEv",
        "_ZTIN10__cxxabiv117__class_type_infoE",
        "_ZThn16_NSdD0Ev",
    ):
        assert is_of_the_standard_library(symbol)
    for symbol in ("_ZTV1A", "_Z2Stv", "St", "_ZN2ns1fESs"):
        assert not is_of_the_standard_library(symbol)


@pytest.mark.parametrize(("symbol", "held"), [("_ZZ1fvENKUlvE_clEv", {"f"}), ("_ZZ5outervENKUlvE0_clEv", {"outer"})])
def test_a_name_that_is_not_followed_gives_names_of_every_length(symbol: str, held: set[str]) -> None:
    assert held <= identifiers(symbol)


# -- vtables of a real object ----------------------------------------------------------------------

CLASSES = """
struct Keyed { virtual void first(); virtual void second(); virtual ~Keyed(); int x; };
void Keyed::first() {}
void Keyed::second() {}
Keyed::~Keyed() {}
struct Abstract { virtual void pure() = 0; virtual ~Abstract(); };
Abstract::~Abstract() {}
struct Inline { virtual void f() {} };
template <typename T> struct Instance { virtual void f(); };
template <typename T> void Instance<T>::f() {}
namespace { struct Local { virtual void f(); }; void Local::f() {} }
struct Elsewhere { virtual void key(); virtual void mine(); };
void Elsewhere::mine() {}
struct Derived : Keyed { void first() override; };
void use() { Inline a; Instance<int> b; Local c; Elsewhere d; Derived e;
  Inline* p = &a; p->f(); Instance<int>* q = &b; q->f(); Local* r = &c; r->f(); d.mine(); e.second(); }
"""


def test_only_vtables_with_a_key_function_are_an_object_s_own(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(CLASSES)
    subprocess.run(["g++", "-fPIC", "-c", tmp_path / "a.cpp", "-o", tmp_path / "a.o"], check=True)
    image = open_image(tmp_path / "a.o")
    found = {name: {f.name for f in those} for name, those in with_key_functions(image, image.symbols()).items()}
    assert found == {
        "_ZTV5Keyed": {"_ZN5Keyed5firstEv", "_ZN5Keyed6secondEv", "_ZN5KeyedD0Ev", "_ZN5KeyedD1Ev"},
        "_ZTV8Abstract": {"_ZN8AbstractD0Ev"},
    }
