"""Test data that a blob defines without naming it: vtables, members of instantiated templates,
constants."""

import shutil
from pathlib import Path

import pytest
from support.probe_bench import Bench, by_stem, reasons


@pytest.fixture(params=["g++", "clang++-19", "aarch64-linux-gnu-g++", "riscv64-linux-gnu-g++"])
def any_bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    compiler = shutil.which(request.param)
    if compiler is None:
        pytest.skip(f"no {request.param} on PATH")
    return Bench(tmp_path, (compiler,))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


CLASSES = """
#pragma once
namespace shop {
struct Base { virtual int base(); virtual ~Base() {} };
struct Widget { virtual ~Widget(); virtual int f(); int plain(); };
struct Derived : virtual Base, Widget { virtual int late(); int base() override; int f() override; };
struct Abstract { virtual ~Abstract(); virtual int f() = 0; };
struct Pure { virtual int f() = 0; virtual ~Pure() {} int plain(); };
struct Inline { virtual int f() { return 1; } int plain(); };
template <typename T> struct Box { virtual T get() { return T(); } int plain(); };
template <> struct Box<char> { virtual char get(); };
struct Two { virtual int first(); virtual int second(); };
}
"""


def test_a_class_s_vtable_is_where_its_first_virtual_function_is(any_bench: Bench) -> None:
    (any_bench.at / "classes.h").write_text(CLASSES)
    lead = '#include "classes.h"\nnamespace shop {\n'
    texts = {
        "destructor": "Widget::~Widget() {}",
        "abstract": "Abstract::~Abstract() {}",
        "not_first": "int Widget::f() { return 2; }",
        "no_virtual": "int Widget::plain() { return 3; } int Pure::plain() { return 4; }",
        "without": "int Inline::plain() { return Inline().f(); } template <> int Box<int>::plain() { return 1; }",
        "virtual_base": "int Derived::late() { return 5; }",
        "overrides": "int Derived::base() { return 6; } int Derived::f() { return 7; }",
        "specialized": "char Box<char>::get() { return 8; }",
        "own": "} namespace own { struct Mine { virtual int go(); }; int Mine::go() { return 9; }",
        "hidden_away": "namespace { struct Quiet { virtual int go(); }; int Quiet::go() { return 9; } } void h() {}",
        "first": "int Two::first() { return 1; }",
        "second": "int Two::second() { return 1; }",
    }
    result = any_bench.probe_all({n: lead + text + "\n}\n" for n, text in texts.items()})
    assert reasons(result) == {
        "destructor": "defines the vtable of a class: shop::Widget",
        "abstract": "defines the vtable of a class: shop::Abstract",
        "virtual_base": "defines the vtable of a class: shop::Derived",
        "specialized": "defines the vtable of a class: shop::Box<char>",
        "own": "defines the vtable of a class: own::Mine",
        "first": "defines the vtable of a class: shop::Two",
    }
    compiled = {n: p.compiled for n, p in by_stem(result).items() if p.compiled}
    assert set(compiled) <= {"not_first", "second", "overrides", "hidden_away"}, compiled
    assert all("vtable" in why for n, why in compiled.items() if n != "hidden_away")


TEMPLATES = """
#pragma once
template <typename T> struct Shelf {
    static int count; static constexpr int width = 3; static const int table[3];
    int get() { return count + width + table[0]; }
    virtual int late() { return 1; }
};
template <typename T> int bump() { static int n = 0; return ++n; }
template <typename T> struct Plain { static constexpr int width = 3; int get(); int* where() { return nullptr; } };
template <typename T> int Plain<T>::get() { return *&width; }
template <typename T> struct Empty { int get() { return 1; } int* where(); };
template <typename T> int* Empty<T>::where() { return nullptr; }
inline int shared_by_all = 3;
struct Inlined { virtual int f() { return shared_by_all; } };
"""


def test_data_of_explicit_instantiations_is_the_blob_s_and_of_implicit_ones_is_not(any_bench: Bench) -> None:
    (any_bench.at / "templates.h").write_text(TEMPLATES)
    lead = '#include "templates.h"\n'
    count = "template <typename T> int Shelf<T>::count = 1;\n"
    texts = {
        "member": count + "template int Shelf<int>::count;",
        "whole": "template struct Shelf<long>;",
        "table": "template <typename T> const int Shelf<T>::table[3] = {1, 2, 3};\n"
        "template const int Shelf<int>::table[3];",
        "vtable": "template <typename T> struct Virtual { virtual int f() { return 1; } };\n"
        "template struct Virtual<int>;",
        "variable": "template <typename T> T level = 3; template int level<int>;",
        "weak": "extern int loose; __attribute__((weak)) int loose = 3;",
        "constant": "template struct Plain<int>;",
        "implicit": count + "int use_shelf() { return ++Shelf<char>::count + bump<char>() + Inlined().f(); }\n"
        "template struct Empty<char>;",
        "function": 'template int bump<int>();\ntemplate int Plain<long>::get();\nasm("");',
    }
    result = any_bench.probe_all({n: lead + text + "\n" for n, text in texts.items()}, "-std=c++17")
    assert reasons(result) == {
        "member": "defines data that other files can use: Shelf<int>::count",
        "whole": "defines data that other files can use: Shelf<long>::width",
        "vtable": "defines the vtable of a class: Virtual<int>",
        "table": "defines data that other files can use: Shelf<int>::table",
        "variable": "defines data that other files can use: level<int>",
        "weak": "defines data that other files can use: loose",
        "constant": "defines data that other files can use: Plain<int>::width",
    }
    found = by_stem(result)
    assert found["implicit"].weak_data >= {"_ZN5ShelfIcE5countE", "_ZTV7Inlined"}
    assert found["implicit"].merged == {"_ZN5EmptyIcE3getEv", "_ZN5EmptyIcE5whereEv"}
    assert "_Z4bumpIiEiv" in found["function"].merged and "_ZZ4bumpIiEivE1n" in found["function"].weak_data


def test_a_constant_that_is_declared_extern_is_data_for_others(any_bench: Bench) -> None:
    (any_bench.at / "tables.h").write_text(
        "#pragma once\nnamespace t { extern const unsigned char table[4];\n"
        "extern const int one, two; struct P { int x; };\n"
        'extern const P point __attribute__((visibility("default"))); extern const char* const name; }\n'
        "extern int unrelated(int quiet);\n"
    )
    lead = '#include "tables.h"\nnamespace t {{\n{}\nint f_{}() {{ return 1; }}\n}}\n'
    texts = {
        "array": "const unsigned char table[4] = {1, 2, 3, 4};",
        "second": "const int zero = 0, two = 2;",
        "folded": "constexpr int one = 1;",
        "struct": "const P point = {3};",
        "pointer": 'const char* const name = "x";',
        "itself": "extern const int here; const int here = 3;",
        "private": "const int quiet = 3; static const int f2 = 4; constexpr int other[2] = {1, 2};",
    }
    result = any_bench.probe_all({n: lead.format(text, n) for n, text in texts.items()})
    assert reasons(result) == {
        "array": "defines data that other files can use: t::table",
        "second": "defines data that other files can use: t::two",
        "folded": "defines data that other files can use: t::one",
        "struct": "defines data that other files can use: t::point",
        "pointer": "defines data that other files can use: t::name",
        "itself": "defines data that other files can use: t::here",
    }
    assert by_stem(result)["private"].symbols == ("_ZN1t9f_privateEv",)


def test_data_in_declarations_of_unusual_shape_is_seen(any_bench: Bench) -> None:
    texts = {
        "with_type": "struct S { int x; } record = {1};",
        "with_function": "int number, other();",
        "volatile": "volatile const int reg = 1;",
        "pointer": "int (*handlers[2])(int) = {};",
    }
    result = any_bench.probe_all({n: f"{text}\nint f_{n}() {{ return 1; }}\n" for n, text in texts.items()})
    assert reasons(result) == {
        "with_type": "defines data that other files can use: record",
        "with_function": "defines data that other files can use: number",
        "volatile": "defines data that other files can use: reg",
        "pointer": "defines data that other files can use: handlers",
    }


def test_a_member_that_its_class_says_is_inline_is_there_for_those_who_need_it(any_bench: Bench) -> None:
    result = any_bench.probe(
        blob="struct S { inline int m(); int n(); };\nint S::m() { return 1; }\nint S::n() { return m(); }\n"
    )
    assert by_stem(result)["blob"].weak == {"_ZN1S1mEv"}
    assert set(by_stem(result)["blob"].symbols) == {"_ZN1S1mEv", "_ZN1S1nEv"}


def test_functions_without_a_body_of_their_own_are_offered(any_bench: Bench) -> None:
    texts = {
        "alias": 'extern "C" { int to_f(int x) { return x; } int also_f(int) __attribute__((alias("to_f")));\n'
        'int weakly_f(int) __attribute__((weak, alias("to_f"))); }',
        "brackets": 'extern "C" int g(int x) { return x; }\nextern "C" [[gnu::alias("g")]] int also_g(int);',
        "chosen": 'extern "C" { static int low(int x) { return x; } int (*pick())(int) { return low; }\n'
        'int chosen(int) __attribute__((ifunc("pick"))); }\nint beside() { return chosen(1); }',
        "pragma": '#pragma weak soft\nextern "C" int soft(int x) { return x; }',
        "label": 'int plain(int x) asm("labelled");\nint plain(int x) { return x; }',
        "data": 'extern "C" { int number = 3; extern int also_number __attribute__((alias("number"))); }',
        "constructor": "static void start() __attribute__((constructor));\n"
        "int level();\nstatic void start() { level(); }\nint shown() { return 1; }",
    }
    if any_bench.compiler[0].endswith("/g++"):
        texts["clones"] = 'extern "C" __attribute__((target_clones("default", "avx2"))) int fast(int x) { return x; }'
        texts["versions"] = (
            '__attribute__((target("default"))) int best() { return 0; }\n'
            '__attribute__((target("avx2"))) int best() { return 1; }'
        )
    result = any_bench.probe_all({n: text + "\n" for n, text in texts.items()})
    assert reasons(result) == {
        "data": "defines data that other files can use: number, also_number",
        "constructor": "has code that runs when the library is loaded: start at constructor.cpp:1",
    }
    found = by_stem(result)
    assert {"to_f", "also_f", "weakly_f"} == set(found["alias"].symbols)
    assert found["alias"].merged == {"weakly_f"} and not found["alias"].weak
    assert set(found["brackets"].symbols) == {"g", "also_g"}
    assert set(found["chosen"].symbols) == {"chosen", "pick", "_Z6besidev"}
    assert found["pragma"].merged == {"soft"}
    assert found["label"].symbols == ("labelled",)
    if "clones" in texts:
        assert "fast" in found["clones"].symbols
        assert {"_Z4bestv", "_Z4bestv.avx2"} <= set(found["versions"].symbols)


def test_what_assembler_does_to_symbols_is_seen(any_bench: Bench) -> None:
    texts = {
        "versioned": 'extern "C" int old(int x) { return x; }\nasm(".symver old,f@V1");',
        "default": 'extern "C" int fresh(int x) { return x; }\nasm(".symver fresh,f@@V2");',
        "label": 'extern "C" int inasm(int);\nasm(".globl inasm\\ninasm: nop");\nint h() { return inasm(1); }',
        "set": 'extern "C" int one(int x) { return x; }\nasm(".globl two\\n.set two,one");',
        "hidden": 'extern "C" int four(int x) { return x; }\nasm(".hidden four");',
    }
    if "clang" not in any_bench.compiler[0]:  # clang refuses it
        texts["weak"] = 'extern "C" int three(int x) { return x; }\nasm(".weak three");'
    result = any_bench.probe_all({n: text + "\n" for n, text in texts.items()})
    assert reasons(result) == {
        "versioned": "defines a symbol with a version: f@V1",
        "default": "defines a symbol with a version: f@@V2",
        "label": "defines a symbol in assembler, without a type: inasm",
    }
    found = by_stem(result)
    assert set(found["set"].symbols) == {"one", "two"}
    assert all(found[n].merged == {"three"} for n in texts if n == "weak")
    assert found["hidden"].unreachable == ("four",)


def test_c_of_all_ages(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ("/usr/bin/gcc",), suffix=".c")
    (tmp_path / "inlined.h").write_text("inline int in_header(int x) { return x; }\n")
    texts = {
        "old": "int add(a, b) int a; int b; { return a + b; }\n"
        "int twice(a) int a; { return a * 2; }\nint last(void) { return 1; }",
        "emits": "extern inline int emitted(int x) { return x; }\nint h(void) { return 1; }",
        "later": "inline int declared(int x) { return x; }\nint declared(int x);\nint i(void) { return 1; }",
        "not_emitted": "inline int quiet(int x) { return x; }\nint j(void) { return quiet(1); }",
        "from_header": '#include "inlined.h"\nextern int in_header(int x);\nint beside(void) { return 1; }',
        "constant": "const int visible = 3;\nint f(void) { return visible; }",
        "tentative": "int later_on;\nint g(void) { return later_on; }",
        "nested": "int outer(int x) { int inner(int y) { return x + y; } return inner(1); }",
    }
    result = bench.probe_all({n: text + "\n" for n, text in texts.items()})
    assert reasons(result) == {
        "constant": "defines data that other files can use: visible",
        "tentative": "defines data that other files can use: later_on",
    }
    found = by_stem(result)
    assert set(found["old"].symbols) == {"add", "twice", "last"}
    assert set(found["emits"].symbols) == {"emitted", "h"}
    assert set(found["later"].symbols) == {"declared", "i"}
    assert found["not_emitted"].symbols == ("j",)
    assert set(found["from_header"].symbols) == {"in_header", "beside"}
    assert found["nested"].symbols == ("outer",)


def test_a_blob_whose_code_is_about_its_own_library_is_eager(bench: Bench) -> None:
    lead = "#define _GNU_SOURCE 1\n#include <dlfcn.h>\n"
    texts = {
        "entry": 'static int entry __attribute__((used, section("registry"))) = 3;\nint a() { return entry; }',
        "reads": 'extern "C" int __start_registry[];\nint b() { return __start_registry[0]; }',
        "next": 'void* c() { return dlsym(RTLD_NEXT, "malloc"); }',
        "where": "int d() { Dl_info info; return dladdr((void*)d, &info); }",
        "counted": 'static int e __attribute__((section("registry"))) = __COUNTER__;\nint f() { return e; }',
        "pushed": 'void p() { asm(".pushsection registry,\\"aw\\"\\n.long 1\\n.popsection"); }',
        "origin": 'void* o() { return dlopen("$ORIGIN/plug.so", RTLD_NOW); }',
        "starts": 'static void s() {}\nvoid (*const start)() __attribute__((section(".init_array"))) = s; void i() {}',
        "fine": 'void* g() { return dlsym(RTLD_DEFAULT, "malloc"); }\n'
        '__attribute__((section(".text.hot"))) int h();\nint h() { return 1; }',
    }
    headers = {
        "set.h": 'static const int entry __attribute__((used, section("set"))) = 3;\n',
        "asm.h": 'static inline void s() { asm(".pushsection set,\\"a\\"\\n.long 1\\n.popsection"); }\n',
    }
    for name, text in headers.items():
        (bench.at / name).write_text("#pragma once\n" + text)
        texts[f"header_{name[:-2]}"] = f'#include "{name}"\nint q_{name[:-2]}() {{ return 1; }}'
    result = bench.probe_all({n: lead + text + "\n" for n, text in texts.items()})
    assert set(by_stem(result)) == {"fine"}
    assert reasons(result) == {
        "entry": "puts something into a section that is read as a whole: registry, by way of __start_registry",
        "reads": "refers to the bounds of a section, of which each library has its own: __start_registry",
        "next": "asks dlsym for RTLD_NEXT, the definition after its own library's",
        "where": "asks in which file code is (dladdr, $ORIGIN), and code of a blob is in a file of its own",
        "pushed": "puts something into a section that is read as a whole: registry, by way of __start_registry",
        "origin": "asks in which file code is (dladdr, $ORIGIN), and code of a blob is in a file of its own: $ORIGIN",
        "counted": "puts something into a section that is read as a whole: registry, by way of __start_registry",
        "starts": "has code that runs when the library is loaded: .init_array",
        "header_set": "puts something into a section that is read as a whole: set, by way of __start_set, by a header",
        "header_asm": "puts something into a section that is read as a whole: set, by way of __start_set",
    }


def test_what_registers_is_named_with_its_place(any_bench: Bench) -> None:
    (any_bench.at / "register.h").write_text(
        "#pragma once\nnamespace reg { struct Init { Init(const char*); ~Init(); }; }\n"
        "#define REGISTER_LIBRARY(x) static const reg::Init REGISTER_LIBRARY_static_init_##x(#x)\n"
        "template <int N> struct Box { int get() { return N; } };\n"
    )
    lead = '#include "register.h"\n\n'
    texts = {
        "macro": "REGISTER_LIBRARY(ops);\nvoid a() {}",
        "unseen": "template struct Box<1>;\nREGISTER_LIBRARY(ops);",
        "spaced": 'namespace deep { static reg::Init here("x"); }\ntemplate struct Box<2>;',
    }
    result = any_bench.probe_all({n: lead + text + "\n" for n, text in texts.items()})
    start = "has code that runs when the library is loaded: "
    assert reasons(result) == {
        "macro": start + "REGISTER_LIBRARY_static_init_ops at macro.cpp:3, REGISTER_LIBRARY",
        "unseen": start + "REGISTER_LIBRARY_static_init_ops at unseen.cpp:4, REGISTER_LIBRARY",
        "spaced": start + "deep::here at spaced.cpp:3",
    }


def test_instances_of_member_templates_with_deduced_arguments_are_the_blob_s(any_bench: Bench) -> None:
    (any_bench.at / "cord.h").write_text(
        "#pragma once\n#include <string>\n#include <type_traits>\n"
        "template <class T> using IfString = typename std::enable_if<std::is_same<T, std::string>::value, int>::type;\n"
        "struct Cord { template <class T, IfString<T> = 0> explicit Cord(T&&); Cord(int);\n"
        "template <class T, IfString<T> = 0> void append(T&&); template <class U> static int of(U); };\n"
        "extern template Cord::Cord(std::string&&);\nextern template void Cord::append(std::string&&);\n"
    )
    text = (
        '#include "cord.h"\ntemplate <class T, IfString<T>> Cord::Cord(T&&) {}\n'
        "template <class T, IfString<T>> void Cord::append(T&&) {}\ntemplate <class U> int Cord::of(U) { return 1; }\n"
        "template Cord::Cord(std::string&&);\ntemplate void Cord::append(std::string&&);\n"
        "template int Cord::of(float);\nCord::Cord(int) {}\n"
    )
    found = by_stem(any_bench.probe(cord=text))["cord"]
    for part in ("CordC1INSt", "6appendINSt", "2ofIfE", "CordC1Ei"):
        (symbol,) = (s for s in found.symbols if part in s)
        assert symbol not in found.weak, symbol


def test_a_function_with_arguments_that_the_first_call_does_not_keep_is_eager(tmp_path: Path) -> None:
    clang = shutil.which("clang++-19")
    if clang is None:
        pytest.skip("no clang++-19 on PATH")
    bench = Bench(tmp_path, (clang, "--target=riscv64-linux-gnu", "-march=rv64gcv", "-nostdinc++"))
    lead = "typedef __rvv_float32m1_t Vector;\n"
    result = bench.probe_all(
        {"vector": lead + "Vector same(Vector v) { return v; }\n", "plain": "int f() { return 1; }\n"}
    )
    assert reasons(result) == {
        "vector": "defines a function with arguments in vector registers, which the first call would not keep: "
        "same(__rvv_float32m1_t)",
    }


STARTS = {
    "call": ("void reg(const char *); struct R { R(const char *n) { reg(n); } }; static R r(__FILE__);", "R::R"),
    "end": ("void reg(); struct R { int x; ~R() { reg(); } }; static R r;", "R::~R"),
    "attribute": ("void reg(); static __attribute__((constructor)) void start() { reg(); }", "start()"),
    "bracketed": ("void reg(); [[gnu::constructor]] static void start() { reg(); }", "start()"),
    "counted": ("inline int f() { static int n; return ++n; } static int mine = f();", "f()"),
    "changed": ("inline int total; static int mine = ++total;", "total"),
    "registered": (
        "#include <vector>\ninline std::vector<int> all; static bool mine = (all.push_back(1), true);",
        "all",
    ),
    "read": ("extern int level; static int &mine = level; static int now = ++mine;", "level"),
    "printed": ('#include <iostream>\nstruct R { R() { std::cerr << "made"; } }; static R r;', "R::R"),
    "timed": ("#include <ctime>\nstatic std::time_t begun = std::time(nullptr);", "time"),
    "table": (
        "struct R { R(int (**f)()) { f[0](); } }; int f(); static int (*t[])() = {f}; static R r(t);",
        "R::R",
    ),
    "made of its own": ("#include <vector>\nstruct R { R(); ~R(); };\nstatic std::vector<R> all(3);", "vector<R"),
    "section": ('__asm__(".pushsection .init,\\"ax\\"\\n nop\\n.popsection");', ".init"),
    "streams": ("#include <iostream>", ""),
    "text": ('#include <string>\nstatic const std::string name = "a long name of more than a few letters";', ""),
    "vector": ("#include <vector>\nstatic std::vector<int> mine(4, 1);", ""),
}


@pytest.mark.parametrize("header", STARTS)
def test_start_up_code_of_headers_counts_if_others_can_tell_when_it_runs(any_bench: Bench, header: str) -> None:
    text, about = STARTS[header]
    (any_bench.at / "header.h").write_text("#pragma once\n" + text + "\n")
    lead = '#include "header.h"\n'
    result = any_bench.probe_all(
        {"a": lead + "int a(int x) { return x; }\n", "b": lead + "void b() {}\n"}, "-std=c++17"
    )
    if not about:
        assert reasons(result) == {} and by_stem(result)["a"].symbols == ("_Z1ai",)
    else:
        told = reasons(result)
        assert told.keys() == {"a", "b"}, told
        for reason in told.values():
            assert reason.startswith("has code that runs when the library is loaded") and about in reason, reason
