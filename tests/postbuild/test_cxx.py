"""Test the reader of C++ declarations: what it takes each statement of a blob for."""

import pytest

from lazyck.postbuild.cxx.c_names import c_names
from lazyck.postbuild.cxx.declaration_kinds import DeclarationKind, Unsupported
from lazyck.postbuild.cxx.declarations import parse
from lazyck.postbuild.cxx.lexer import (
    after_angles,
    declarator,
    flat,
    function_parts,
    template_prefixes,
    top_level,
    without_attributes,
    without_comments,
)


def kinds(text: str) -> list[tuple[DeclarationKind, tuple[str, ...]]]:
    return [(d.kind, d.names) for d in parse(text)]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("using a = B<int, (3 > 2)>;", DeclarationKind.SUPPORT, "a"),
        ("typedef void (*fn_t)(int, float);", DeclarationKind.SUPPORT, "fn_t"),
        ("typedef int grid_t[3];", DeclarationKind.SUPPORT, "grid_t"),
        ("namespace fs = std::filesystem;", DeclarationKind.SUPPORT, "fs"),
        ("struct X final : Base<decltype(f())> { int a = 3; void g() { if (a) { } } };", DeclarationKind.SUPPORT, "X"),
        ("struct alignas(16) Y { };", DeclarationKind.SUPPORT, "Y"),
        ("template <int N = (3 > 2)> struct Z { };", DeclarationKind.SUPPORT, "Z"),
        ("template <> struct Tr<Q> { int x; };", DeclarationKind.REPEATABLE, "Tr"),
        ("template <> struct std::hash<Q> : Base { int x; };", DeclarationKind.REPEATABLE, "hash"),
        ("struct n::Inner final { };", DeclarationKind.SUPPORT, "Inner"),
        ("enum class E : unsigned char { low };", DeclarationKind.SUPPORT, "E"),
        ("struct Later;", DeclarationKind.REPEATABLE, "Later"),
        ("enum class F : int;", DeclarationKind.REPEATABLE, "F"),
        ("template <class T> concept Small = sizeof(T) < 8;", DeclarationKind.SUPPORT, "Small"),
        ("template <class T> constexpr bool v = false;", DeclarationKind.SUPPORT, "v"),
        ("template <class T> constexpr T cdiv(T a, T b) { return (a + b - 1) / b; }", DeclarationKind.SUPPORT, "cdiv"),
        ("template <int D> void run(float* p) { x(); }", DeclarationKind.REPEATABLE, "run"),
        ("static int helper(int x) { return x; }", DeclarationKind.REPEATABLE, "helper"),
        ("void later(int);", DeclarationKind.REPEATABLE, "later"),
        ("Foo later(Bar x, Baz y);", DeclarationKind.REPEATABLE, "later"),
        ("extern int elsewhere;", DeclarationKind.REPEATABLE, "elsewhere"),
        ('extern "C" int c_elsewhere;', DeclarationKind.REPEATABLE, "c_elsewhere"),
        ("using std::vector;", DeclarationKind.REPEATABLE, "vector"),
        ("__attribute__((device)) int f(int x) { return x; }", DeclarationKind.REPEATABLE, "f"),
        ("__attribute__((host)) __attribute__((device)) int hd(int x) { return x; }", DeclarationKind.HEAD, "hd"),
        ("template <> float go<a::b<(1 > 0)>>(const s& x, t y) { return 1; }", DeclarationKind.HEAD, "go"),
        ("template void go<3>(float*);", DeclarationKind.HEAD, "go"),
        ("std::function<void(int)> make(int x) { return {}; }", DeclarationKind.HEAD, "make"),
        ("struct A get(int x) { return {}; }", DeclarationKind.HEAD, "get"),
        ("Foo<3>::Foo(int x) : a{x}, b(3), c{[] { return 1; }()} { y(); }", DeclarationKind.HEAD, "Foo"),
        ("void f(int x) try { a(); } catch (int) { b(); } catch (...) { c(); }", DeclarationKind.HEAD, "f"),
        ("auto f(int a) -> std::vector<int> { return {}; }", DeclarationKind.HEAD, "f"),
        ("int counter = 0;", DeclarationKind.DATA, "counter"),
        ("int table[3] = {1, 2, 3};", DeclarationKind.DATA, "table"),
        ("struct A a = {1};", DeclarationKind.DATA, "a"),
        ("struct n::A<3> a{1};", DeclarationKind.DATA, "a"),
        ("const struct A* table[] = {&a, 0};", DeclarationKind.DATA, "table"),
        ("enum E level = {low};", DeclarationKind.DATA, "level"),
        ("std::map<int, std::string> m;", DeclarationKind.DATA, "m"),
        ("std::function<void(int)> callback;", DeclarationKind.DATA, "callback"),
        ("inline int shared = 0;", DeclarationKind.DATA, "shared"),
        ("int Foo<3>::x = 4;", DeclarationKind.DATA, "x"),
        ("template <> int Foo<3>::x = 4;", DeclarationKind.DATA, "x"),
        ("int (*hook)(int) = nullptr;", DeclarationKind.DATA, "hook"),
        ("int (*hook)(int) = 0;", DeclarationKind.DATA, "hook"),
        ("int (C::*member)(int);", DeclarationKind.DATA, "member"),
        ("int called = (*hook)(3);", DeclarationKind.DATA, "called"),
        ("int each(int x, int (*f)(int));", DeclarationKind.REPEATABLE, "each"),
        ("std::function<int(int)> each(int x, int (&table)[3]);", DeclarationKind.REPEATABLE, "each"),
        ("typedef int each_t(int (*f)(int));", DeclarationKind.SUPPORT, "each_t"),
        ("__attribute__((constant)) float lut[4];", DeclarationKind.SUPPORT, "lut"),
        ('const char* label = "x";', DeclarationKind.DATA, "label"),
        ('static const char* const names[] = {"a", "b"};', DeclarationKind.SUPPORT, "names"),
        ("static const float t[3] = {1.f, -2, 3e+5};", DeclarationKind.SUPPORT, "t"),
        ("inline constexpr int z{3};", DeclarationKind.SUPPORT, "z"),
        ('static Registrar r("x");', DeclarationKind.SUSPECT, "r"),
        ("static Registrar r;", DeclarationKind.SUSPECT, "r"),
        ("static bool ok = reg();", DeclarationKind.SUSPECT, "ok"),
        ("static auto reg = [] { return 1; }();", DeclarationKind.SUSPECT, "reg"),
        ("__attribute__((constructor)) static void init() { }", DeclarationKind.SUSPECT, "init"),
    ],
)
def test_statement_kinds(text: str, kind: DeclarationKind, name: str) -> None:
    assert [(d.kind, d.names[0]) for d in parse(text)] == [(kind, name)]
    inside = [d for d in parse(f"namespace a {{ {text} }}") if d.text]
    assert [(d.kind, d.context[0]) for d in inside] == [(kind, "namespace a")]


def test_in_c_words_of_cxx_are_names() -> None:
    with pytest.raises(Unsupported, match="has throw, a word of C"):
        parse("void throw(int x) { } int f(int x) { return x; }", is_c=True)


def test_nothing_of_c_runs_at_load() -> None:
    for text in ("static const struct A table[] = {{1, &a}};", "static alias_t value = {1, f};"):
        assert [d.kind for d in parse(text, is_c=True)] == [DeclarationKind.SUPPORT]
        assert [d.kind for d in parse(text)] == [DeclarationKind.SUSPECT]


@pytest.mark.parametrize("text", ["static_assert(1 < 2);", "extern template void f<3>();", ";;", "void f() = delete;"])
def test_statements_without_a_trace(text: str) -> None:
    assert parse(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "template class Foo<3>;",
        "template int v<3>;",
        "static Registrar r(name);",
        "struct X { } x;",
        "struct X { int a; } x = {1};",
        'asm("nop");',
        "void f() {",
        "} void f() { }",
        "#pragma GCC visibility push(hidden)\nvoid f() { }",
        "what is this;",
    ],
)
def test_what_only_a_compiler_can_judge_is_said_to_be_unsupported(text: str) -> None:
    if text == "what is this;":
        assert kinds(text) == [
            (DeclarationKind.DATA, ("this",))
        ]  # three words count as a variable, so the blob is eager
        return
    with pytest.raises(Unsupported):
        parse(text)


def test_contexts_nest_and_end() -> None:
    text = """
    namespace a::b { inline namespace v1 { void f() { } } namespace { void h() { } } }
    extern "C" { void c() { } int x; namespace n { void m() { } } }
    void g() { }
    """
    assert [(d.kind, d.context) for d in parse(text)] == [
        (DeclarationKind.HEAD, ("namespace a::b", "inline namespace v1")),
        (DeclarationKind.REPEATABLE, ("namespace a::b", "namespace")),
        (DeclarationKind.HEAD, ('extern "C"',)),
        (DeclarationKind.DATA, ('extern "C"',)),
        (DeclarationKind.HEAD, ('extern "C"', "namespace n")),
        (DeclarationKind.HEAD, ()),
    ]


def test_bodies_may_hold_anything() -> None:
    text = """void f() { const char* s = "}{\\"" R"d(})")d"; char c = '}', d = '\\''; int n = 1'000'000; for (;;) { ; }
#pragma unroll
    auto l = [&](int x) { return x; }; g({1, 2}, [] { }); } void g() { }"""
    assert kinds(text) == [(DeclarationKind.HEAD, ("f",)), (DeclarationKind.HEAD, ("g",))]


def test_heads_lose_their_bodies_and_keep_the_rest() -> None:
    head = "template <> [[nodiscard]] int Foo<3>::run(float* p, const char (&s)[4]) const & noexcept(true)"
    assert [d.text for d in parse(head + " { return 1; }")] == [head]


def test_enumerators_are_names_too() -> None:
    assert kinds("enum E { A, B = 3 }; enum class C { X };") == [
        (DeclarationKind.SUPPORT, ("E", "A", "B")),
        (DeclarationKind.SUPPORT, ("C",)),
    ]


def test_lexer_helpers() -> None:
    assert without_comments('a /* x\n*/ b // c\n"//" d') == 'a  \n b  \n"//" d'
    assert without_attributes("alignas(16) [[maybe]] int __attribute__((aligned(8), x)) y").split() == ["int", "y"]
    assert flat("f(a(b), c)(d)") == "f()()"
    assert top_level("std::function<void(int)> f<(3 > 2)>(int)").split() == ["std::function", "f", "()"]
    assert after_angles("<a<b>, (c > d), e>> x", 0) == 18
    assert template_prefixes("template <class T> template <> void f()") == (
        ["template <class T>", "template <>"],
        "void f()",
    )
    assert declarator("A<int(3)> f<g<(1)>>(int x, int y)") == ("f", "int x, int y")


@pytest.mark.parametrize(
    ("declaration", "name", "parameters"),
    [
        ("f(int x)", "f", "int x"),
        ("void f()", "f", ""),
        ("std::vector<int> n::f<3>(A<(1 > 2)> a, B (*b)(int))", "f", "A<(1 > 2)> a, B (*b)(int)"),
        ("int f<g<(1)>(2)>(int)", "f", "int"),
        ("void operator()(int)", "", ""),
        ("A operator+(A)", "", ""),
        ("int x", "", ""),
        ("", "", ""),
    ],
)
def test_the_name_and_the_parameters_of_a_function(declaration: str, name: str, parameters: str) -> None:
    assert declarator(declaration) == (name, parameters)


@pytest.mark.parametrize(
    ("declaration", "parts"),
    [
        ("void f(int x)", ("void", "f", "(int x)")),
        ("const A<B<3>>& n::m::f<A<3>, 4>(int)", ("const A<B<3>>&", "n::m::f<A<3>, 4>", "(int)")),
        ("int *::n :: f ()", ("int *", "::n :: f", "()")),
        ("A<int> f(A<int> a)", ("A<int>", "f", "(A<int> a)")),
        ("f(int x)", None),
        ("A operator+(A)", None),
        ("int x", None),
        ("(int)", None),
    ],
)
def test_a_plain_function_is_taken_apart(declaration: str, parts: tuple[str, str, str] | None) -> None:
    assert function_parts(declaration) == parts


@pytest.mark.parametrize(
    ("text", "kind", "names", "is_constant"),
    [
        ("static const int a = 1, b = 2;", DeclarationKind.SUPPORT, ("a",), False),
        ("inline constexpr int a = 1, b = 2;", DeclarationKind.SUPPORT, ("a",), False),
        ("constexpr int a = 1, b = 2;", DeclarationKind.SUPPORT, ("a", "b"), True),
        ("const int a = 1;", DeclarationKind.SUPPORT, ("a",), True),
        ("const A<3> a = f();", DeclarationKind.SUSPECT, ("a",), True),
        ("const std::map<int, A<3>> a;", DeclarationKind.SUSPECT, ("a",), True),
        ("const volatile int a = 1;", DeclarationKind.DATA, ("a",), False),
        ("volatile const int a = 1;", DeclarationKind.DATA, ("a",), False),
        ("int* const a = 0;", DeclarationKind.SUPPORT, ("a",), True),
        ("const int* a = 0;", DeclarationKind.DATA, ("a",), False),
        ("extern const int a = 1;", DeclarationKind.DATA, ("a",), False),
        ("extern constexpr int a = 1;", DeclarationKind.DATA, ("a",), False),
        ("static int table[10][2] = {{1}, {2}};", DeclarationKind.SUPPORT, ("table",), False),
        ("static Table table = {1};", DeclarationKind.SUSPECT, ("table",), False),
        ("static int size = sizeof(int);", DeclarationKind.SUPPORT, ("size",), False),
        ("static int size = p->size;", DeclarationKind.SUSPECT, ("size",), False),
        ("static int first = [] { return 1; }();", DeclarationKind.SUSPECT, ("first",), False),
        ("static void (*hook)(int) = f;", DeclarationKind.SUSPECT, ("hook",), False),
        ("static std::atomic<int> count{0};", DeclarationKind.SUSPECT, ("count",), False),
        ("__attribute__((device)) int d = f();", DeclarationKind.SUPPORT, ("d",), True),
    ],
)
def test_variables(text: str, kind: DeclarationKind, names: tuple[str, ...], is_constant: bool) -> None:
    assert [(d.kind, d.names, d.is_constant) for d in parse(text)] == [(kind, names, is_constant)]


def test_variables_of_an_unnamed_namespace_are_private_and_named_once() -> None:
    inside = [d for d in parse("namespace { const int a = 1, b = 2; int c = 3; Registrar r; }") if d.text]
    assert [(d.kind, d.names, d.is_constant) for d in inside] == [
        (DeclarationKind.SUPPORT, ("a",), False),
        (DeclarationKind.SUPPORT, ("c",), False),
        (DeclarationKind.SUSPECT, ("r",), False),
    ]


def test_a_constant_of_c_is_data_for_others() -> None:
    assert [(d.kind, d.is_constant) for d in parse("const int a = 1;", is_c=True)] == [(DeclarationKind.DATA, False)]
    assert [(d.kind, d.is_constant) for d in parse("static const int a = 1;", is_c=True)] == [
        (DeclarationKind.SUPPORT, False)
    ]


def test_a_specialization_that_says_inline_is_no_head() -> None:
    for word in ("inline", "constexpr"):
        assert [d.kind for d in parse(f"template <> {word} int go<3>(int x) {{ return x; }}")] != [DeclarationKind.HEAD]
    assert [d.kind for d in parse("template <> int go<3>(int x) { return x; }")] == [DeclarationKind.HEAD]


def test_names_with_c_linkage_are_those_of_declarations_and_blocks() -> None:
    text = """extern "C" int one(int); extern "C" { int two(void); extern int three; struct S { int m(); }; }
    int not_c(int); extern "C" int four; extern "C" thread_local int five;
    extern "C" int six(int x) { return seven(x); }
    namespace n { extern "C++" int eight(); }"""
    assert c_names(text, is_c=False) == {"one", "two", "three", "four", "six", "m"}
    assert c_names("int one(int x) { if (x) return two(x); }", is_c=True) == {"one", "two"}
    hidden = '__attribute__((visibility("hidden"), aligned(8))) int one(int) noexcept(true) __asm__("o");'
    assert c_names(f'extern "C" {hidden} extern "C" [[deprecated("x(")]] int two();', is_c=False) == {"one", "two"}
