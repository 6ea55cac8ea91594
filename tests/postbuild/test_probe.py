"""Test the probe with real compilers: what it says about a blob is what compiling that blob
yields."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.probe_bench import NO_CACHE, Bench, by_stem, check, reasons

from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.probe import probe
from lazyck.postbuild.reasons import Reason, ReasonKind


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(params=["g++", "clang++-19", "aarch64-linux-gnu-g++", "riscv64-linux-gnu-g++"])
def any_bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    compiler = shutil.which(request.param)
    if compiler is None:
        pytest.skip(f"no {request.param} on PATH")
    return Bench(tmp_path, (compiler,))


def test_explicit_specializations_with_aliases_that_repeat(any_bench: Bench) -> None:
    blob = """
#include "text.h"
using dtype_0 = {t};
using unused_0 = typename lib::does_not_exist<dtype_0>::type;
using trait_0 = lib::Traits<dtype_0, {d}, lib::Mode::fast>;
#include <cstdio>
template <> float launch_<trait_0>(const lib::Args& a, int stream) {{ std::printf("%d}}", a.n + '{{'); return {d}; }}
template<>
std::string name_<trait_0>() {{ return "x" + std::to_string({d}); }}
"""
    texts = {
        f"b_{t}_{d}": blob.format(t=t, d=d).replace("using unused_0", "// using unused_0")
        for t in ("float", "double")
        for d in (1, 2)
    }
    found = check(any_bench, **texts)
    assert all(len(p.symbols) == 2 for p in found.values())


def test_constructors_whose_members_need_an_initializer(any_bench: Bench) -> None:
    (any_bench.at / "made.h").write_text(
        "struct Part { explicit Part(int); Part(const Part&) = delete; ~Part(); };\n"
        "template <int N> struct Made { Made(int, const Part&); Part first; const int& second; };\n"
    )
    blob = """
#include "made.h"
namespace {{ int number(int n) {{ return n + {n}; }} const int numbers[] = {{1, 2}}; }}
static int other(int n) {{ return n - {n}; }}
struct Pair {{ Part p, q; Pair(int a, int b); }};
template <> Made<{n}>::Made(int n, const Part&) : first{{number(n)}}, second(numbers[{n} % 2]) {{ other(n); }}
Pair::Pair(int a, int b) : p(other(a)), q{{[] {{ return 3; }}()}} {{ }}
"""
    found = check(any_bench, **{f"b{n}": blob.format(n=n).replace("Pair", f"Pair{n}") for n in (1, 2, 3)})
    assert all(len(p.symbols) == 4 and not p.compiled for p in found.values())


def test_bodies_and_aliases_that_do_not_compile_hurt_nobody(bench: Bench) -> None:
    text = """
#include "common.h"
using trait_0 = lib::Traits<float, 160, lib::Mode::plain>;
using kernel_0 = lib::NoSuchPipeline<trait_0>;
template <> float launch_<trait_0>(const lib::Args& a, int stream) { return kernel_0::run(a); }
"""
    result = bench.probe(broken=text)
    assert [p.symbols for p in result.probed] == [("_Z7launch_IN3lib6TraitsIfLi160ELNS0_4ModeE0EEEEfRKNS0_4ArgsEi",)]


def test_explicit_instantiations_of_functions_and_members(any_bench: Bench) -> None:
    text = """
#include "common.h"
template void run<3>(float*, int);
template void run<4>(float* p, int n);
"""
    result = any_bench.probe(inst=text)
    assert set(result.probed[0].symbols) == {"_Z3runILi3EEvPfi", "_Z3runILi4EEvPfi"}
    assert not result.probed[0].compiled


def test_plain_functions_of_every_shape(any_bench: Bench) -> None:
    text = """
#include "text.h"
#include <functional>
#include <cassert>
#include <cstdarg>
namespace out { inline namespace v1 { void versioned(int) {} }
namespace in { int nested(const lib::Args& a) noexcept { return a.n; } } namespace { void hidden() {} struct L {}; } }
namespace out::deep { std::string text(std::string s) { return s; } }
extern "C" void plain_c(int* p) { *p = 1; }
extern "C" { int block_c(void) { return 1; } static int not_this(void) { return 2; } }
[[nodiscard]] __attribute__((noinline)) int attributed(int x) { return x; }
auto trailing(int x, float y = 2.5f) -> decltype(x + y) { return x + y; }
static int local(int x) { return x; }
inline int in_line(int x) { return x; }
constexpr int constant(int x) { return x + 1; }
int (*returns_pointer(int x))(int) { return nullptr; }
int& ref(int (&a)[3], std::function<void(int)> f = {}) { f(1); return a[0]; }
int variadic(const char* f, ...) { va_list v; va_start(v, f); va_end(v); return 0; }
int guarded(int x) try { return local(x) + in_line(x); } catch (...) { return 1; } 
lib::Args operator+(const lib::Args& a, const lib::Args& b) { return a; }
bool operator<(const lib::Args& a, const lib::Args& b) { assert(a.n); return a.n < b.n; }
int convert(int x) { return x; }
float convert(float x) { return x; }
lib::Args deduced(lib::Args a) { auto f = [&](int i) { return a; }; return f(1'000); }
auto automatic(int x) { return x * 2; }
void lambda_default(std::function<int(int)> f = [](int x) { return x; }) { f(R"x(})x" ? 1 : 2); }
__attribute__((weak)) void can_be_replaced() {}
"""
    result = any_bench.probe(shapes=text)
    one = result.probed[0]
    assert not one.compiled, one.compiled
    assert set(one.symbols) == any_bench.real_functions(one.blob.source) | {"_Z15can_be_replacedv"}
    assert len(one.symbols) == 19


def test_members_defined_out_of_class(any_bench: Bench) -> None:
    text = """
#include "common.h"
template <> void Engine<3>::go(float* p) const { *p = v; }
template <> int Engine<3>::width() { return 3; }
template <> int Engine<3>::operator()(int x) && { return x; }
template <> Engine<3>::Engine() : v{3} { }
struct Own { Own(int); ~Own(); operator bool() const; int x; static void s(); };
Own::Own(int y) : x(y) { }
Own::~Own() { }
Own::operator bool() const { return x; }
void Own::s() { }
"""
    check(any_bench, members=text)


def test_members_defaulted_out_of_class(any_bench: Bench) -> None:
    (any_bench.at / "window.h").write_text(
        "#include <memory>\n#include <vector>\n"
        "struct Window { struct Impl; Window(); Window(Window&&) noexcept; Window& operator=(Window&&) noexcept;\n"
        "  ~Window() noexcept(false); std::unique_ptr<Impl> impl; };\n"
        "struct Copied { explicit Copied(int); Copied(const Copied&); Copied& operator=(const Copied&); int n; };\n"
        "template <int N> struct Pane { ~Pane(); std::vector<int> all; };\n"
    )
    text = """
#include "window.h"
static int number() { return 3; }
struct Window::Impl { std::vector<long> all; Impl() : all(number()) { } };
namespace { struct Own { Own(); int x; }; Own::Own() = default; }
template <> Pane<3>::~Pane() = default;
Window::Window() : impl(new Impl) { }
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;
Window::~Window() noexcept(false) = default;
Copied::Copied(const Copied&) = default;
Copied& Copied::operator=(const Copied&) = default;
"""
    assert len(check(any_bench, window=text)["window"].symbols) == 12


def test_templates_of_members_are_instantiated_without_a_declaration_of_their_own(any_bench: Bench) -> None:
    (any_bench.at / "matrix.h").write_text(
        "struct Rows { template <class A> Rows(A*, int); template <class A> void add(A const&); int size() const; };\n"
    )
    text = """
#include "matrix.h"
template <class A> Rows::Rows(A* a, int n) { add(*a); }
template <class A> void Rows::add(A const& a) { }
inline int Rows::size() const { return 1; }
template Rows::Rows(int* a, int n);
template Rows::Rows(long*, int);
template void Rows::add<int>(int const& a);
"""
    one = any_bench.probe(rows=text).probed[0]
    assert not one.compiled, one.compiled
    either = {f"_ZN4RowsC{c}I{t}EEPT_i" for c in (1, 2) for t in "il"}
    assert set(one.symbols) == {*either, "_ZN4Rows3addIiEEvRKT_"}


def test_names_that_end_like_keywords_and_types_with_const_behind_them(any_bench: Bench) -> None:
    text = """
#include "text.h"
struct ErrorEntry { std::string last; int code{-1}; };
double sum(ErrorEntry const* entry, lib::Args const& args);
std::string text_of(lib::seq<1> volatile* numbers);
int retry(ErrorEntry& e) { return e.code; }
struct Pool { int low; int high; Pool(int n); };
Pool::Pool(int n) : low{n}, high{[] { int major = -1; return major; }()} { }
int last(ErrorEntry e) try { return e.code; } catch (...) { return 0; }
"""
    assert len(check(any_bench, entry=text)["entry"].symbols) == 4


def test_a_head_that_comes_out_of_a_macro_or_an_unguarded_include(bench: Bench) -> None:
    (bench.at / "define.h").write_text(
        '#pragma once\n#include "common.h"\n#define MAKE(T, D) template <> float launch_<lib::Traits<T, D, '
        "lib::Mode::plain>>(const lib::Args&, int) { return D; }\n"
    )
    (bench.at / "body.inc").write_text(
        "#ifndef KIND\n#define KIND plain\n#endif\n"
        "template <> float launch_<lib::Traits<char, HEAD_DIM, lib::Mode::KIND>>(const lib::Args&, int) "
        "{ return HEAD_DIM; }\n"
    )
    texts = {f"m{d}": f'#include "define.h"\nMAKE(float, {d})\nMAKE(double, {d})\n' for d in (1, 2)}
    for d in (3, 4, 5):
        kind = "#define KIND fast\n" if d == 4 else ""
        texts[f"i{d}"] = f'#include "common.h"\n#define HEAD_DIM {d}\n{kind}#include "body.inc"\n'
    check(bench, **texts)


def test_a_namespace_of_which_nothing_is_needed_can_still_be_named(any_bench: Bench) -> None:
    # As in llama.cpp's mma.cuh, there is no include guard, so each blob has all of the header's
    # text as its own.
    (any_bench.at / "tiles.h").write_text(
        "namespace tiles { namespace deep { inline int unused() { return 1; } } }\n"
        "using namespace tiles;\nusing namespace tiles::deep;\nnamespace short_name = tiles::deep;\n"
    )
    lead = '#include "common.h"\n#include "tiles.h"\n'
    texts = {
        f"t{d}": f"{lead}void use{d}(lib::Args&) {{ short_name::unused(); }}\n"
        f"namespace tiles {{ int own{d}() {{ return 1; }} }}\n"
        for d in (1, 2)
    }
    check(any_bench, **texts)


def test_blobs_whose_macros_change_a_shared_header_are_read_apart(bench: Bench) -> None:
    (bench.at / "tile.h").write_text(
        '#pragma once\n#include "common.h"\n#ifndef TILE\n#define TILE 1\n#endif\n'
        "template <typename T> struct Tiled { }; void tiled(lib::seq<TILE>);\n"
    )
    text = (
        '#define TILE {d}\n#define OWN own_{d}\n#include "tile.h"\nvoid tiled(lib::seq<TILE>) {{}}\nvoid OWN() {{}}\n'
    )
    texts = {f"t{d}": text.format(d=d) for d in (7, 8, 9)}
    texts["default"] = '#include "tile.h"\nvoid other(lib::seq<TILE>) {}\n'
    check(bench, **texts)


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("", "/* c */ #define N 4\n", "#ifndef N\n#define N 8\n#endif\n"),
        ("#pragma once\n#define N 4\n", '#include "other.h"\n', "#ifndef N\n#define N 8\n#endif\n"),
        ("#pragma once\n#undef K\n#define K 4\n", '#include "other.h"\n#define N K\n', "#define N K\n"),
        (
            "#pragma once\n#define P(x) CFG_##x\nenum { from_header = P(SIZE) };\n",
            '#define CFG_SIZE 4\n#include "other.h"\n#define N from_header\n',
            '#define CFG_SIZE 8\n#include "other.h"\n#define N from_header\n',
        ),
        (
            "#pragma once\nstruct S { char c; int i; };\n",
            '#pragma pack(1)\n#include "other.h"\n#pragma pack()\n#define N sizeof(S)\n',
            '#include "other.h"\n#define N sizeof(S)\n',
        ),
        ("", "#pragma pack(1)\n#define N 4\n", "struct S { char c; int i; };\n#define N sizeof(S)\n"),
    ],
)
def test_nothing_of_one_blob_holds_for_the_next(any_bench: Bench, header: str, first: str, second: str) -> None:
    (any_bench.at / "other.h").write_text(header)
    lead, last = '#include "common.h"\n', "void {}(lib::seq<N>) {{}}\n"
    found = check(
        any_bench, flags=["-DK=8"], compiled=["a"] if "/*" in first or "pack(1)" in first else [],
        a=lead + first + last.format("a"), b=lead + second + last.format("b"),
    )  # fmt: skip
    assert len(found) == 2


@pytest.mark.parametrize(
    ("compiler", "words", "suffix", "symbol"),
    [
        ("g++", [], ".c", "_Z1fi"),
        ("gcc", ["-x", "c++"], ".c", "_Z1fi"),
        ("g++", ["-xc"], ".cpp", "f"),
        ("gcc", [], ".c", "f"),
    ],
)
def test_the_language_is_that_of_the_driver_or_option(
    tmp_path: Path, compiler: str, words: list[str], suffix: str, symbol: str
) -> None:
    bench = Bench(tmp_path, (f"/usr/bin/{compiler}",), suffix=suffix)
    source = tmp_path / f"one{suffix}"
    source.write_text("int f(int x) { return x; }\n")
    command = bench.command(str(source), *words)
    call = replace(command.call, tool=compiler)
    (found,) = probe([replace(command, call=call)], tmp_path / "work", NO_CACHE, jobs=1).probed
    assert found.symbols == (symbol,)


def test_a_macro_of_the_command_line_survives_a_blob_that_redefines_it(bench: Bench) -> None:
    first = '#include "common.h"\n#undef WIDE\n#define WIDE 2\nvoid one(lib::seq<WIDE>) {}\n'
    second = '#include "common.h"\nvoid two(lib::seq<WIDE>) {}\n'
    check(bench, flags=["-DWIDE=9"], a=first, b=second)


def test_whole_file_guards_are_resolved(bench: Bench) -> None:
    on = '#if !defined(NOWHERE) || defined(X)\n#include "common.h"\nvoid on_{i}(int) {{}}\n#endif\n'
    found = check(
        bench, a=on.format(i=1), b=on.format(i=2), off='#ifdef NOWHERE\n#include "gone.h"\nvoid off() {}\n#endif\n'
    )
    assert found["off"].symbols == ()


def test_private_types_of_the_same_name_keep_their_spelling_in_symbols(any_bench: Bench) -> None:
    text = """
#include "text.h"
namespace mine {{ struct Params {{ int x[{d}]; using type = Params; }};
enum Kind {{ A{d}, B }}; constexpr int dim = {d}; }}
using P = mine::Params;
typedef void (*callback_t)(const mine::Params&, mine::Kind);
template <int D> void private_template(P::type* p, lib::seq<D, mine::dim>) {{ p->x[0] = D; }}
template void private_template<{d}>(P::type* p, lib::seq<{d}, mine::dim>);
void take_{d}(mine::Params p, P*, callback_t, std::string, mine::Params) {{ private_template<{d}>(&p, {{}}); }}
template <> float launch_<mine::Params>(const lib::Args&, int) {{ return {d}; }}
"""
    result = any_bench.probe_all({f"p{d}": text.format(d=d) for d in (1, 2, 3)})
    for one in result.probed:
        assert not one.compiled
        real = any_bench.real_functions(one.blob.source)
        d = one.blob.stem[1:]
        weak = f"_Z16private_templateILi{d}EEvPN4mine6ParamsEN3lib3seqIJXT_EXL"
        assert real <= set(one.symbols)
        assert [s.startswith("_Z16private_templateILi" + d) for s in set(one.symbols) - real] == [True], weak


def test_specializations_with_types_of_an_anonymous_namespace_are_nobodys_business(bench: Bench) -> None:
    text = """
#include "common.h"
namespace {{ template <int K> struct instance {{ static int run() {{ return lib::missing_{d}<K>(); }} }};
struct tag {{}}; }}
template <> float launch_<tag>(const lib::Args&, int) {{ return {d}; }}
void seen_{d}() {{ }}
"""
    result = bench.probe_all({f"n{d}": text.format(d=d) for d in (1, 2)})
    assert [p.symbols for p in result.probed] == [("_Z6seen_1v",), ("_Z6seen_2v",)]


def test_instantiations_that_a_header_declares_extern(any_bench: Bench) -> None:
    (any_bench.at / "declared.h").write_text(
        '#pragma once\n#include "common.h"\n'
        + "".join(f"extern template void run<{d}>(float*, int);\n" for d in range(10, 20))
        + "namespace deep { template <int D, class P> P* walk(P* p) { return p + D; }\n"
        + "".join(f"extern template lib::Args* walk<{d}>(lib::Args*);\n" for d in range(10, 20))
        + "}\n"
    )
    text = """
#include "declared.h"
using args_0 = lib::Args;
template void run<{d}>(float* p, int n);
namespace deep {{ template args_0* walk<{d}>(args_0*); }}
void own_{d}() {{ }}
"""
    result = any_bench.probe_all({f"x{d}": text.format(d=d) for d in range(10, 20)})
    assert not any(p.compiled for p in result.probed)
    assert [set(p.symbols) for p in result.probed] == [
        {f"_Z3runILi{d}EEvPfi", f"_ZN4deep4walkILi{d}EN3lib4ArgsEEEPT0_S4_", f"_Z6own_{d}v"} for d in range(10, 20)
    ]


def test_an_instantiation_that_a_header_declares_has_the_visibility_of_the_options(any_bench: Bench) -> None:
    (any_bench.at / "declared.h").write_text(
        "#pragma once\ntemplate <int N> int seen(int x) { static int n; return x + N + ++n; }\n"
        'template <int N> __attribute__((visibility("hidden"))) int quiet(int x) { return x + N; }\n'
        'template <int N> __attribute__((visibility("default"))) int loud(int x) { return x + N; }\n'
        + "".join(f"extern template int {f}<1>(int);\n" for f in ("seen", "quiet", "loud"))
    )
    lead = '#include "declared.h"\n'
    both = "template int seen<1>(int);\ntemplate int loud<1>(int);\ntemplate int quiet<1>(int);\n"
    found = by_stem(any_bench.probe("-fvisibility=hidden", one=lead + both, two=lead + "int own() { return 1; }\n"))
    one = found["one"]
    assert not one.compiled
    assert set(one.symbols) == {"_Z4seenILi1EEii", "_Z4loudILi1EEii"}
    assert one.private == {"_Z4seenILi1EEii"}
    assert one.unreachable == ("_Z5quietILi1EEii",)


def test_a_guarded_header_of_one_blob_alone_may_hold_its_functions(bench: Bench) -> None:
    (bench.at / "mine.h").write_text('#pragma once\n#include "common.h"\nvoid in_header(int) {}\n')
    result = bench.probe(
        one='#include "mine.h"\nvoid in_blob(int) {}\n',
        two='#include "common.h"\nvoid other() {}\n',
        counted='#include "common.h"\n#define J(a, b) a##b\n#define NAME(n) J(f_, n)\nvoid NAME(__COUNTER__)() {}\n',
    )
    found = by_stem(result)
    assert set(found["one"].symbols) == {"_Z9in_headeri", "_Z7in_blobi"}
    assert found["counted"].symbols == ("_Z3f_0v",)
    assert str(bench.at / "common.h") in found["counted"].headers
    assert not found["two"].compiled


def test_a_template_that_several_blobs_instantiate_belongs_to_each(bench: Bench) -> None:
    text = '#include "common.h"\ntemplate void run<3>(float*, int);\nvoid own_{d}() {{}}\n'
    result = bench.probe_all({f"i{d}": text.format(d=d) for d in (1, 2, 3)})
    assert [set(p.symbols) for p in result.probed] == [{"_Z3runILi3EEvPfi", f"_Z5own_{d}v"} for d in (1, 2, 3)]
    assert not any(p.compiled for p in result.probed)


def test_support_declarations_of_all_kinds_reach_the_heads(any_bench: Bench) -> None:
    text = """
#include "common.h"
#include <array>
namespace l = lib;
using namespace lib;
using lib::seq;
static const int k_width = {d} * 2;
constexpr int twice(int x) {{ return x * 2; }}
template <typename T> using Wrap = std::array<T, twice(k_width)>;
template <typename T> struct Pick {{ using type = Wrap<T>; }};
template <> struct Pick<char> {{ using type = l::Traits<char, {d}, Mode::plain>; }};
static_assert(sizeof(int) == 4, "unusual; {{");
typedef struct Pair {{ int a, b; }} Pair;
union Both {{ int i; float f; }};
extern int elsewhere;
template <int N> constexpr int v = N;
void a_{d}(typename Pick<int>::type, Pair, Both*, seq<v<{d}>>) {{ }}
template <> float launch_<Pick<char>::type>(const lib::Args&, int) {{ return elsewhere; }}
"""
    check(any_bench, **{f"s{d}": text.format(d=d) for d in (1, 2, 3)})


def test_blobs_that_do_not_go_together_are_probed_apart(any_bench: Bench) -> None:
    (any_bench.at / "late.h").write_text("#pragma once\n")
    good = '#include "common.h"\nvoid good_{i}(lib::Args) {{}}\n'
    texts = {f"g{i}": good.format(i=i) for i in range(4)}
    # One function has two return types, which is valid in separate blobs but not in one unit.
    texts["one"] = '#include "common.h"\nint same(int) { return 1; }\n'
    texts["two"] = '#include "common.h"\nfloat same(int) { return 1; }\n'
    texts["instances"] = '#include "common.h"\ntemplate class Box;\n'.replace(
        "template class Box;", "template <int D> struct Box { int get() { return D; } };\ntemplate struct Box<3>;"
    )
    result = any_bench.probe_all(texts)
    found = by_stem(result)
    assert not result.eager
    assert [n for n, p in found.items() if p.compiled] == ["instances"]
    assert found["one"].symbols == found["two"].symbols == ("_Z4samei",)
    assert "_ZN3BoxILi3EE3getEv" in found["instances"].symbols
    assert all(found[f"g{i}"].symbols == (f"_Z6good_{i}N3lib4ArgsE",) for i in range(4))


def test_a_blob_that_does_not_compile_at_all_is_eager_with_the_first_error(bench: Bench) -> None:
    result = bench.probe(
        good='#include "common.h"\nvoid good() {}\n',
        missing='#include "not_there.h"\nvoid a() {}\n',
        wrong='#include "common.h"\nint wrong(NoSuchType) { return 1; }\n',
        odd='#include "common.h"\nvoid odd( {}\n',
    )
    assert [p.blob.stem for p in result.probed] == ["good"]
    said = reasons(result)
    assert set(said) == {"missing", "wrong", "odd"}
    assert "not_there.h" in said["missing"] and "NoSuchType" in said["wrong"]


def test_headers_that_do_not_go_together_are_probed_apart(any_bench: Bench) -> None:
    texts = {}
    for i in range(5):
        (any_bench.at / f"private_{i}.h").write_text(f"#pragma once\nstruct Params {{ int x[{i + 1}]; }};\n")
        texts[f"p{i}"] = f'#include "common.h"\n#include "private_{i}.h"\nvoid take_{i}(Params) {{}}\n'
    check(any_bench, **texts)


def test_more_faults_than_a_compiler_reports_at_once(tmp_path: Path) -> None:
    clang = shutil.which("clang++-19")
    if clang is None:
        pytest.skip("no clang++-19 on PATH, which stops after 20 errors")
    bench = Bench(tmp_path, (clang,))
    texts = {}
    for i in range(25):
        for kind in ("int", "float"):
            texts[f"{kind}{i}"] = f'#include "common.h"\n{kind} same_{i}(int) {{ return 1; }}\nvoid {kind}_{i}() {{}}\n'
    texts |= {f"right{i}": f'#include "common.h"\nvoid r{i}() {{}}\nvoid q{i}() {{}}\n' for i in range(50)}
    result = bench.probe_all(texts, jobs=2)
    assert len(result.probed) == 100 and not [p for p in result.probed if p.compiled]
    assert all(len(p.symbols) == 2 for p in result.probed)


def test_data_and_initializers_make_a_blob_eager_with_the_reason(any_bench: Bench) -> None:
    head = '#include "common.h"\nint start();\nvoid f() {}\n'
    own = "struct Registrar { Registrar(const char*); };\n"
    eager = {
        "global": "int counter = 0;",
        "pointer": 'const char* label = "x";',
        "member": "struct S { static int x; }; int S::x = 3;",
        "c_data": 'extern "C" { int shared_c; }',
        "object": own + 'static Registrar here("x");',
        "call": "static int number = start();",
        "lambda": "static const bool done = [] { return start() > 1; }();",
        "attribute": "__attribute__((constructor)) static void at_load() { start(); }",
        "extern_const": "extern const int visible = 3;",
    }
    lazy = {
        "constants": "constexpr int k = 3; static const int j = k * 2; const float t[2] = {1.f, 2};\n"
        'static const char* const names[] = {"a", "b"};',
        "private_state": "static int calls = 0; namespace { bool once = false; thread_local int depth; }",
        "declared": 'extern int elsewhere; extern "C" int c_elsewhere;',
        "streams": "#include <iostream>\nvoid say() { std::cout << 1; }",
        "empty_object": "struct Empty { constexpr Empty() {} }; static Empty nothing{};",
    }
    texts = {n: head.replace("void f()", f"void f_{n}()") + t + "\n" for n, t in {**eager, **lazy}.items()}
    result = any_bench.probe_all(texts, jobs=2)
    assert set(by_stem(result)) == set(lazy)
    said = reasons(result)
    assert {n for n, r in said.items() if r.startswith("defines data that other files can use: ")} == {
        "global", "pointer", "member", "c_data", "extern_const",
    }  # fmt: skip
    assert said["global"] == "defines data that other files can use: counter"
    assert said["object"] == "has code that runs when the library is loaded: here at object.cpp:5"
    assert said["call"] == "has code that runs when the library is loaded: number at call.cpp:4"
    assert said["attribute"] == "has code that runs when the library is loaded: at_load at attribute.cpp:4"


REGISTERS = {
    "braces": "static X x{start()};",
    "braces_of_an_array": "static X xs[]{start(), 1};",
    "aligned": "alignas(8) static X x{start()};",
    "constant": "const X cx{1};",
    "pointer": "X* const p = new X(start());",
    "binding": "struct P { int x, y; }; P two(); static auto [a, b] = two();",
    "anonymous_union": "static union { int i = start(); float f2; };",
    "class_and_variable": "static struct R { R() { start(); } } r;",
    "member": "struct S { static inline int r = start(); };",
    "member_of_class_type": "struct S { int a; inline static X r{1}; };",
    "member_function_type": "#include <functional>\n"
    "struct S { static inline std::function<int(int)> r = [](int x) { return x; }; };",
    "member_pointer": "struct S { static inline int (*r)() = start() ? start : nullptr; };",
    "nested_member": "struct O { struct Q { static inline int z = start(); }; };",
    "member_of_a_template": "template <class T> struct S { static inline int z = start(); int g() { return z; } };\n"
    "int use() { return S<int>().g(); }",
    "template": "template <int N> int vt = start(); int use() { return vt<3>; }",
    "private_template": "template <int N> static int vt = start(); int use() { return vt<3>; }",
    "out_of_its_template": "template <class T> struct A { static int r; }; template <class T> int A<T>::r = start();\n"
    "int use() { return A<int>::r; }",
    "self_registration": "template <class T> struct R { static R self; R() { start(); } int x; };\n"
    "template <class T> R<T> R<T>::self; int use() { return R<int>::self.x; }",
}
DOES_NOT = {
    "members": 'struct S { static inline int n = 3; static inline const char* s = "a"; '
    "static constexpr inline int k = 4; "
    "static inline int f(int x) { return x; } static inline auto g() -> int { return 1; } };",
    "plain": "struct Y { int a, b; }; static Y y{1, 2}; static const int tab[]{1, 2}; static int use(int);",
    "constraint": "template <class T> void req(T t) requires requires(T u) { u.x(); };",
    "constants": "template <int N> constexpr int c = N * 2; template <int N> int v = N;\n"
    "int use() { return c<3> + v<2>; }",
}


def test_code_that_runs_at_load_is_found_however_it_is_written(any_bench: Bench) -> None:
    head = '#include "common.h"\nint start();\nstruct X { X(int); };\n'
    texts = {n: f"{head}void f_{n}() {{}}\n{t}\n" for n, t in {**REGISTERS, **DOES_NOT}.items()}
    result = any_bench.probe_all(texts, "-std=c++20", "-O2", jobs=2)
    assert set(by_stem(result)) == set(DOES_NOT)
    assert all(r.startswith("has code that runs when the library is loaded: ") for r in reasons(result).values()), (
        reasons(result)
    )


def test_start_up_code_that_jumps_to_what_it_does_is_looked_into(any_bench: Bench) -> None:
    # The initializer is optimized but not inlined, as with many initializers. Its last call is a
    # jump without a relocation.
    options = ["-O2", "-fno-inline"]
    head = '#include "common.h"\nstruct Registrar { Registrar(const char*, int (*)(int)); };\n'
    result = any_bench.probe(
        *options, registers=f'{head}int f(int x) {{ return x; }}\nstatic Registrar registry("f", f);\n'
    )
    assert reasons(result) == {
        "registers": "has code that runs when the library is loaded: registry at registers.cpp:4"
    }


def test_calls_within_start_up_code_are_found(any_bench: Bench) -> None:
    # At -O0 the initializer calls a function of its own section, which the assembler resolves
    # without a relocation.
    own = "static int value(int x) { return x; }\nstruct Base { Base(int); };\n"
    result = any_bench.probe(
        direct=f"{own}static int number = value(3) + value(4);\nvoid f_direct() {{}}\n",
        through=f"{own}struct Keep : Base {{ Keep() : Base(value(1)) {{}} }};\nstatic Keep keep;\n"
        "void f_through() {}\n",
    )
    assert reasons(result) == {
        "direct": "has code that runs when the library is loaded: number at direct.cpp:3",
        "through": "has code that runs when the library is loaded: keep at through.cpp:4",
    }


def test_headers_are_listed_and_other_blobs_are_not(bench: Bench) -> None:
    (bench.at / "part.inc").write_text("void from_part(int) {}\n")
    result = bench.probe(a='#include "text.h"\n#include "part.inc"\n', b='#include "text.h"\nvoid b() {}\n')
    for one in result.probed:
        assert str(bench.at / "common.h") in one.headers
        assert (str(bench.at / "part.inc") in one.headers) == (one.blob.stem == "a")
        assert any(h.endswith("/string") for h in one.headers)
        assert not {h for h in one.headers if h.endswith(".cpp") or "<" in h or "work" in h}


def test_flags_decide_which_blobs_share_a_probe(bench: Bench) -> None:
    sources = bench.write(
        a='#include "common.h"\nvoid a(lib::seq<K>) {}\n', b='#include "common.h"\nvoid b(lib::seq<K>) {}\n'
    )
    blobs = [bench.command(sources[0], "-DK=1"), bench.command(sources[1], "-DK=2"), bench.command(sources[0], "-DK=3")]
    result = probe(blobs, bench.at / "work", NO_CACHE, jobs=2)
    assert [(p.blob, p.symbols) for p in result.probed] == [
        (blobs[0], ("_Z1aN3lib3seqIJLi1EEEE",)),
        (blobs[1], ("_Z1bN3lib3seqIJLi2EEEE",)),
        (blobs[2], ("_Z1aN3lib3seqIJLi3EEEE",)),
    ]


def test_hidden_visibility_of_the_build_does_not_hide_symbols_from_the_probe(bench: Bench) -> None:
    result = bench.probe(
        "-fvisibility=hidden", "-flto", a='#include "common.h"\nvoid a() {}\ntemplate struct Engine<3>;\nvoid b() {}\n'
    )
    assert {"_Z1av", "_Z1bv"} <= set(result.probed[0].symbols)
    hidden = bench.probe(
        h='#include "common.h"\n__attribute__((visibility("hidden"))) void quiet() {}\nvoid loud() {}\n'
    )
    assert hidden.probed[0].symbols == ("_Z4loudv",)
    assert hidden.probed[0].unreachable == ("_Z5quietv",)


def test_odd_paths(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "a dir with ünusual, 'names'")
    bench.at.mkdir()
    check(bench, **{"blob one": '#include "common.h"\nvoid one(lib::Args) {}\n'})


def test_only_preprocessed_text_is_left_in_the_work_directory_and_costs_are_told(bench: Bench) -> None:
    result = bench.probe(a='#include "common.h"\nvoid a() {}\n')
    assert [p.name for p in (bench.at / "work").rglob("*") if p.is_file()] == ["text0.ii"]
    assert result.peak_rss_kib > 1000


def test_nothing_to_probe(tmp_path: Path) -> None:
    assert probe([], tmp_path, NO_CACHE, jobs=2).probed == ()


def test_a_thousand_blobs_in_one_group(bench: Bench) -> None:
    text = """
#include "text.h"
using dtype_0 = {t};
using shape_0 = lib::seq<{d}, 1>;
using trait_0 = lib::Traits<shape_0, {d}, lib::Mode::fast>;
template <> float launch_<trait_0>(const lib::Args& a, int s) {{ int x[] = {{1, 2}}; return x[0] + {d}; }}
template <> std::string name_<trait_0>() {{ return "{{"; }}
void extra_{d}(dtype_0, shape_0) {{ for (int i = 0; i < 3; ++i) {{ ; }} }}
"""
    result = bench.probe_all({f"b{d}": text.format(d=d, t=("int", "float")[d % 2]) for d in range(1000)})
    assert not result.eager and not any(p.compiled for p in result.probed)
    assert sum(len(p.symbols) for p in result.probed) == 3000
    middle = result.probed[567]
    assert set(middle.symbols) == bench.real_functions(middle.blob.source)


# -- GPU compilers ---------------------------------------------------------------------------------

KERNELS = """
{include}
#include "text.h"
using trait_0 = lib::Traits<float, {d}, lib::Mode::plain>;
namespace {{ __global__ void quiet(float* p) {{ p[0] = 1; }} }}
template <typename T> __global__ void kernel_template(T* p, int n) {{ if (threadIdx.x < n) p[0] = {d}; }}
template <> float launch_<trait_0>(const lib::Args& a, int stream) {{
    kernel_template<float><<<1, 64>>>(a.p, a.n); quiet<<<1, 1>>>(a.p); return {d};
}}
__global__ void plain_kernel_{d}(float* p) {{ p[0] = {d}; }}
__host__ __device__ int both_{d}(int x) {{ return x; }}
__device__ int device_only_{d}(int x) {{ return x; }}
extern "C" void c_launch_{d}(float* p) {{ plain_kernel_{d}<<<1, 1>>>(p); }}
std::string text_{d}(std::string s) {{ return s; }}
"""


@pytest.mark.hip
def test_hip_blobs(tmp_path: Path) -> None:
    clang = next((c for c in map(shutil.which, ("clang++-19", "amdclang++")) if c), None)
    if clang is None or not Path("/usr/include/hip/hip_runtime.h").exists():
        pytest.skip("no clang++ with HIP's headers in /usr")
    words = (clang, "-x", "hip", "--rocm-path=/usr", "-nogpulib", "-D__HIP_PLATFORM_AMD__=1", "--offload-arch=gfx90a")
    bench = Bench(tmp_path, words, "rocm")
    include = "#include <hip/hip_runtime.h>"
    result = bench.probe_all({f"k{d}": KERNELS.format(d=d, include=include) for d in (1, 2)})
    assert not result.eager and not any(p.compiled for p in result.probed)
    for one in result.probed:
        d = one.blob.stem[1:]
        command = bench.command(one.blob.source, "--cuda-host-only").call.argv
        subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        real = elf.read_object(one.blob.output)
        strong = {f for f in real.functions & real.strong if "kernel_template" not in f}
        assert set(one.symbols) == strong
        assert f"_Z{28 + len(d)}__device_stub__plain_kernel_{d}Pf" in one.symbols
        assert one.kernels == (f"_Z{13 + len(d)}plain_kernel_{d}Pf",)
        assert one.kernels[0] in real.defined - real.functions
    alone = bench.probe(
        table=f"{include}\n__constant__ float table[4];\nvoid t() {{}}\n",
        inst=KERNELS.format(d=9, include=include) + "template struct Engine<4>;\n",
    )
    assert not alone.eager and by_stem(alone)["table"].symbols == ("_Z1tv",)
    assert by_stem(alone)["inst"].compiled and "c_launch_9" in by_stem(alone)["inst"].symbols
    assert "_Z14plain_kernel_9Pf" in by_stem(alone)["inst"].kernels


@pytest.mark.hip
def test_hip_blobs_with_managed_variables_are_eager(tmp_path: Path) -> None:
    clang = next((c for c in map(shutil.which, ("clang++-19", "amdclang++")) if c), None)
    if clang is None or not Path("/usr/include/hip/hip_runtime.h").exists():
        pytest.skip("no clang++ with HIP's headers in /usr")
    words = (clang, "-x", "hip", "--rocm-path=/usr", "-nogpulib", "-D__HIP_PLATFORM_AMD__=1", "--offload-arch=gfx90a")
    include = "#include <hip/hip_runtime.h>\n"
    kernel = (
        "__global__ void count_{0}(int* p) {{ *p += {1}; }}\n"
        "int launch_{0}(int* p) {{ count_{0}<<<1, 1>>>(p); return {1}; }}\n"
    )
    own = Bench(tmp_path / "own", words, "rocm")
    header = Bench(tmp_path / "header", words, "rocm")
    for bench in (own, header):
        bench.at.mkdir()
    found = own.probe(
        managed=f"{include}__managed__ int counter;\n" + kernel.format("a", "counter"),
        plain=include + kernel.format("b", "1"),
        by_itself=f"{include}__managed__ int counter;\n" + kernel.format("c", "counter + __COUNTER__"),
    )
    assert [p.blob.stem for p in found.probed] == ["plain"]
    assert reasons(found) == dict.fromkeys(("managed", "by_itself"), str(Reason(ReasonKind.MANAGED)))
    (header.at / "counter.h").write_text("#pragma once\nstatic __managed__ int counter;\n")
    include += '#include "counter.h"\n'
    found = header.probe(uses=include + kernel.format("a", "counter"), passes=include + kernel.format("b", "1"))
    assert [p.blob.stem for p in found.probed] == ["passes"]
    assert reasons(found) == {"uses": str(Reason(ReasonKind.MANAGED))}


@pytest.mark.cuda
def test_cuda_blobs(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    bench = Bench(tmp_path, (nvcc, "-std=c++17"), "cuda", ".cu")
    texts = {f"k{d}": KERNELS.format(d=d, include="") for d in (1, 2)}
    texts["inst"] = KERNELS.format(d=9, include="") + "template struct Engine<4>;\n"
    result = bench.probe_all(texts, jobs=2)
    assert not result.eager and [p.blob.stem for p in result.probed if p.compiled] == ["inst"]
    for one in result.probed:
        d = one.blob.stem.replace("inst", "k9")[1:]
        wanted = {f"c_launch_{d}", f"_Z6both_{d}i", f"_Z6text_{d}NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"}
        assert wanted <= set(one.symbols)
        assert any(s.startswith("_Z7launch_IN3lib6TraitsIfLi" + d) for s in one.symbols)
        assert not any("quiet" in s or "kernel" in s for s in one.symbols)
        assert f"_Z{13 + len(d)}plain_kernel_{d}Pf" in one.kernels
        assert one.compiled or not any("device_only" in s for s in one.symbols)
        assert any(h.endswith("/cuda_runtime.h") for h in one.headers)


@pytest.mark.parametrize(
    "toolchain", [pytest.param("cuda", marks=pytest.mark.cuda), pytest.param("rocm", marks=pytest.mark.hip)]
)
def test_a_kernel_of_which_a_header_declares_the_instance_is_no_function(tmp_path: Path, toolchain: str) -> None:
    compiler = shutil.which("nvcc" if toolchain == "cuda" else "clang++-19")
    if compiler is None or (toolchain == "rocm" and not Path("/usr/include/hip/hip_runtime.h").exists()):
        pytest.skip(f"no compiler for {toolchain}")
    flags: tuple[str, ...] = ("-device-entity-has-hidden-visibility=false", "-static-global-template-stub=false")
    if toolchain == "rocm":
        flags = ("-x", "hip", "--rocm-path=/usr", "-nogpulib", "-D__HIP_PLATFORM_AMD__=1", "--offload-arch=gfx90a")
    bench = Bench(tmp_path, (compiler, *flags), toolchain, ".cu")
    include = "" if toolchain == "cuda" else "#include <hip/hip_runtime.h>\n"
    (tmp_path / "kernel.h").write_text(
        f"#pragma once\n{include}template <int N> __global__ void K(float* x) {{ x[0] = N; }}\n"
        "extern template __global__ void K<1>(float*);\n"
    )
    text = '#include "kernel.h"\ntemplate __global__ void K<1>(float*);\nint beside(int x) { return x; }\n'
    found = by_stem(bench.probe(one=text, other='#include "kernel.h"\nint apart(int x) { return x; }\n'))
    assert found["one"].kernels == ("_Z1KILi1EEvPf",) and found["other"].kernels == ()
    launcher = () if toolchain == "cuda" else ("_Z16__device_stub__KILi1EEvPf",)
    assert set(found["one"].symbols) == {"_Z6besidei", *launcher}


def test_lines_like_those_of_preprocessed_text_hide_no_function(any_bench: Bench) -> None:
    texts = {
        "raw": 'const char* text() { return R"(\n# 1 "/usr/include/limits.h" 1 3 4\n)"; }\nint after() { return 1; }\n',
        "made": '# 1 "gen.y"\nint first() { return 1; }\n# 1 "table.h" 1\nint second() { return 2; }\n',
        "plain": "int plain() { return 3; }\n",
    }
    found = by_stem(any_bench.probe(**texts))
    assert {name: (len(p.symbols), bool(p.compiled)) for name, p in found.items()} == {
        "raw": (2, True), "made": (2, True), "plain": (1, False),
    }  # fmt: skip


def test_a_function_that_one_blob_declares_changes_no_other_blob_s_symbols(any_bench: Bench) -> None:
    (any_bench.at / "pick.h").write_text("#pragma once\nnamespace ns { int pick(int); }\n")
    head = "int {}(decltype(ns::pick(char(1))) x) {{ return x; }}\n"
    texts = {"a": "namespace ns { long pick(char); }\n" + head.format("a"), "b": head.format("b")}
    found = by_stem(any_bench.probe(**{name: '#include "pick.h"\n' + text for name, text in texts.items()}))
    assert (found["a"].symbols, found["b"].symbols) == (("_Z1al",), ("_Z1bi",))


def test_what_a_header_defines_is_the_blob_s_at_any_depth(any_bench: Bench) -> None:
    texts = {"outer.h": '#pragma once\n#include "inner.h"\n', "inner.h": "#pragma once\nint inner() { return 1; }\n"}
    texts |= {"wrap.h": '#pragma once\n#include "data.h"\n', "data.h": "#pragma once\nint data = 1;\n"}
    instances = "template struct Box<int>;\ntemplate int twice<int>(int);\n"
    texts |= {
        "weak.h": "#pragma once\n__attribute__((weak)) int hook(int x) { return x; }\n",
        "operators.h": "#pragma once\ntemplate <class T> struct A { T x; };\n"
        "template <class T> bool operator==(A<T>, A<T>) { return true; }\n"
        "template bool operator==(A<int>, A<int>);\n",
    }
    texts |= {
        "more.h": '#pragma once\n#include "instances.h"\n',
        "instances.h": "#pragma once\ntemplate <class T> T twice(T x) { return x + x; }\n"
        f"template <class T> struct Box {{ T get() {{ return T(); }} }};\n{instances}",
    }
    for name, text in texts.items():
        (any_bench.at / name).write_text(text)
    result = any_bench.probe(
        function='#include "outer.h"\nint a() { return inner(); }\n',
        data='#include "wrap.h"\nint b() { return data; }\n',
        instances='#include "more.h"\nint d() { return 1; }\n',
        weak='#include "weak.h"\nint e() { return 1; }\n',
        operators='#include "operators.h"\nint g() { return 1; }\n',
        plain="int c() { return 1; }\n",
    )
    found = by_stem(result)
    assert set(found["weak"].symbols) == {"_Z1ev", "_Z4hooki"}
    assert set(found["operators"].symbols) == {"_Z1gv", "_ZeqIiEb1AIT_ES2_"}
    assert set(found["instances"].symbols) == {"_Z1dv", "_Z5twiceIiET_S0_", "_ZN3BoxIiE3getEv"}
    assert found["instances"].merged == {"_Z5twiceIiET_S0_", "_ZN3BoxIiE3getEv"}
    assert set(found["function"].symbols) == {"_Z1av", "_Z5innerv"}
    assert found["plain"].symbols == ("_Z1cv",) and not found["plain"].compiled
    assert [(Path(b.source).stem, r.kind) for b, r in result.eager.items()] == [("data", ReasonKind.DATA)]


@pytest.mark.parametrize(
    ("header", "text", "seen"),
    [
        ("#define NAME f_\n", "int CAT(NAME, __COUNTER__)() { return 1; }\n", "_Z3f_0v"),
        ("#define MADE CAT(f_, __COUNTER__)\n", "int MADE() { return 1; }\n", "_Z3f_0v"),
        ("#define LEVEL __INCLUDE_LEVEL__\n#if LEVEL == 1\n#define N n\n#endif\n", "int N() { return 1; }\n", "_Z1nv"),
        (
            "#ifdef __BASE_FILE__\n#define BASE\n#endif\n",
            "int base(const char* = __BASE_FILE__);\nint n() { return 1; }\n",
            "_Z1nv",
        ),
    ],
)
def test_what_depends_on_the_place_in_a_unit_is_as_for_one_source(
    any_bench: Bench, header: str, text: str, seen: str
) -> None:
    (any_bench.at / "cat.h").write_text("#define CAT_(a, b) a##b\n#define CAT(a, b) CAT_(a, b)\n" + header)
    text = '#include "cat.h"\n' + text
    found = by_stem(any_bench.probe(a=text, b=text, plain="int c() { return 1; }\n"))
    assert {name: p.symbols for name, p in found.items()} == {"a": (seen,), "b": (seen,), "plain": ("_Z1cv",)}
    assert found["a"].compiled and not found["plain"].compiled


def test_an_assertion_of_one_blob_is_none_of_others(bench: Bench) -> None:
    """gcc's `#assert`, which no `#pragma` puts back."""
    texts = {"a": "#assert sys(one)\nint a() { return 1; }\n"}
    texts["b"] = "#if #sys(one)\nint one() { return 1; }\n#else\nint none() { return 1; }\n#endif\n"
    assert by_stem(bench.probe(**texts))["b"].symbols == ("_Z4nonev",)


@pytest.mark.parametrize("flags", [(), ("-fvisibility=hidden",)])
def test_a_blob_with_protected_functions_is_eager(any_bench: Bench, flags: tuple[str, ...]) -> None:
    texts = {
        "attribute": '__attribute__((visibility("protected"))) int a() { return 1; }\n',
        "pragma": "#pragma GCC visibility push(protected)\nint b() { return 1; }\n#pragma GCC visibility pop\n",
    }
    for name, text in texts.items():
        result = any_bench.probe_all({name: text}, *flags)
        assert [r.kind for r in result.eager.values()] == [ReasonKind.PROTECTED]
    assert not any_bench.probe_all({"plain": "int c() { return 1; }\n"}, *flags).eager
