"""Test libraries and programs of all shapes whose kernels are compiled one by one, and what can go
wrong with these."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import Lazyck, Once
from support.built_units import Built
from support.cuda_machine import needs_nvcc
from support.cuda_units import build, build_ahead, environment, used, write

from lazyck.postbuild.objects.elf import read_shared

pytestmark = [pytest.mark.cuda, needs_nvcc]

TWO = {
    "two.cu": """
template <int N> __global__ void K(float* x) { x[0] = N; }
extern "C" int launch(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
""",
}
ONE_KERNEL = ["launch _Z1KILi1EEvPf"]


def names(lines: list[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in used(lines)]


def kernels_in(unit: Path) -> set[bytes]:
    """Return the kernels whose machine code is in a unit."""
    return set(re.findall(rb"\.text\.(_Z\w+)", unit.read_bytes()))


# One build makes three things of one source with kernels.
LINKS = """
for name in main caller; do c++ -fPIC -c $name.cpp -o $name.o; done
mkdir -p archive static
nvcc two.cu.o main.o -o program -cudart shared
ar rcs libtwo.a two.cu.o
nvcc -shared caller.o libtwo.a -o archive/libx.so -cudart shared
nvcc -shared two.cu.o -o static/libx.so -cudart static
"""
CALLERS = {
    "main.cpp": 'extern "C" int launch(int, float*);\nint main(int n, char**) { return launch(n, nullptr); }\n',
    "caller.cpp": 'extern "C" int launch(int, float*);\nextern "C" int call(int n) { return launch(n, 0); }\n',
}


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Built:
    return build(lazyck_shared, tmp_path_factory.mktemp("linked"), TWO | CALLERS, link=LINKS)


def test_a_program_has_its_kernels_one_by_one(linked: Built, tmp_path: Path, spy: Path) -> None:
    log = tmp_path / "log"
    lazy = linked.fresh(tmp_path / "cache")
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log)}
    subprocess.run(["./program"], cwd=lazy.where, env=env, check=True)
    assert names(log.read_text().splitlines()) == ONE_KERNEL
    assert len(lazy.units) == 1


def test_host_units_in_a_static_archive(linked: Built, tmp_path: Path, spy: Path) -> None:
    lazy = replace(linked.fresh(tmp_path), where=linked.where / "archive")
    assert names(lazy.run(spy, "call", 1)[1]) == ONE_KERNEL


def test_a_static_runtime_is_reached(linked: Built, tmp_path: Path, spy: Path) -> None:
    lazy = replace(linked.fresh(tmp_path), where=linked.where / "static")
    assert lazy.run(spy, "launch", 1)[0] in ("35", "0"), "there is no driver here, or there is one"
    assert [p.name.partition("-")[0] for p in lazy.units] == ["two.K"]


def test_a_source_that_does_not_compile_fails_the_build_with_its_compiler_s_error(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    write(tmp_path, {"right.cu": "", "wrong.cu": "int wrong() { return not_declared; }\n", "x.cu": ""})
    done = lazyck("build", "full", "--", "sh", "build.sh", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 2  # nvcc's
    assert re.search(r'wrong\.cu\(1\): error: identifier "not_declared" is undefined', done.stderr)
    assert "lazyck:" not in done.stderr
    assert [path.name for path in tmp_path.glob("*.o")] == ["right.cu.o"]  # it is compiled where it is compiled ahead


NO_KERNELS = 'extern "C" int no_kernels(int n, float*) { return n + 1; }\n'
HIDDEN = """
struct __attribute__((visibility("hidden"))) State { static inline int count = 0; };
__global__ void H() {}
extern "C" int hidden(int n, float*) { H<<<1, 1>>>(); return State::count += n; }
"""
# Only instances of a host function or class launch these kernels. Others are instances of kernels,
# one of them declared `extern`.
INSTANCES = {
    "start.cuh": """
template <class T, int N> __global__ void K(T* x) { x[0] = N; }
template <class T, int N> __global__ void L(T* x) { x[0] = -N; }
template <class T> __global__ void declared(T* x) { x[0] = 7; }
extern template __global__ void declared<float>(float*);
template <class T> int start(int n, T* x) {
    if (n == 1) K<T, 1><<<1, 1>>>(x);
    if (n == 2) K<T, 2><<<1, 1>>>(x);
    if (n == 3) L<T, 3><<<1, 1>>>(x);
    if (n == 4) declared<T><<<1, 1>>>(x);
    return cudaGetLastError();
}
""",
    "instances.cu": """
#include "start.cuh"
namespace ns { template <class T> int own(int n, T* x) { return start(n + 1, x); } }
template int start<float>(int, float*);
template int start<double>(int n, double* x);
template int ns::own<float>(int, float*);
template <class T> struct Starter {
    static int run(T* x) { K<T, 5><<<1, 1>>>(x); return 0; }
};
template struct Starter<float>;
template __global__ void K<float, 9>(float*);
template __global__ void declared<float>(float*);
extern "C" int instances(int n, float* x) { return start(n, x); }
""",
}
# As CuTe compares its ratios, the template arguments contain a `<` that opens nothing.
COMPARES = """
namespace ratios {
template <bool> struct Truth {};
template <int A, int B> struct Ratio { static constexpr int num = A, den = B; };
template <int A, int B, int X, int Y>
constexpr Truth<Ratio<A, B>::num * Ratio<X, Y>::den < Ratio<X, Y>::num * Ratio<A, B>::den>
operator<(Ratio<A, B>, Ratio<X, Y>) { return {}; }
}
namespace kernels {
template <int N> __global__ void K(float* x) { x[0] = N; }
extern "C" int compares(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
}
"""
MEMBERS = """
template <int N> __global__ void M(float* x) { x[0] = N; }
struct Starter {
    int start(int n, float* x);
    ~Starter();
    struct Inner { static int start(float* x); };
};
template <class T> struct Any {
    T* start(T* x);
    template <int N> void more(T* x);
};
namespace ns { const int* declared(float* x); }
Starter::~Starter() { M<3><<<1, 1>>>(nullptr); }
int Starter::start(int n, float* x) {
    if (n == 1) M<1><<<1, 1>>>(x);
    if (n == 2) M<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
int Starter::Inner::start(float* x) { M<4><<<1, 1>>>(x); return 0; }
template <class T> T* Any<T>::start(T* x) { M<5><<<1, 1>>>(x); return x; }
template <> float* Any<float>::start(float* x) { M<6><<<1, 1>>>(x); return x; }
template <class T> template <int N> void Any<T>::more(T* x) { M<N><<<1, 1>>>(x); }
const int* ns::declared(float* x) { M<7><<<1, 1>>>(x); return nullptr; }
extern "C" int members(int n, float* x) { return (new Starter)->start(n, x); }
"""
PICKS = {
    "picks.cuh": """
typedef void (*Kernel)(float*);
template <int N> __global__ void P(float* x) { x[0] = N; }
inline Kernel pick(int n) {
    if (n == 1) return P<1>;
    if (n == 2) return P<2>;
    return nullptr;
}
""",
    "picks.cu": """
#include "picks.cuh"
extern "C" int picks(int n, float* x) { pick(n)<<<1, 1>>>(x); return cudaGetLastError(); }
""",
}
MANY = """
template <int N> __global__ void Many(float* x) { x[0] = N; }
template <int N> int call(int n, float* x) {
    if constexpr (N > 0) {
        if (n != N) return call<N - 1>(n, x);
        Many<N><<<1, 1>>>(x);
        return cudaGetLastError();
    }
    return -1;
}
extern "C" int many(int n, float* x) { return n > 10 ? -1 : call<10>(n, x); }
extern "C" int several(int n, float* x) {
    for (int i = 1; i <= n; ++i) if (int error = many(i, x)) return error;
    return 0;
}
"""
SHAPES = {
    **TWO,
    **INSTANCES,
    **PICKS,
    "none.cu": NO_KERNELS,
    "hidden.cu": HIDDEN,
    "compares.cu": COMPARES,
    "members.cu": MEMBERS,
    "many.cu": MANY,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Built:
    """Build a library of sources that launch kernels in many ways, for two archs."""
    archs = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"
    return build(lazyck_shared, tmp_path_factory.mktemp("shapes"), SHAPES, f"{archs} -std=c++17")


@pytest.fixture
def shapes(built: Built, tmp_path: Path) -> Built:
    """Return the library with a cache of the test's own."""
    return built.fresh(tmp_path / "cache")


def test_where_there_is_no_blob_nothing_is_exported_that_is_hidden(built: Built) -> None:
    defined = read_shared(built.where / "libx.so").defined
    assert {"hidden"} == {n for n in defined if n in ("hidden", "_ZN5State5countE")}


def test_a_source_without_kernels(shapes: Built, spy: Path) -> None:
    assert shapes.run(spy, "no_kernels", 1)[0] == "2"


def test_each_of_two_archs_has_a_unit_with_its_code_alone(shapes: Built, spy: Path) -> None:
    shapes.run(spy, "launch", 1, LAZYCK_ARCHS="80;90")
    made = sorted(shapes.units)
    assert [unit.parent.name.partition("-")[0] for unit in made] == ["80", "90"]
    assert [unit.read_bytes().count(b"\2\0\xbe\0") for unit in made] == [1, 1], "executables for NVIDIA's machine"


def has_one_kernel(shapes: Built, spy: Path, function: str, n: int, kernel: str) -> bool:
    """Return whether a call launches the kernel alone, and compiles no other with it."""
    launched = names(shapes.run(spy, function, n)[1])
    (made,) = shapes.units
    return launched == [f"launch {kernel}"] and kernels_in(made) == {kernel.encode()}


@pytest.mark.parametrize(("n", "kernel"), [(1, "_Z1KIfLi1EEvPT_"), (3, "_Z1LIfLi3EEvPT_"), (4, "_Z8declaredIfEvPT_")])
def test_instances_that_a_source_asks_for_are_not_compiled_with_another_kernel(
    shapes: Built, spy: Path, n: int, kernel: str
) -> None:
    assert has_one_kernel(shapes, spy, "instances", n, kernel)


def test_functions_behind_a_comparison_in_template_arguments_are_found(shapes: Built, spy: Path) -> None:
    assert has_one_kernel(shapes, spy, "compares", 1, "_ZN7kernels1KILi1EEEvPf")


def test_members_that_are_defined_outside_of_their_classes_launch_no_other_kernels(shapes: Built, spy: Path) -> None:
    assert has_one_kernel(shapes, spy, "members", 1, "_Z1MILi1EEvPf")


def test_a_header_s_function_that_picks_kernels_has_none_compiled_with_another(shapes: Built, spy: Path) -> None:
    assert has_one_kernel(shapes, spy, "picks", 2, "_Z1PILi2EEvPf")


def in_process(lazy: Built, spy: Path, code: str, log: Path, **more: str) -> list[str]:
    """Run Python code where the library is, and return the lines of what the runtime was told."""
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log), **more}
    argv = [sys.executable, "-IS", "-c", code]
    done = subprocess.run(argv, cwd=lazy.where, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return log.read_text().splitlines()


def test_a_library_that_is_closed_and_opened_again(shapes: Built, tmp_path: Path, spy: Path) -> None:
    code = (
        "import ctypes, _ctypes\n"
        "for n in (1, 2, 1):\n"
        "    x = ctypes.CDLL('./libx.so')\n    assert x.launch(n, None) == 0\n    _ctypes.dlclose(x._handle)\n"
    )
    seen = in_process(shapes, spy, code, tmp_path / "log")
    assert names(seen) == [*ONE_KERNEL, "launch _Z1KILi2EEvPf", *ONE_KERNEL]


def test_a_damaged_unit_is_made_anew(shapes: Built, spy: Path) -> None:
    shapes.run(spy, "launch", 1)
    (made,) = shapes.units
    whole = made.read_bytes()
    made.write_bytes(whole[: len(whole) // 2])
    assert names(shapes.run(spy, "launch", 1)[1]) == ONE_KERNEL
    assert made.read_bytes() == whole


def test_another_kernel_s_unit_is_not_taken_for_it(shapes: Built, spy: Path) -> None:
    shapes.run(spy, "launch", 1)
    (one,) = shapes.units
    shapes.run(spy, "launch", 2)
    (two,) = set(shapes.units) - {one}
    shutil.copy(two, one)
    _, seen = shapes.run(spy, "launch", 1)
    assert names(seen) == ONE_KERNEL and not used(seen)[0].endswith("none")


def test_after_some_kernels_of_a_source_all_are_made_in_the_background(
    shapes: Built, tmp_path: Path, spy: Path
) -> None:
    whole = f"list(pathlib.Path({str(shapes.cache)!r}).rglob('many-*.so'))"
    code = (
        f"import ctypes, pathlib, sys, time\nsys.path += {sys.path!r}\nfrom support import wait_until\n"
        "x = ctypes.CDLL('./libx.so')\n"
        # What is not to be made would have begun after the second.
        f"assert x.several(4, None) == 0\ntime.sleep(1)\nassert not {whole}\nassert x.many(5, None) == 0\n"
        # The file is there a little before the runtime has taken it.
        f"wait_until(lambda: {whole}, 120)\ntime.sleep(1)\nassert x.many(9, None) == 0\n"
    )
    seen = in_process(shapes, spy, code, tmp_path / "log", LAZYCK_JOBS="2")
    assert sorted(p.name.partition("-")[0] for p in shapes.units) == ["many", *["many.Many"] * 5]
    assert names(seen)[-1] == "launch _Z4ManyILi9EEvPf" and not used(seen)[-1].endswith(("none", "UNREGISTERED"))


def test_prebuild_lists_sources_or_their_kernels_and_makes_either(
    lazyck: Lazyck, linked: Built, tmp_path: Path, spy: Path
) -> None:
    lazy = replace(linked.fresh(tmp_path), where=linked.where / "archive")
    words = ["--manifest", str(lazy.where / "libx.so")]

    def prebuild(*more: str) -> str:
        done = lazyck("prebuild", *more, cwd=tmp_path, env=lazy.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert prebuild("list", *words) == "two\t-\n"
    rows = [line.split("\t") for line in prebuild("list", *words, "--kernels").splitlines()]
    assert sorted(row[2] for row in rows) == ["void K<1>(float*)", "void K<2>(float*)"]
    prebuild("build", *words, rows[0][0])
    assert [p.name[: len(rows[0][0])] for p in lazy.units] == [rows[0][0]]
    prebuild("build", *words, "--all")
    for n in (1, 2):
        assert len(used(lazy.run(spy, "call", n, LAZYCK_JIT="off")[1])) == 1


def test_a_deployed_library_compiles_its_kernels(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    lazy = build(lazyck, work, TWO, more=["--install-dir", str(out)])
    moved = tmp_path / "moved"
    shutil.move(out, moved)
    shutil.rmtree(work)
    there = replace(lazy, where=moved).fresh(tmp_path / "cache")
    assert names(there.run(spy, "launch", 1)[1]) == ONE_KERNEL


# The second kernel's name is unique to its build's directory.
PLACED = """
template <int N> __global__ void K(float* x) { x[0] = N; }
namespace { __global__ void unnamed(float* x) { x[0] = 7; } }
extern "C" int launch(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) unnamed<<<1, 1>>>(x);
    return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> list[Built]:
    """Build a library in two places."""
    root = tmp_path_factory.mktemp("placed")
    return [build(lazyck_shared, root / place, {"x.cu": PLACED}) for place in ("here", "there")]


@pytest.mark.parametrize("n", [1, 2], ids=["K<1>", "unnamed"])
def test_builds_in_two_places_share_entries(placed: list[Built], tmp_path: Path, spy: Path, n: int) -> None:
    here, there = (lazy.fresh(tmp_path) for lazy in placed)
    assert len(used(here.run(spy, "launch", n)[1])) == 1
    # If the build's directory makes a name unique, it makes its entry unique, too.
    more = {"LAZYCK_JIT": "off"} if n == 1 else {}
    assert len(used(there.run(spy, "launch", n, **more)[1])) == 1


# These launch a kernel, although no name on the way leads to it.
UNNAMED = {
    "pipe.cuh": """
template <int N> __global__ void K(float* x) { x[0] = N; }
struct To {};
template <class T> void operator|(T* x, To) { K<1><<<1, 1>>>(x); }
inline void start(float* x) { x | To(); }
""",
    "state.cuh": """
template <class T> __device__ T state;
inline int ask() { void* found; return cudaGetSymbolAddress(&found, state<float>); }
""",
    "call.cuh": """
#pragma once
template <class F> int call(F f, float* x) { return f(x); }
""",
    "one.cu": """
#include "pipe.cuh"
int ask_elsewhere();
int handed(int n, float* x);
int called(float* x);
int asked(int n, float* x);
extern "C" int launch(int n, float* x) {
    if (n == 1) start(x);
    if (n > 4) return n == 5 ? called(x) : asked(n, x);
    return n == 2 ? ask_elsewhere() : n > 2 ? handed(n, x) : cudaGetLastError();
}
""",
    "two.cu": """
#include "state.cuh"
int ask_elsewhere() { return ask(); }
""",
    # As in llama.cpp's binbcast.cu, a function template calls what it is given, and the head of a
    # kernel fills several lines.
    "handed.cu": """
static __device__ float add(float a, float b) { return a + b; }
static __device__ float mul(float a, float b) { return a * b; }
template <float (*bin_op)(const float, const float), typename first_t, typename second_t, typename third_t>
static __global__ void handed_kernel(const first_t* first, const second_t* second, third_t* third, int ne0, int ne1,
                                     int ne2, int ne3, int s0, int s1, int s2, int s3) {
    *third = bin_op(*first, *second);
}
template <float (*bin_op)(const float, const float)>
struct bin_bcast {
    template <class T> void operator()(T* x) {
        handed_kernel<bin_op><<<1, 1>>>(x, x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    }
};
template <class op> static int run(float* x) { op()(x); return cudaGetLastError(); }
int handed(int n, float* x) { return n == 3 ? run<bin_bcast<add>>(x) : run<bin_bcast<mul>>(x); }
""",
    # Here a header has the template that calls, so that only the object shows what is used.
    "called.cu": """
#include "call.cuh"
template <float (*bin_op)(const float, const float), typename first_t, typename second_t, typename third_t>
static __global__ void called_kernel(const first_t* first, const second_t* second, third_t* third, int ne0, int ne1) {
    *third = bin_op(*first, *second);
}
static __device__ float sub(float a, float b) { return a - b; }
struct Launch {
    template <class T> int operator()(T* x) const {
        called_kernel<sub><<<1, 1>>>(x, x, x, 0, 1);
        return cudaGetLastError();
    }
};
int called(float* x) { return call(Launch(), x); }
""",
    "asked.cu": """
#include "call.cuh"
template <class T> __device__ T variable;
template <class T> __constant__ T constant[2];
namespace inner { template <class T> static __managed__ T managed; }
template <class T> struct Ask {
    int n;
    int operator()(float*) const {
        void* found;
        return n == 6   ? cudaGetSymbolAddress(&found, variable<T>)
               : n == 7 ? cudaGetSymbolAddress(&found, constant<T>)
                        : cudaGetSymbolAddress(&found, inner::managed<T>);
    }
};
int asked(int n, float* x) { return call(Ask<double>{n}, x); }
""",
}


def test_what_no_name_leads_to_is_registered(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path / "lazy", UNNAMED, "-std=c++17")
    # Ahead of time, one source has all of it.
    sources = "".join(text for name, text in UNNAMED.items() if name.endswith(".cu"))
    headers = {name: text for name, text in UNNAMED.items() if name.endswith(".cuh")}
    ahead = build_ahead(tmp_path / "ahead", {**headers, "all.cu": sources}, "-std=c++17")
    for n in range(1, 9):
        mine, theirs = lazy.run(spy, "launch", n), ahead.run(spy, "launch", n)
        assert names(mine[1]) == names(theirs[1]) != []
        assert mine[0] == theirs[0]


# A device pass fails here if it reads the body of a host function.
HOST_ONLY = """
#ifdef __CUDA_ARCH__
#define HOST_ONLY static_assert(sizeof(int) == 0, "read for the device")
#else
#define HOST_ONLY
#endif
#define RETURNS(n) { HOST_ONLY; return n; }
template <int N> struct Base {};
inline int plain(int n) RETURNS(n + 1)
namespace inner { extern "C" { static inline int in_c() RETURNS(2) } }
enum class Kind : int { one = (1 << 0) };
inline Kind kind() RETURNS(Kind::one)
struct Outer final : Base<(2 > 1)> {
    Outer() : a(1), b{2} { HOST_ONLY; }
    explicit Outer(int n) noexcept(sizeof(int) > 2) : Outer() { HOST_ONLY; a = n; }
    ~Outer() { HOST_ONLY; }
    Outer(const Outer&) = default;
    int member() const noexcept RETURNS(a + b)
    static int shared() RETURNS(3)
    bool operator<(const Outer& other) const RETURNS(a < other.a)
    int operator()(int n) RETURNS(n)
    operator bool() const RETURNS(true)
    friend int operator+(const Outer& x, int n) RETURNS(x.a + n)
    int later(int n);
    operator long() const;
    static int twice(int n) RETURNS(2 * n)
    struct Inner { int number() RETURNS(4) } inner;
    __host__ __device__ int everywhere() const { return 5; }
    constexpr int constant() const { return 6; }
    auto deduced() const { return 7; }
    template <class T> T any(T n) { return n; }
    int (*pointer)(int){&twice};
    int a, b = 1;
};
inline int Outer::later(int n) RETURNS(n + a)
inline Outer::operator long() const RETURNS(8)
"""
SPARED = """
#include "host.cuh"
template <int N> __global__ void K(float* x) { x[0] = N; }
extern "C" int launch(int n, float* x) {
    Outer o, p(n);
    K<1><<<1, 1>>>(x);
    return plain(n) + inner::in_c() + int(kind()) + o.member() + Outer::shared() + (o < p) + o(n) + bool(o) + (o + n) +
           o.later(n) + int(long(o)) + o.inner.number() + o.everywhere() + o.constant() + o.deduced() + o.any(n) +
           o.pointer(n);
}
"""
# A source's own declarations lead to these, in all the ways in which C++ declares a name. Nothing
# leads to the others, on which a device pass fails.
LED_TO = """
#ifdef __CUDA_ARCH__
#define BROKEN static_assert(sizeof(int) == 0, "read for the device");
#else
#define BROKEN
#endif
template <int N> __global__ void Led(float* x) { x[0] = N; }
template <int A, bool B> struct Is { static const bool value = B; };
template <int A> struct Chosen { int value; };
struct Nobodys { int a; BROKEN };
template <class T> struct Nobodys2 { T member(Nobodys); BROKEN };
enum Plain { first = 1, second };
typedef struct { int n; } Named;
typedef int (*Pointer)(float*);
inline constexpr struct Starter {
    template <class T> int operator()(T* x) const { Led<1><<<1, 1>>>(x); return 0; }
} starter = {};
template <int A> typename Is<A, (A >= 2 && sizeof(int) >= 4)>::type nobodys(int);
inline int pointed(float* x) { Led<2><<<1, 1>>>(x); return 0; }
template <class T> requires requires(T t) { t + 1; } int constrained(T* x) { Led<3><<<1, 1>>>(x); return 0; }
struct Range {
    float* x;
    struct Step { float* x; int operator*() const { Led<4><<<1, 1>>>(x); return 4; }
                  bool operator!=(int) const { return x != nullptr; } void operator++() { x = nullptr; } };
    Step begin() const { return {x}; }
    int end() const { return 0; }
    template <class T> int nobodys(T t) const { BROKEN return t; }
    int later(float* x);
};
inline int Range::later(float* x) { Led<5><<<1, 1>>>(x); return 0; }
template <> struct Chosen<6> { static int run(float* x) { Led<6><<<1, 1>>>(x); return 0; } };
struct Made { Made(float* x) { Led<7><<<1, 1>>>(x); } };
static __global__ void nobodys_kernel(float* x) { x[0] = 8; }
"""
LEADS = """
#include "led_to.cuh"
extern "C" int led_to(int n, float* x) {
    Named named = {n};
    const Pointer pointer = &pointed;
    static float one;
    if (named.n == first) starter(x);
    if (n == second) pointer(x);
    if (n == 3) constrained(x);
    if (n == 4) for (int each : Range{&one}) n = each;
    if (n == 5) Range{x}.later(x);
    if (n == 6) Chosen<6>::run(x);
    if (n == 7) Made made(x);
    return cudaGetLastError();
}
"""
BROKEN = """
template <int N> __global__ void B(float* x) {
#ifdef __CUDA_ARCH__
    static_assert(N != 2 || __CUDA_ARCH__ < 800, "two is for old ones");
#endif
    x[0] = N;
}
extern "C" int broken(int n, float* x) {
    if (n == 1) B<1><<<1, 1>>>(x);
    if (n == 2) B<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
"""
CALLING = """
#include <exception>
extern "C" int broken(int, float*), atoi(const char*) noexcept, printf(const char*, ...);
int main(int count, char** words) {
    for (int i = 1; i < count; ++i) {
        try { printf("%d\\n", broken(atoi(words[i]), nullptr)); }
        catch (const std::exception& e) { printf("threw: %s\\n", e.what()); }
    }
}
"""
# An error shows which text the compiler reads. It must come from the device's passes only, because
# the host's pass reads everything.
NOBODYS = """
#ifdef __CUDA_ARCH__
    not_declared nobody_names_it();
    template <class T> __device__ not_declared nor_that(T) { return 0; }
#endif
"""
MEMBER = {
    "read.cuh": "struct Read { int n;" + NOBODYS + "};\n",
    "member.cu": """
#include "read.cuh"
__device__ int n(Read read) { return read.n; }
template <int N> __global__ void R(float* x) { x[0] = n({N}); }
extern "C" int member(int n, float* x) {
    if (n == 1) R<1><<<1, 1>>>(x);
    if (n == 2) R<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
""",
}


@pytest.fixture
def unread(once: Once, lazyck: Lazyck, tmp_path: Path) -> Built:
    """Build a library whose sources do not compile ahead of time."""
    files = {"host.cuh": HOST_ONLY, "one.cu": SPARED, "led_to.cuh": LED_TO, "leads.cu": LEADS, "broken.cu": BROKEN}
    made = once("cuda_shapes_unread", lambda where: build(lazyck, where, files | MEMBER, "-std=c++20"))
    return made.fresh(tmp_path / "cache")


@pytest.mark.differs("ahead of time the device reads it, and ends there")
def test_the_device_is_spared_what_the_host_does_in_headers(unread: Built, spy: Path) -> None:
    said, lines = unread.run(spy, "launch", 1)
    assert (said, names(lines)) == ("50", ONE_KERNEL)
    (made,) = unread.units
    assert made.name.startswith("one.K-")


@pytest.mark.differs("ahead of time the device reads all of it, and ends there")
def test_what_nothing_leads_to_is_not_read(unread: Built, spy: Path) -> None:
    for n in range(1, 8):
        assert names(unread.run(spy, "led_to", n)[1]) == [f"launch _Z3LedILi{n}EEvPf"]


@pytest.mark.differs("ahead of time the build fails")
def test_a_member_that_nobody_names_is_not_read(unread: Built, spy: Path) -> None:
    assert [line.split()[1] for line in used(unread.run(spy, "member", 1)[1])] == ["_Z1RILi1EEvPf"]


@pytest.mark.differs("ahead of time the build fails")
def test_a_kernel_that_does_not_compile_is_named_and_the_others_work(unread: Built, tmp_path: Path, spy: Path) -> None:
    (tmp_path / "calling.cpp").write_text(CALLING)
    words = ["c++", "calling.cpp", f"-L{unread.where}", "-lx", f"-Wl,-rpath,{unread.where}", "-o", "calling"]
    subprocess.run(words, cwd=tmp_path, check=True, env={**os.environ, **unread.env})
    env = {**unread.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(tmp_path / "log")}
    done = subprocess.run(["./calling", "2", "1", "2"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, _, rest = done.stdout.partition("\n0\n")
    assert "broken.cu(4)" in first and "two is for old ones" in first
    assert "B<2>" in first or "_Z1BILi2EEvPf" in first
    assert "two is for old ones" in rest
