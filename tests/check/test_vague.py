"""Tests which symbols a file defines for everybody, and which symbols each file that uses them
defines anew, as compilers emit them."""

import os
import shutil
from pathlib import Path

import pytest

from lazyck.check.ahead import BlobCompile
from lazyck.check.blob_objects import read_blob_object
from lazyck.check.vague import is_instance, vague_names
from lazyck.postbuild.cxx.demangle import all_readable
from lazyck.postbuild.probe.group import compile_one
from lazyck.toolchains.command import CompileCommand, Invocation

SOURCE = """
struct Keyed { virtual ~Keyed(); virtual int f(); };
Keyed::~Keyed() {}
int Keyed::f() { return 1; }
namespace deep { struct Keyed { virtual int f(); }; int Keyed::f() { return 3; } }
struct Open { virtual int f() { return 2; } };
template <class T> struct Made { static int count; int get(); virtual int v() { return 1; } };
template <class T> int Made<T>::count = 3;
template <class T> int Made<T>::get() { static int calls; return ++count + ++calls; }
template struct Made<int>;
template <class T> struct Used {
  static int count;
  static inline int more = 4;
  int get();
  int in() { static int z; return ++z; }
  int late() { static int begun = get(); return begun; }
};
template <class T> int Used<T>::count = 1;
template <class T> int Used<T>::get() { return ++count + more; }
template <class T> T plus(T x) { return x + 1; }
template int plus(int);
template <class T> int number = 5;
template int number<long>;
inline int within(int x) { static int calls; return x + ++calls; }
inline int shared = 7;
inline int of(Made<int> const& made) { static int calls; return ++calls; }
template <> inline int Used<long>::get() { return 3; }
int use() {
  Used<int> u; Made<char> m; Made<int> i; Open o; ++shared;
  Used<long> l; return of(i) + l.get() + u.get() + u.in() + u.late() + m.get() + i.get() +
         within(3) + plus(2L) + plus(2) + number<char> +
         number<long> + o.f();
}
int (*pointer)(int) = within;
int (*pointer2)(Made<int> const&) = of;
int (Used<long>::*pointer3)() = &Used<long>::get;
Open* make() { return new Open; }
"""
FOR_EVERYBODY = {
    "vtable for Keyed", "typeinfo for Keyed", "typeinfo name for Keyed", "vtable for deep::Keyed",
    "typeinfo for deep::Keyed", "typeinfo name for deep::Keyed", "Made<int>::get()", "Made<int>::v()",
    "Made<int>::count", "vtable for Made<int>", "typeinfo for Made<int>", "typeinfo name for Made<int>",
    "int plus<int>(int)", "number<long>",
}  # fmt: skip


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_explicit_instances_and_keyed_classes_are_for_everybody(tmp_path: Path, compiler: str, level: str) -> None:
    program = shutil.which(compiler) or shutil.which(f"{compiler}-19")
    if not program:
        pytest.skip(f"needs {compiler}")
    source = tmp_path / "all.cpp"
    source.write_text(SOURCE)
    argv = (program, "-std=c++17", level, "-fPIC", "-c", str(source), "-o", "x.o")
    blob = CompileCommand(Invocation(compiler, "host", str(tmp_path), argv, 1, ()), str(source), str(tmp_path / "x.o"))
    unit = BlobCompile(blob, tmp_path / "0.o")
    assert compile_one(blob, unit.object, os.environ).status == 0
    read = read_blob_object(unit.object, blob.source, "")
    names = frozenset(s.name for s in read.symbols)
    vague = vague_names(unit, read, names, os.environ)
    texts = all_readable(sorted(names), os.environ)
    assert {texts[n] for n in names - vague} >= FOR_EVERYBODY
    assert not {texts[n] for n in vague} & FOR_EVERYBODY
    assert {"of(Made<int> const&)", "of(Made<int> const&)::calls", "Used<long>::get()"} <= {texts[n] for n in vague}
    assert {"within(int)", "shared", "within(int)::calls", "Used<int>::count", "vtable for Open"} <= {
        texts[n] for n in vague
    }
    left = {texts[n] for n in names - vague if not n.startswith(("_ZN5Keyed", "_ZN4deep"))} - FOR_EVERYBODY
    assert left <= {
        "use()",
        "make()",
        "pointer",
        "pointer2",
        "pointer3",
        "Made<int>::get()::calls",
    }  # g++ emits the variable with its function


def test_which_mangled_names_have_template_arguments() -> None:
    assert not any(
        map(is_instance, ["_ZN3IntC2Ev", "_Z2ini", "_ZTI1W", "_ZTV3III", "_ZN1S1TE", "_ZStL8__ioinit", "main"])
    )
    assert all(map(is_instance, ["_ZN1SIiE3getEv", "_Z2ftIiET_S0_", "_ZTI1SIiE", "_ZZN1VIiE1kEvE1z", "_Z2vtIcE"]))
