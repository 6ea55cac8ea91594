"""Test that every shape of call passes through the slow path unharmed. Each function here is a blob
of its own, so that each first call goes through the trampoline. The tests run for every machine:
programs for another one than this run in an emulator."""

from pathlib import Path

import pytest
from support import AARCH64, AARCH64_PLAIN, HERE, RISCV64, Machine, machine_params, on_each_machine, registers
from support.lazylib import CLANG, build_lazy_library, functions_of

HEADER = r"""
#pragma once
typedef float Vector4 __attribute__((vector_size(16)));
typedef float Vector8 __attribute__((vector_size(32)));
typedef float Vector16 __attribute__((vector_size(64)));
struct Hfa { float a, b, c, d; };
struct Hva { Vector4 a, b; };
struct Big { long v[20]; };
struct Small { int a; float b; };
struct Pair { double x; long y; };
struct Virtual { virtual ~Virtual() = default; virtual int who() const { return 1; } };
struct Derived : Virtual { int who() const override { return 2; } };
struct Widget { int base; int add(int x) const; static int twice(int x); };
struct Text { char* data; int size; Text(int n, char c); Text(const Text&); ~Text(); };  // by sret
Text make_text(int n);
long sum_big(Big b, int k);
Big make_big(long first);
long ten_ints(long a, int b, short c, char d, long e, long f, long g, int h, long i, unsigned char j);
double ten_doubles(double a, double b, float c, double d, double e, double f, double g, float h, double i, double j);
double mixed(int a, double b, long c, float d, Small s, Pair p, const char* t, double e, bool f, long double g);
long double long_double(long double a, long double b);
double variadic(int count, ...);
int by_reference(int& x, const Virtual& v, const Text&& s);
int throwing(int x);
int through(int (*callback)(int), int x);
int pointed(int x);
__int128 wide(__int128 a, __int128 b);
_Complex double complex_square(_Complex double z);
int not_throwing(int x) noexcept;
template <typename T, int N> T templated(T x);
template <> float templated<float, 3>(float x);
Hfa hfas(Hfa a, Hva b, Hfa c, float d, Hfa e);
Vector4 add128(Vector4 a, int n, Vector4 b);
#if defined(__AVX__)
Vector8 add256(Vector8 a, Vector8 b, Vector8 c, Vector8 d, Vector8 e, Vector8 f, Vector8 g, Vector8 h);
#endif
#if defined(__AVX512F__)
Vector16 add512(Vector16 a, Vector16 b, Vector16 c, Vector16 d, Vector16 e, Vector16 f, Vector16 g, Vector16 h);
#endif
#if defined(__aarch64__)
__attribute__((aarch64_vector_pcs)) Vector4 vector_pcs(Vector4 a, Vector4 b, Vector4 c, Vector4 d, Vector4 e,
                                                       Vector4 f);
#endif
#if defined(WITH_SVE)  // the header is large
#include <arm_sve.h>
svfloat32_t sve(svfloat32_t a, svbool_t p, svfloat32_t b, svfloat32_t c, svfloat32_t d, svfloat32_t e, svfloat32_t f,
                svfloat32_t g, svfloat32_t h, svbool_t q, svfloat32_t i, int k);
#endif
"""

BLOBS = {
    "make_text": "Text make_text(int n) { return Text(n, 'x'); }",
    "sum_big": "long sum_big(Big b, int k) { long s = 0; for (long v : b.v) s += v * k; return s; }",
    "make_big": "Big make_big(long f) { Big b; for (int i = 0; i < 20; ++i) b.v[i] = f + i; return b; }",
    "ten_ints": "long ten_ints(long a, int b, short c, char d, long e, long f, long g, int h, long i, unsigned char j)"
    "{ return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j; }",
    "ten_doubles": "double ten_doubles(double a, double b, float c, double d, double e, double f, double g, float h,"
    " double i, double j) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j; }",
    "mixed": "double mixed(int a, double b, long c, float d, Small s, Pair p, const char* t, double e, bool f,"
    " long double g) { return a + b + c + d + s.a + s.b + p.x + p.y + __builtin_strlen(t) + e + f + (double)g; }",
    "long_double": "long double long_double(long double a, long double b) { return a / b; }",
    "variadic": "#include <cstdarg>\ndouble variadic(int n, ...) { va_list l; va_start(l, n); double s = 0;"
    " for (int i = 0; i < n; ++i) { s = s * 2 + va_arg(l, double); s += va_arg(l, int); } va_end(l); return s; }",
    "by_reference": "int by_reference(int& x, const Virtual& v, const Text&& s)"
    " { x += 5; return v.who() * 100 + s.size; }",
    "throwing": "#include <stdexcept>\n"
    'int throwing(int x) { if (x > 1) throw std::out_of_range("too big"); return x; }',
    "through": "int through(int (*callback)(int), int x) { return callback(x) + 1; }",
    "pointed": "int pointed(int x) { return x * 3; }",
    "wide": "__int128 wide(__int128 a, __int128 b) { return a * b; }",
    "complex_square": "_Complex double complex_square(_Complex double z) { return z * z; }",
    "not_throwing": "int not_throwing(int x) noexcept { return -x; }",
    "templated": "template <> float templated<float, 3>(float x) { return x * 3; }",
    "widget_add": "int Widget::add(int x) const { return base + x; }",
    "widget_twice": "int Widget::twice(int x) { return 2 * x; }",
    "hfas": "Hfa hfas(Hfa a, Hva b, Hfa c, float d, Hfa e)"
    " { return {a.a + b.a[0] + c.a, a.b + b.b[1] + c.b, a.c + c.c + d, a.d + c.d + e.d}; }",
    "add128": "Vector4 add128(Vector4 a, int n, Vector4 b) { return a + b * (float)n; }",
}
AVX_BLOBS = {
    "add256": "Vector8 add256(Vector8 a, Vector8 b, Vector8 c, Vector8 d, Vector8 e, Vector8 f, Vector8 g, Vector8 h)"
    " { return a + b + c + d + e + f - g - h; }",
}
AVX512_BLOBS = {
    "add512": "Vector16 add512(Vector16 a, Vector16 b, Vector16 c, Vector16 d, Vector16 e, Vector16 f,"
    " Vector16 g, Vector16 h) { return a + b + c + d + e + f - g - h; }",
}

AARCH64_BLOBS = {
    "vector_pcs": "__attribute__((aarch64_vector_pcs)) Vector4 vector_pcs(Vector4 a, Vector4 b, Vector4 c, Vector4 d,"
    " Vector4 e, Vector4 f) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f; }",
}
SVE_BLOBS = {
    "sve": "svfloat32_t sve(svfloat32_t a, svbool_t p, svfloat32_t b, svfloat32_t c, svfloat32_t d, svfloat32_t e,"
    " svfloat32_t f, svfloat32_t g, svfloat32_t h, svbool_t q, svfloat32_t i, int k) {"
    " svfloat32_t s = svadd_x(svptrue_b32(), a, svadd_x(svptrue_b32(), b, svadd_x(svptrue_b32(), c, d)));"
    " s = svadd_x(svptrue_b32(), s, svadd_x(svptrue_b32(), e, svadd_x(svptrue_b32(), f, g)));"
    " return svadd_m(q, svadd_m(p, s, h), svmul_x(svptrue_b32(), i, (float)k)); }",
}

LIBRARY = r"""
#include "demo.h"
int call_pointed(int x) { return pointed(x); }
int (*address_inside())(int) { return pointed; }
"""
TEXT = r"""
Text::Text(int n, char c) : data(new char[n]), size(n) { for (int i = 0; i < n; ++i) data[i] = c; }
Text::Text(const Text& o) : data(new char[o.size]), size(o.size) { for (int i = 0; i < size; ++i) data[i] = o.data[i]; }
Text::~Text() { delete[] data; }
"""

PROGRAM = r"""
#include "demo.h"
#include <cstdio>
#include <stdexcept>
#include <string>
int call_pointed(int x);
int (*address_inside())(int);
#define CHECK(x) do { if (!(x)) { std::printf("line %d: %s\n", __LINE__, #x); g_bad = 1; } } while (0)
static int g_bad = 0;
static int g_destroyed = 0;
struct Local { ~Local() { ++g_destroyed; } };
static int thrower(int x) { if (x == 7) throw std::string("seven"); return x; }

static void run() {
    const Text text = make_text(40);
    CHECK(text.size == 40 && text.data[39] == 'x');
    Big b; for (int i = 0; i < 20; ++i) b.v[i] = i;
    CHECK(sum_big(b, 3) == 570);
    const Big made = make_big(100);
    CHECK(made.v[0] == 100 && made.v[19] == 119);
    CHECK(ten_ints(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) == 385);
    CHECK(ten_doubles(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) == 385);
    CHECK(mixed(1, 2.5, 3, 4.5f, Small{5, 6.5f}, Pair{7.5, 8}, "nine", 10.5, true, 0.5L) == 54);
    CHECK(long_double(1.0L, 3.0L) == 1.0L / 3.0L);
    CHECK(variadic(9, 1.5, 1, 2.5, 2, 3.5, 3, 4.5, 4, 5.5, 5, 6.5, 6, 7.5, 7, 8.5, 8, 9.5, 9) == 2281.5);
    int x = 1; Derived d;
    CHECK(by_reference(x, d, Text(3, 'a')) == 203 && x == 6);
    try { Local local; throwing(2); CHECK(false); }
    catch (const std::out_of_range& e) { CHECK(std::string("too big") == e.what()); }
    CHECK(g_destroyed == 1 && throwing(1) == 1);
    try { through(thrower, 7); CHECK(false); } catch (const std::string& s) { CHECK(s == "seven"); }
    CHECK(through(thrower, 8) == 9);
    int (*before)(int) = pointed;
    CHECK(before == address_inside());
    CHECK(before(5) == 15 && call_pointed(6) == 18 && pointed == before && pointed == address_inside());
    CHECK(wide((__int128)1 << 70, 4) == (__int128)1 << 72);
    _Complex double z; __real__ z = 1; __imag__ z = 2; z = complex_square(z);
    CHECK(__real__ z == -3 && __imag__ z == 4);
    CHECK(not_throwing(4) == -4);
    CHECK((templated<float, 3>(2.0f) == 6.0f));
    Widget w{10};
    CHECK(w.add(5) == 15 && Widget::twice(8) == 16);
    int (Widget::*method)(int) const = &Widget::add;
    CHECK((w.*method)(6) == 16);
    const Hva v2 = {Vector4{5, 6, 7, 8}, Vector4{9, 10, 11, 12}};
    const Hfa h = hfas({1, 2, 3, 4}, v2, {13, 14, 15, 16}, 17, {18, 19, 20, 21});
    CHECK(h.a == 19 && h.b == 26 && h.c == 35 && h.d == 41);
    const Vector4 w4 = add128(Vector4{1, 2, 3, 4}, 2, Vector4{10, 20, 30, 40});
    CHECK(w4[0] == 21 && w4[3] == 84);
#if defined(__AVX__)
    Vector8 v[8]; for (int i = 0; i < 8; ++i) for (int k = 0; k < 8; ++k) v[i][k] = i * 10 + k;
    const Vector8 w8 = add256(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
    for (int k = 0; k < 8; ++k) CHECK(w8[k] == 20 + 4 * k);
#endif
#if defined(__AVX512F__)
    Vector16 u[8]; for (int i = 0; i < 8; ++i) for (int k = 0; k < 16; ++k) u[i][k] = i * 10 + k;
    const Vector16 w16 = add512(u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7]);
    for (int k = 0; k < 16; ++k) CHECK(w16[k] == 20 + 4 * k);
#endif
#if defined(__aarch64__)
    const Vector4 one = {1, 2, 3, 4}, kept = w4 * w4;
    const Vector4 p4 = vector_pcs(one, one, one, one, one, one);
    CHECK(p4[0] == 21 && p4[3] == 84 && kept[0] == 441);
#endif
#if defined(WITH_SVE)
    const svbool_t all = svptrue_b32(), first = svwhilelt_b32(0, 3), second = svwhilelt_b32(0, 2);
    const svfloat32_t n = svcvt_f32_x(all, svindex_s32(1, 1));
    float s[64] = {};
    svst1(all, s, sve(n, first, n, n, n, n, n, n, n, second, n, 3));
    const int last = (int)svcntw() - 1;
    CHECK(s[0] == 11 && s[1] == 22 && s[2] == 24 && s[3] == 28 && s[last] == 7 * (last + 1));
#endif
}
int main() {
    run();
    g_destroyed = 0;
    run();
    std::printf(g_bad ? "bad\n" : "good\n");
    return g_bad;
}
"""


def target_flags(machine: Machine) -> list[str]:
    """Return the flags for the widest vectors that the machine has."""
    if machine.name == "aarch64":
        return ["-march=armv8-a+sve"] if machine.cpu == "max" else []
    if machine.name == "riscv64":
        return []
    known = Path("/proc/cpuinfo").read_text().split()
    return ["-mavx512f"] if "avx512f" in known else ["-mavx"] if "avx" in known else []


def blobs_for(machine: Machine, flags: list[str]) -> dict[str, str]:
    """Return the functions of this file that fit the machine."""
    blobs = {
        **BLOBS,
        **(AARCH64_BLOBS if machine.name == "aarch64" else AVX_BLOBS if flags else {}),
        **(AVX512_BLOBS if flags == ["-mavx512f"] else {}),
        **(SVE_BLOBS if any("+sve" in flag for flag in flags) else {}),
    }
    # Who wants the large header of these vectors says so.
    begin = {name: "#define WITH_SVE\n" for name in SVE_BLOBS}
    return {name: f'{begin.get(name, "")}#include "demo.h"\n{text}\n' for name, text in blobs.items()}


def check_signatures(machine: Machine, where: Path, objects_dir: Path, compiler: str, optimize: str) -> None:
    """Build every function of this file and call each twice."""
    flags = [*target_flags(machine), optimize]
    blobs = blobs_for(machine, target_flags(machine))
    (where / "demo.h").write_text(HEADER)
    names = {}
    for name, text in blobs.items():
        (where / f"{name}.cpp").write_text(text)
        # The names depend neither on the level nor on the compiler, nor, of most, on the vectors.
        vectors = [] if name in BLOBS else target_flags(machine)
        names[name] = functions_of(where / f"{name}.cpp", HEADER, ["-std=c++17", *vectors], machine.cxx)
    lib = build_lazy_library(
        where, objects_dir, blobs, LIBRARY + TEXT, header=HEADER, machine=machine, compiler=compiler, flags=flags,
        symbols=names,
    )  # fmt: skip
    has_sve = SVE_BLOBS.keys() <= blobs.keys()
    program = lib.program("#define WITH_SVE\n" * has_sve + PROGRAM, flags=flags, compiler=compiler)
    done = lib.call(program)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stdout + done.stderr
    assert lib.compiles() == len(blobs)


@pytest.mark.parametrize("machine", machine_params(HERE, AARCH64_PLAIN, AARCH64, RISCV64))
def test_any_signature_survives_the_first_call(machine: Machine, tmp_path: Path, objects_dir: Path) -> None:
    check_signatures(machine, tmp_path, objects_dir, machine.cxx, "-O1" if machine.runner else "-O0")


@pytest.mark.skipif(not CLANG, reason="no clang++")
def test_any_signature_survives_the_first_call_under_clang(tmp_path: Path, objects_dir: Path) -> None:
    check_signatures(HERE, tmp_path, objects_dir, CLANG or "", "-O2")


@pytest.mark.parametrize(
    ("machine", "state"),
    [
        pytest.param(HERE, state, id=f"{HERE.name}-{state.name}", marks=pytest.mark.skipif(bool(why), reason=why))
        for state, why in registers.of_this_cpu()
    ]
    + [
        pytest.param(m, state, id=f"{m.name}-{state.name}", marks=m.marks)
        for m, state in ((AARCH64_PLAIN, registers.NEON), (AARCH64, registers.SVE), (RISCV64, registers.RISCV))
        if m != HERE
    ],
)
def test_every_register_that_can_carry_an_argument_survives(
    machine: Machine, state: registers.State, tmp_path: Path, objects_dir: Path
) -> None:
    lib = build_lazy_library(
        tmp_path, objects_dir, {"dump": state.dump}, "int unused;", header=registers.HEADER, machine=machine
    )
    done = lib.call(lib.program(state.program))
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stdout + done.stderr
    assert lib.compiles() == 1


@on_each_machine
def test_addresses_agree_in_position_dependent_program(machine: Machine, tmp_path: Path, objects_dir: Path) -> None:
    header = "#pragma once\nint pointed(int x); int (*address_inside())(int); int call_pointed(int);"
    lib = build_lazy_library(
        tmp_path, objects_dir, {"pointed": "int pointed(int x) { return x * 3; }"}, LIBRARY, header=header,
        machine=machine,
    )  # fmt: skip
    main = (
        '#include "demo.h"\nint main() { auto p = pointed;'
        " return !(p == address_inside() && p(2) == 6 && call_pointed(3) == 9); }"
    )
    for name, flags in (("pie", ["-fPIE", "-pie"]), ("fixed", ["-fno-pie", "-no-pie"])):
        done = lib.call(lib.program(main, name, flags))
        assert done.returncode == 0, (name, done.stderr)


@pytest.mark.parametrize("machine", machine_params(HERE, AARCH64, RISCV64))
def test_exception_of_the_resolver_unwinds_the_caller(machine: Machine, tmp_path: Path, objects_dir: Path) -> None:
    header = "#pragma once\nint broken(int a, double b); int outer(int x);"
    library = r"""
    #include "demo.h"
    extern int g_destroyed; int g_destroyed = 0;
    struct Local { ~Local() { ++g_destroyed; } };
    int outer(int x) { Local a; Local b; return broken(x, 2.5) + 1; }
    """
    lib = build_lazy_library(
        tmp_path, objects_dir, {"broken": "int broken(int a, double b) { return a + oops; }"}, library,
        header=header, symbols={"broken": ("_Z6brokenid",)}, machine=machine,
    )  # fmt: skip
    program = lib.program(r"""
    #include "demo.h"
    #include "error.hpp"
    #include <cstdio>
    #include <cerrno>
    extern int g_destroyed;
    int main() {
        for (int i = 0; i < 3; ++i) {
            errno = 77;
            try { outer(1); return 2; }
            catch (const lazyck::CompileError& e) {
                std::printf("%s|%s|%s|%d|%d\n", e.blob(), e.log(), e.command(), g_destroyed, errno);
            }
        }
        try { outer(1); } catch (const std::runtime_error& e) { std::puts(e.what()); }
    }
    """)
    done = lib.call(program)
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    blob, log, command, destroyed, errno = first.split("|")
    assert (blob, destroyed, errno) == ("broken", "2", "77")
    assert "oops" in Path(log).read_text()
    assert command.startswith('cd "$(mktemp -d)" && ')
    assert "oops" in done.stdout.splitlines()[3]
