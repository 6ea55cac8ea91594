"""Test whether code can tell the lines of its source apart. Only then do lines count in a text
key."""

import subprocess
from pathlib import Path

import pytest
from support import HERE

from lazyck.units.program import SOURCES

MAIN = """
#include <iostream>
#include <iterator>
#include "text.h"
int main() {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    std::cout << (lazyck::units::tells_lines_apart(text) ? "told" : "same");
}
"""
PLACE = """
struct __attribute__((visibility("default"))) Place {
    const char* file;
    int line;
    [[nodiscard]] static constexpr Place current(const char* f = __builtin_FILE(), int n = __builtin_LINE()) {
        return {f, n};
    }
};
"""
SAME = {
    "nothing": "__global__ void k(int* x) { *x = 1; }",
    "names in strings": 'const char* s = "__builtin_LINE() and R\\"(";',
    "nobody calls": PLACE,
    "it is only shown": PLACE + "Out& operator<<(Out& out, const Place& p) { return out << p.line; }",
    "other things are called so": PLACE + "template <class T> struct It { T current; It() : current() {} };",
    "a member is called so": PLACE + "template <class T> T f(It<T> x) { return T(x.current) + (x.current); }",
    "its name is a builtin's": "int my__builtin_LINE; int __builtin_LINE_of;",
}
TOLD = {
    "a body": "__device__ int f() { return __builtin_LINE(); }",
    "a call": PLACE + "int f() { return Place::current().line; }",
    "by way of an object": PLACE + "int f(const Place& p) { return p.current().line; }",
    "by way of a template": PLACE + "template <class T> int f(const T&) { return T::current().line; }",
    "in brackets": PLACE + "int f(const Place& p) { return (p.current)().line; }",
    "a template": PLACE.replace("[[nodiscard]]", "template <int>"),
    "its own call": PLACE.replace("int line;", "int line; static int own() { return current().line; }"),
    "another name": PLACE + "using Other = Place;",
    "as an argument": PLACE + "Wrapped<Place> w;",
    "a base": PLACE + "struct More : Place { int f() { return current().line; } };",
    "of a base": PLACE.replace("Place {", "Place : Base {"),
    "no static": PLACE.replace("static", ""),
    "a constructor": "struct P { int n; P(int x = __builtin_LINE()) : n(x) {} }; int f(const P& p);",
    "a function's default": "int f(int n = __builtin_LINE());",
    "a static function": "namespace n { static int f(int n = __builtin_LINE()) { return n; } }",
    "a raw string": 'const char* s = R"(\n# 1 "x"\n)";',
    "a wide raw string": 'const wchar_t* s = LR"x(\n)x";',
    "the library's": "struct L { static L current(T t = __builtin_source_location()); }; L l = L::current();",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("lines")
    (where / "main.cpp").write_text("#include <string>\n" + MAIN)
    sources = [str(SOURCES / "text.cpp")]
    words = [HERE.cxx, "-std=c++17", "-fsanitize=address,undefined", "-iquote", str(SOURCES), "main.cpp", *sources]
    subprocess.run([*words, "-o", "tells"], cwd=where, check=True)
    return where / "tells"


@pytest.mark.parametrize("name", [*SAME, *TOLD])
def test_lines_count_where_code_can_tell_them_apart(program: Path, name: str) -> None:
    text = SAME.get(name) or TOLD[name]
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == ("same" if name in SAME else "told")
