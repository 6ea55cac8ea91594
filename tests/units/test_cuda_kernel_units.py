"""Test what a kernel unit contains: the machine code that the whole file gives the kernel, and no
other kernels."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.built_units import Built
from support.cuda_machine import needs_nvcc
from support.cuda_units import build, build_ahead, used

from lazyck.abi import WHOLE_SOURCE_MARK

pytestmark = [pytest.mark.cuda, needs_nvcc]

KERNEL = "template <int N> __global__ void K(float* x) { x[threadIdx.x] *= N; }\n"
LAUNCHES = """
extern "C" int launch(int n, float* x) {
    if (n == 1) CALL(1);
    if (n == 2) CALL(2);
    return cudaGetLastError();
}
"""
DIRECT = "#undef CALL\n#define CALL(n) K<n><<<1, 1>>>(x)\n"
KERNELS = "template __global__ void K<1>(float*);\ntemplate __global__ void K<2>(float*);\n"
CALLERS = """
template <int N> void call(float* x) { K<N><<<1, 1>>>(x); }
template void call<1>(float*);
template void call<2>(float*);
#define CALL(n) call<n>(x)
"""
# The kernel has so many live values that its launch bounds matter.
HEAVY = """
template <int N> __global__ void K(float* x) {
    float y[120];
    for (int i = 0; i < 120; ++i) y[i] = x[i * 32 + threadIdx.x];
    for (int k = 0; k < N; ++k)
        for (int i = 0; i < 120; ++i) y[i] = y[i] * y[(i * 7 + 3) % 120] + k;
    for (int i = 0; i < 120; ++i) x[i * 32 + threadIdx.x] = y[i];
}
"""
# The compiler makes `shared` once for all its callers, and what it knows about the arguments
# depends on these.
SHARED = """
__device__ __noinline__ float shared(float x, int n) {
    float y = x;
    for (int i = 0; i < n; ++i) y = y * x + i;
    return y;
}
template <int N> __global__ void K(float* x) { x[threadIdx.x] = shared(x[threadIdx.x], N); }
"""
# Nothing registers this variable, because no host code names it.
TEMPLATE_VARIABLE = """
template <class T> __device__ T counter = 3;
template <int N> __global__ void K(float* x) {
    if (N == 1) counter<int> += 1;
    if (N == 2) x[0] = counter<int>;
}
"""
SINE = "template <int N> __global__ void K(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x] * N); }\n"
# Each name is declared twice. If the nearer declaration were left out, the kernel would use the
# other one.
NEAREST = """
constexpr int middle_of_three = 70;
enum Far { small = 90, large = 91 };
struct Sizes { int n; } size = {1};
__device__ Sizes twice(int n) { return {9 * n}; }
template <class T> struct Of { static const int value = 100; };
template <> struct Of<int> { static const int value = 6; };
__device__ int convert(double x) { return 3 * x; }
struct Both { int a, b; };
constexpr int Both::*member = &Both::a;
namespace ns {
constexpr int first_of_three = 1, middle_of_three = 2, last_of_three = 3;
enum { small = 4, large = 5 };
struct Doubled { int n; };
__device__ Doubled (twice)(int n) { return {2 * n}; }
typedef struct { int n[7]; } Unused, Sizes;
__device__ int convert(int x) { return x + 1; }
using Number = int;
constexpr Number (Both::*member) = &Both::b;
template <int N> __global__ void K(float* x) {
    const Both both = {N, 2 * N};
    const int names = middle_of_three + small + large + twice(N).n + convert(N) + both.*member;
    x[threadIdx.x] *= float(names + int(sizeof(Sizes)) + Of<int>::value);
}
}
using ns::K;
"""
# If a member that counts were left out, the number would differ, although the kernel does not name
# the member.
MEMBERS = """
struct Abstract { virtual void whatever() = 0; };
struct Made : Abstract { void whatever() {} };
struct Copied { Copied(const Copied&); int n; };
struct Assigned { Assigned& operator=(const Assigned&); int n; };
struct Destroyed { ~Destroyed(); int n; };
struct Outer { struct Inner { Inner(); Inner(const Inner&); int n; }; };
struct Number {
    __device__ Number(int n) : n(n) {}
    template <class T> __device__ Number(T n) : n(3 * int(n)) {}
    __device__ operator int() const { return n; }
    __device__ operator double() const { return 5 * n; }
    __device__ int operator()(int x) const { return x + n; }
    __device__ friend int plus(const Number& a, int b) { return a.n + b; }
    int n;
};
__device__ int plus(int a, int b) { return 7 * (a + b); }
struct Hidden { int second() const; };
struct Two : Hidden {
    __device__ Two(int n) : n(n) {}
    char one_of_two() const, second() const;
    int (*pointer)(int), n;
};
struct Sized { int size() const; };
template <class T, int = sizeof(T().size())> __device__ int size_of(int) { return 11; }
template <class T> __device__ int size_of(...) { return 13; }
struct Range {
    int at[3];
    __device__ const int* begin() const { return at; }
    __device__ const int* end() const { return at + 3; }
};
template <int N> __global__ void K(float* x) {
    int sum = __is_abstract(Made) + 2 * __is_polymorphic(Abstract) + 4 * __is_trivially_copyable(Copied) +
              8 * __is_trivially_copyable(Assigned) + 16 * __has_trivial_destructor(Destroyed) +
              32 * __is_trivially_copyable(Outer::Inner);
    const Number number(N), other(2.0f);
    sum += number(1) + int(other) + plus(number, 3) + int(double(number)) + sizeof(Two(N).second());
    sum += size_of<Sized>(0) + size_of<Two>(0);
    for (const int each : Range{{N, 2, 3}}) sum = 3 * sum + each;
    x[threadIdx.x] *= float(sum);
}
"""
# Definitions that do not repeat that device code may call them.
DECLARED = """
#include <new>
struct Point {
    __host__ __device__ Point(float x);
    __device__ float twice() const;
    __host__ __device__ bool operator<(const Point& other) const;
    float x;
};
__host__ __device__ float thrice(float);
template <int N> __global__ void K(float* x) {
    __shared__ alignas(Point) char room[sizeof(Point)];
    const Point& made = *new (room) Point(x[1]);
    x[0] = thrice(made.twice()) + (made < Point(N));
}
Point::Point(float x) : x(x + 1) {}
float Point::twice() const { return 2 * x; }
bool Point::operator<(const Point& other) const { return x < other.x; }
float thrice(float x) { return 3 * x; }
"""
# At the end of the source, the kernel's name could mean the variable.
HOMONYM = f"""
namespace {{
{KERNEL}
void start(int n, float* x) {{
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
}}
}}
int K = 3;
extern "C" int launch(int n, float* x) {{
    start(n, x);
    return cudaGetLastError();
}}
"""


def named(name: str, text: str) -> str:
    """Return a source whose kernels `K` and function `launch` have names of their own."""
    return re.sub(r"\bK\b", name, text.replace("int launch(", f"int launch_{name}("))


BOUNDED = HEAVY + KERNELS.replace("void K<2>", "void __launch_bounds__(1024, 2) K<2>") + DIRECT + LAUNCHES
# These have the same machine code ahead of time. Of two, the declarations are in headers.
HEADERS = {"nearest.cuh": named("nearest", NEAREST), "members.cuh": named("members", MEMBERS)}
AHEAD = {
    "bounded.cu": named("bounded", BOUNDED),
    "calls_shared.cu": named("calls_shared", SHARED + DIRECT + LAUNCHES),
    "nearest.cu": named("nearest", '#include "nearest.cuh"\n' + DIRECT + LAUNCHES),
    "members.cu": named("members", '#include "members.cuh"\n' + DIRECT + LAUNCHES),
    "declared.cu": named("declared", DECLARED + DIRECT + LAUNCHES),
}
LAZY = {
    "counts.cu": named("counts", TEMPLATE_VARIABLE + DIRECT + LAUNCHES),
    "sine.cu": named("sine", SINE + DIRECT + LAUNCHES),
    "homonym.cu": named("homonym", HOMONYM),
}
INSTANCES = {
    "kernels.cu": named("direct", KERNEL + KERNELS + DIRECT + LAUNCHES),
    "callers.cu": named("called", KERNEL + CALLERS + LAUNCHES),
}


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> Built:
    return build(lazyck_shared, tmp_path_factory.mktemp("instances"), INSTANCES)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> tuple[Built, Built]:
    """Build the sources lazily. Ahead of time, one source has those with the same machine code."""
    where = tmp_path_factory.mktemp("kernel-units")
    lazy = build(lazyck_shared, where / "lazy", {**HEADERS, **AHEAD, **LAZY})
    return lazy, build_ahead(where / "ahead", {**HEADERS, "all.cu": "".join(AHEAD.values())})


def registered(lazy: Built, spy: Path, name: str) -> set[str]:
    """Return the kernels that are registered when the source `name` launches its first one."""
    _, seen = lazy.run(spy, f"launch_{name}", 1)
    return {line.split()[1] for line in seen if line.startswith("register")}


def same_code(both: tuple[Built, Built], cache: Path, spy: Path, name: str, n: int) -> tuple[Path, ...]:
    """Check that a kernel has the machine code that it has ahead of time. Return the cache's
    entries."""
    lazy = both[0].fresh(cache)
    mine, theirs = (used(library.run(spy, f"launch_{name}", n)[1]) for library in (lazy, both[1]))
    assert mine == theirs and len(mine) == 1
    return tuple(lazy.units)


@pytest.mark.parametrize(("source", "name"), [("kernels", "direct"), ("callers", "called")])
def test_explicit_instantiations_bring_no_other_kernel_along(
    instances: Built, tmp_path: Path, spy: Path, source: str, name: str
) -> None:
    lazy = instances.fresh(tmp_path)
    returned, seen = lazy.run(spy, f"launch_{name}", 1)
    assert returned == "0" and len(used(seen)) == 1
    (unit,) = lazy.units
    assert unit.name.startswith(f"{source}.{name}")
    assert f".text._Z6{name}ILi1EEvPf".encode() in unit.read_bytes()
    assert f".text._Z6{name}ILi2EEvPf".encode() not in unit.read_bytes()


@pytest.mark.parametrize("n", [1, 2])
def test_an_instantiation_with_bounds_of_its_own_keeps_them(
    both: tuple[Built, Built], tmp_path: Path, spy: Path, n: int
) -> None:
    same_code(both, tmp_path, spy, "bounded", n)


@pytest.mark.parametrize("n", [1, 2])
def test_a_kernel_that_shares_a_function_has_the_code_of_the_whole_file(
    both: tuple[Built, Built], tmp_path: Path, spy: Path, n: int
) -> None:
    same_code(both, tmp_path, spy, "calls_shared", n)


@pytest.mark.parametrize("way", ["prebuild", "prefetch"])
def test_a_kernel_that_is_made_by_its_name_is_made_with_all_that_its_launch_takes(
    both: tuple[Built, Built], tmp_path: Path, spy: Path, lazyck: Lazyck, way: str
) -> None:
    lazy = both[0].fresh(tmp_path)

    def prebuild(*words: str) -> str:
        done = lazyck("prebuild", *words, "--manifest", "libx.so", "--gpu-archs", "80", cwd=lazy.where, env=lazy.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def listed() -> dict[str, str]:
        rows = (line.split("\t") for line in prebuild("list", "--kernels", "--match", "calls_shared.*").splitlines())
        return {name: archs for name, archs, _ in rows}

    first = min(listed())
    if way == "prebuild":
        prebuild("build", first)
    else:
        code = f"from lazyck.library import load; load('./libx.so').prefetch('{first}').wait()"
        subprocess.run([sys.executable, "-c", code], cwd=lazy.where, env={**lazy.env, "LAZYCK_ARCHS": "80"}, check=True)
    assert lazy.entries == sorted(["calls_shared", first])
    assert listed() == dict.fromkeys(listed(), "80")  # the source serves its other kernels, too
    for n in (1, 2):
        lazy.run(spy, "launch_calls_shared", n, LAZYCK_JIT="off")
    for entry in lazy.units:
        if entry.name.startswith("calls_shared-"):
            entry.unlink()
    assert listed() == dict.fromkeys(listed(), "-")  # what only says that it takes the source is not enough


def test_kernels_that_share_a_template_s_variable_are_in_one_module(
    both: tuple[Built, Built], tmp_path: Path, spy: Path
) -> None:
    assert registered(both[0].fresh(tmp_path), spy, "counts") == {"_Z6countsILi1EEvPf", "_Z6countsILi2EEvPf"}


def test_a_constant_of_the_compiler_is_each_kernel_s_own(both: tuple[Built, Built], tmp_path: Path, spy: Path) -> None:
    assert registered(both[0].fresh(tmp_path), spy, "sine") == {"_Z4sineILi1EEvPf"}


def test_a_kernel_uses_the_declarations_that_it_does_in_its_file(
    both: tuple[Built, Built], tmp_path: Path, spy: Path
) -> None:
    made = same_code(both, tmp_path, spy, "nearest", 2)
    assert "nearest.nearest" in {p.name.partition("-")[0] for p in made}


def test_a_class_keeps_the_members_that_count(both: tuple[Built, Built], tmp_path: Path, spy: Path) -> None:
    (unit,) = same_code(both, tmp_path, spy, "members", 2)
    assert unit.name.startswith("members.members") and WHOLE_SOURCE_MARK.encode() not in unit.read_bytes()


def test_a_function_is_device_code_where_its_declaration_says_so(
    both: tuple[Built, Built], tmp_path: Path, spy: Path
) -> None:
    (unit,) = same_code(both, tmp_path, spy, "declared", 2)
    assert unit.name.startswith("declared.declared")
    assert "fatal" not in unit.with_suffix(".log").read_text()  # the first text was the right one


def test_kernels_whose_name_is_ambiguous_take_one_compile_of_their_source(
    both: tuple[Built, Built], tmp_path: Path, spy: Path
) -> None:
    lazy = both[0].fresh(tmp_path)
    for n in (1, 2):
        assert len(used(lazy.run(spy, "launch_homonym", n)[1])) == 1
        assert "homonym" in lazy.entries and len(lazy.entries) == 2
