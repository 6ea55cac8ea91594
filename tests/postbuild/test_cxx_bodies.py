"""Test headers without bodies: what is removed, what stays, and that compilers make equal
declarations of the rest."""

import re
import subprocess
from pathlib import Path

import pytest

from lazyck.postbuild.cxx.lexer import without_bodies
from lazyck.postbuild.objects import elf

TRAP = "{ __builtin_trap(); }"


@pytest.mark.parametrize(
    "head",
    [
        "inline int f(int a = 3)",
        "static inline void f(void)",
        "template <typename T = int> T f(T t) noexcept(sizeof(T) > 2)",
        "struct A { explicit A(int n) : n_(n), p_{nullptr}, q(n)",
        "struct B final : public A { virtual ~B()",
        "struct C { int g() const & override",
        "struct D { D& operator=(const D&)",
        "struct E { bool operator==(const E&) const",
        "namespace a { namespace b __attribute__((visibility(\"default\"))) { int g(const char* s = \"{\")",
        'extern "C" { int g(int x = \'{\')',
        'extern "C" int g()',
        "struct alignas(16) F { template <class U, int N = (3 > 2)> void g(U (&u)[N])",
        "friend_less::type<int> operator<<(out& o, int n)",
    ],
)  # fmt: skip
def test_bodies_become_traps(head: str) -> None:
    body = '{ if (x) { y("}"); } return R"(})" [0]; }'
    assert without_bodies(f"{head} {body} int after;") == f"{head} {TRAP} int after;"


@pytest.mark.parametrize(
    "text",
    [
        "constexpr int f(int n) { int m = n; return m; }",
        "consteval int f() { return 1; }",
        "auto f() { return 1; }",
        "decltype(auto) f() { return 1; }",
        "template <class T> auto f(T t) -> T { return t; }",
        "template <class T> concept C = requires(T t) { t.f(); };",
        "template <class T> requires C<T> void f(T t) { t.f(); }",
        "A::A() try : n(1) { f(); } catch (...) { g(); }",
        "void (*callback)(int){nullptr};",
        "enum class E : int { a, b = f(1) };",
        "struct P { int n{3}; int g() const; std::array<int, 2> a{1, 2}; };",
        "static const int n = [](int a) { int b = a; return b; }(3);",
        "inline const std::map<int, int> m{{1, 2}, {3, 4}};",
        "int g(int a = [] { int b = 1; return b; }());",
        "struct Q { Q() {} void h() {} };",
        "int array[] = {1, 2, 3};",
        "struct { int a; } __attribute__((packed)) one;",
    ],
)
def test_what_other_declarations_may_depend_on_stays(text: str) -> None:
    assert without_bodies(text) == text


@pytest.mark.parametrize(
    "text", ["}}}", "{{{", "(((", ")))", "int f() {", 'int f() { "', "void g() { ; ", "#if\n{", "'"]
)
def test_text_that_does_not_close_ends(text: str) -> None:
    assert without_bodies(text).startswith(text[:3])


@pytest.mark.parametrize("compiler", ["g++", "clang++-19"])
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_the_standard_library_means_what_it_meant(compiler: str, standard: str, tmp_path: Path) -> None:
    """The sources have computed types in headers, placed vtables, default arguments and
    overloads."""
    (tmp_path / "a.cpp").write_text("""
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <thread>
#include <variant>
struct Keyless { virtual ~Keyless() { std::cout << 1; } virtual int f() { return 1; } virtual int g() { return 2; } };
struct Keyed { virtual ~Keyed() { std::cout << 1; } virtual int f(); virtual int g() { return 2; } };
""")
    heads = """
int Keyed::f() { return 1; }
template <int N> struct Tag {};
void a(std::map<int, std::variant<std::string, std::function<void(int)>>>::iterator, std::common_type_t<char, long>) {}
Tag<sizeof(std::unique_ptr<int>)> b(std::invoke_result_t<std::plus<>, int, double>, Keyless) { return {}; }
auto c(std::tuple<int, char> t) { return std::get<1>(t); }
"""
    words = [compiler, f"-std={standard}", "-w"]
    subprocess.run([*words, "-E", "a.cpp", "-o", "a.ii"], cwd=tmp_path, check=True)
    text = (tmp_path / "a.ii").read_text()
    (tmp_path / "full.ii").write_text(text + heads)
    (tmp_path / "less.ii").write_text(without_bodies(text) + heads)
    assert (tmp_path / "less.ii").stat().st_size < 0.95 * (tmp_path / "full.ii").stat().st_size
    made = []
    for name in ("full", "less"):
        subprocess.run([*words, "-O0", "-c", f"{name}.ii", "-o", f"{name}.o"], cwd=tmp_path, check=True)
        symbols = elf.open_image(tmp_path / f"{name}.o").symbols()
        own = {s.name for s in symbols if re.match(r"_Z(TV5Key|1[abc]|NK?5Keyed1f)", s.name) and s.section}
        made.append({*own, *(s.name for s in symbols if s.name.startswith("_ZTV"))})
    assert made[0] == made[1]
    assert {"_ZTV5Keyed"} <= made[0] and len(made[0]) >= 4
