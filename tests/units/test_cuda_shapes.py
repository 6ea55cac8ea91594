"""Test libraries and programs of all shapes whose kernels are compiled one by one, and what can go
wrong with these."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_machine import needs_nvcc
from cuda_units import build, build_ahead, environment, used, write
from support import Lazyck

from _lazyck.postbuild.objects.elf import read_shared

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


def test_a_program_has_its_kernels_one_by_one(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    main = {"main.cu": 'extern "C" int launch(int, float*);\nint main(int n, char**) { return launch(n, nullptr); }\n'}
    lazy = build(lazyck, tmp_path, TWO | main, link="nvcc *.o -o program -cudart shared")
    log = tmp_path / "log"
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log)}
    subprocess.run(["./program"], cwd=tmp_path, env=env, check=True)
    assert names(log.read_text().splitlines()) == ONE_KERNEL
    assert len(list((tmp_path / "cache").rglob("*.so"))) == 1


def test_host_units_in_a_static_archive(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    caller = {"caller.cu": 'extern "C" int launch(int, float*);\nextern "C" int call(int n) { return launch(n, 0); }\n'}
    link = "ar rcs libtwo.a two.cu.o\nnvcc -shared caller.cu.o libtwo.a -o libx.so -cudart shared"
    lazy = build(lazyck, tmp_path, TWO | caller, link=link)
    assert names(lazy.run(spy, "call", 1)[1]) == ONE_KERNEL


def test_where_there_is_no_blob_nothing_is_exported_that_is_hidden(lazyck: Lazyck, tmp_path: Path) -> None:
    state = """
struct __attribute__((visibility("hidden"))) State { static inline int count = 0; };
__global__ void K() {}
extern "C" int launch(int n, float*) { K<<<1, 1>>>(); return State::count += n; }
"""
    build(lazyck, tmp_path, {"state.cu": state}, "-std=c++17")
    assert {"launch"} == {n for n in read_shared(tmp_path / "libx.so").defined if n in ("launch", "_ZN5State5countE")}


def test_a_source_without_kernels(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, {"none.cu": 'extern "C" int launch(int n, float*) { return n + 1; }\n'})
    assert lazy.run(spy, "launch", 1)[0] == "2"


def test_a_source_that_does_not_compile_fails_the_build_with_its_compiler_s_error(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    write(tmp_path, TWO | {"wrong.cu": "int wrong() { return not_declared; }\n"})
    done = lazyck("build", "full", "--", "sh", "build.sh", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 1
    assert re.search(r'wrong\.cu\(1\): error: identifier "not_declared" is undefined', done.stderr)
    assert not (tmp_path / "libx.so").exists()


def test_a_static_runtime_is_reached(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, TWO, link="nvcc -shared *.o -o libx.so -cudart static")
    assert lazy.run(spy, "launch", 1)[0] in ("35", "0"), "there is no driver here, or there is one"
    assert [p.name.partition("-")[0] for p in (tmp_path / "cache").rglob("*.so")] == ["two.K"]


def test_each_of_two_archs_has_a_unit_with_its_code_alone(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    archs = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"
    lazy = build(lazyck, tmp_path, TWO, archs)
    lazy.run(spy, "launch", 1, LAZYCK_ARCHS="80;90")
    made = sorted((tmp_path / "cache").rglob("*.so"))
    assert [unit.parent.name.partition("-")[0] for unit in made] == ["80", "90"]
    assert [unit.read_bytes().count(b"\2\0\xbe\0") for unit in made] == [1, 1], "executables for NVIDIA's machine"


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
extern "C" int launch(int n, float* x) { return start(n, x); }
""",
}


@pytest.mark.parametrize(("n", "kernel"), [(1, "_Z1KIfLi1EEvPT_"), (3, "_Z1LIfLi3EEvPT_"), (4, "_Z8declaredIfEvPT_")])
def test_instances_that_a_source_asks_for_are_not_compiled_with_another_kernel(
    lazyck: Lazyck, tmp_path: Path, spy: Path, n: int, kernel: str
) -> None:
    lazy = build(lazyck, tmp_path, INSTANCES)
    assert names(lazy.run(spy, "launch", n)[1]) == [f"launch {kernel}"]
    (made,) = (tmp_path / "cache").rglob("*.so")
    assert set(re.findall(rb"\.text\.(_Z\w+)", made.read_bytes())) == {kernel.encode()}


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
extern "C" int launch(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
}
"""


def test_functions_behind_a_comparison_in_template_arguments_are_found(
    lazyck: Lazyck, tmp_path: Path, spy: Path
) -> None:
    lazy = build(lazyck, tmp_path, {"compares.cu": COMPARES})
    assert names(lazy.run(spy, "launch", 1)[1]) == ["launch _ZN7kernels1KILi1EEEvPf"]
    (made,) = (tmp_path / "cache").rglob("*.so")
    assert set(re.findall(rb"\.text\.(_Z\w+)", made.read_bytes())) == {b"_ZN7kernels1KILi1EEEvPf"}


MEMBERS = """
template <int N> __global__ void K(float* x) { x[0] = N; }
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
Starter::~Starter() { K<3><<<1, 1>>>(nullptr); }
int Starter::start(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
int Starter::Inner::start(float* x) { K<4><<<1, 1>>>(x); return 0; }
template <class T> T* Any<T>::start(T* x) { K<5><<<1, 1>>>(x); return x; }
template <> float* Any<float>::start(float* x) { K<6><<<1, 1>>>(x); return x; }
template <class T> template <int N> void Any<T>::more(T* x) { K<N><<<1, 1>>>(x); }
const int* ns::declared(float* x) { K<7><<<1, 1>>>(x); return nullptr; }
extern "C" int launch(int n, float* x) { return (new Starter)->start(n, x); }
"""


def test_members_that_are_defined_outside_of_their_classes_launch_no_other_kernels(
    lazyck: Lazyck, tmp_path: Path, spy: Path
) -> None:
    lazy = build(lazyck, tmp_path, {"members.cu": MEMBERS})
    assert names(lazy.run(spy, "launch", 1)[1]) == ONE_KERNEL
    (made,) = (tmp_path / "cache").rglob("*.so")
    assert set(re.findall(rb"\.text\.(_Z\w+)", made.read_bytes())) == {b"_Z1KILi1EEvPf"}


PICKS = {
    "picks.cuh": """
typedef void (*Kernel)(float*);
template <int N> __global__ void K(float* x) { x[0] = N; }
inline Kernel pick(int n) {
    if (n == 1) return K<1>;
    if (n == 2) return K<2>;
    return nullptr;
}
""",
    "picks.cu": """
#include "picks.cuh"
extern "C" int launch(int n, float* x) { pick(n)<<<1, 1>>>(x); return cudaGetLastError(); }
""",
}


def test_a_header_s_function_that_picks_kernels_has_none_compiled_with_another(
    lazyck: Lazyck, tmp_path: Path, spy: Path
) -> None:
    lazy = build(lazyck, tmp_path, PICKS)
    assert names(lazy.run(spy, "launch", 2)[1]) == ["launch _Z1KILi2EEvPf"]
    (made,) = (tmp_path / "cache").rglob("*.so")
    assert set(re.findall(rb"\.text\.(_Z\w+)", made.read_bytes())) == {b"_Z1KILi2EEvPf"}


def test_a_deployed_library_compiles_its_kernels(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    lazy = build(lazyck, work, TWO, more=["--install-dir", str(out)])
    moved = tmp_path / "moved"
    shutil.move(out, moved)
    shutil.rmtree(work)
    there = replace(lazy, where=moved).fresh(tmp_path / "cache")
    assert names(there.run(spy, "launch", 1)[1]) == ONE_KERNEL


def test_a_library_that_is_closed_and_opened_again(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, TWO)
    log = tmp_path / "log"
    code = (
        "import ctypes, _ctypes\n"
        "for n in (1, 2, 1):\n"
        "    x = ctypes.CDLL('./libx.so')\n    assert x.launch(n, None) == 0\n    _ctypes.dlclose(x._handle)\n"
    )
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log)}
    done = subprocess.run(["python3", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert names(log.read_text().splitlines()) == [*ONE_KERNEL, "launch _Z1KILi2EEvPf", *ONE_KERNEL]


BROKEN = {
    "broken.cu": """
template <int N> __global__ void K(float* x) {
#ifdef __CUDA_ARCH__
    static_assert(N != 2 || __CUDA_ARCH__ < 800, "two is for old ones");
#endif
    x[0] = N;
}
extern "C" int launch(int n, float* x) {
    if (n == 1) K<1><<<1, 1>>>(x);
    if (n == 2) K<2><<<1, 1>>>(x);
    return cudaGetLastError();
}
""",
}
CALLING = """
#include <cstdio>
#include <cstdlib>
#include <exception>
extern "C" int launch(int, float*);
int main(int count, char** words) {
    for (int i = 1; i < count; ++i) {
        try { std::printf("%d\\n", launch(std::atoi(words[i]), nullptr)); }
        catch (const std::exception& e) { std::printf("threw: %s\\n", e.what()); }
    }
}
"""


def test_a_kernel_that_does_not_compile_is_named_and_the_others_work(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    fine = {"fine.cu": '__global__ void F() {}\nextern "C" int fine(int) { F<<<1, 1>>>(); return 0; }\n'}
    lazy = build(lazyck, tmp_path, BROKEN | fine)
    (tmp_path / "calling.cpp").write_text(CALLING)
    words = ["c++", "calling.cpp", "-L.", "-lx", f"-Wl,-rpath,{tmp_path}", "-o", "calling"]
    subprocess.run(words, cwd=tmp_path, check=True, env={**os.environ, **lazy.env})
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(tmp_path / "log")}
    done = subprocess.run(["./calling", "2", "1", "2"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, _, rest = done.stdout.partition("\n0\n")
    assert "broken.cu(4)" in first and "two is for old ones" in first
    assert "K<2>" in first or "_Z1KILi2EEvPf" in first
    assert "two is for old ones" in rest


def test_a_damaged_unit_is_made_anew(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, TWO)
    lazy.run(spy, "launch", 1)
    (made,) = (tmp_path / "cache").rglob("*.so")
    whole = made.read_bytes()
    made.write_bytes(whole[: len(whole) // 2])
    assert names(lazy.run(spy, "launch", 1)[1]) == ONE_KERNEL
    assert made.read_bytes() == whole


def test_another_kernel_s_unit_is_not_taken_for_it(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, TWO)
    lazy.run(spy, "launch", 1)
    (one,) = (tmp_path / "cache").rglob("*.so")
    lazy.run(spy, "launch", 2)
    (two,) = set((tmp_path / "cache").rglob("*.so")) - {one}
    shutil.copy(two, one)
    _, seen = lazy.run(spy, "launch", 1)
    assert names(seen) == ONE_KERNEL and not used(seen)[0].endswith("none")


@pytest.mark.parametrize("kernel", ["K<1>", "unnamed"])
def test_builds_in_two_places_share_entries(lazyck: Lazyck, tmp_path: Path, spy: Path, kernel: str) -> None:
    source = """
        template <int N> __global__ void K(float* x) { x[0] = N; }
        namespace { __global__ void unnamed(float* x) { x[0] = 7; } }
        extern "C" int launch(int, float* x) { KERNEL<<<1, 1>>>(x); return cudaGetLastError(); }
    """.replace("KERNEL", kernel)
    places = [tmp_path / "here", tmp_path / "there"]
    builds = [build(lazyck, place, {"x.cu": source}) for place in places]
    shared = {"LAZYCK_CACHE_DIR": str(tmp_path / "cache")}
    assert len(used(builds[0].run(spy, "launch", 1, **shared)[1])) == 1
    # If the build's directory makes a name unique, it makes its entry unique, too.
    more = {"LAZYCK_JIT": "off"} if kernel != "unnamed" else {}
    assert len(used(builds[1].run(spy, "launch", 1, **shared, **more)[1])) == 1


MANY = """
template <int N> __global__ void K(float* x) { x[0] = N; }
template <int N> int call(int n, float* x) {
    if constexpr (N > 0) {
        if (n != N) return call<N - 1>(n, x);
        K<N><<<1, 1>>>(x);
        return cudaGetLastError();
    }
    return -1;
}
extern "C" int launch(int n, float* x) { return n > 12 ? -1 : call<12>(n, x); }
extern "C" int several(int n, float* x) {
    for (int i = 1; i <= n; ++i) if (int error = launch(i, x)) return error;
    return 0;
}
"""


def test_after_some_kernels_of_a_source_all_are_made_in_the_background(
    lazyck: Lazyck, tmp_path: Path, spy: Path
) -> None:
    lazy = build(lazyck, tmp_path, {"many.cu": MANY}, "-std=c++17")
    log = tmp_path / "log"
    whole = "list(pathlib.Path('cache').rglob('many-*.so'))"
    code = (
        "import ctypes, pathlib, time\nx = ctypes.CDLL('./libx.so')\n"
        f"assert x.several(4, None) == 0\ntime.sleep(1)\nassert not {whole}\nassert x.launch(5, None) == 0\n"
        f"end = time.monotonic() + 120\nwhile not {whole} and time.monotonic() < end: time.sleep(0.1)\n"
        f"assert {whole}\ntime.sleep(1)\nassert x.launch(9, None) == 0\n"
    )
    env = {**lazy.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log), "LAZYCK_JOBS": "2"}
    done = subprocess.run(["python3", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = sorted(p.name.partition("-")[0] for p in (tmp_path / "cache").rglob("*.so"))
    assert made == ["many", *["many.K"] * 5]
    seen = log.read_text().splitlines()
    assert names(seen)[-1] == "launch _Z1KILi9EEvPf" and not used(seen)[-1].endswith(("none", "UNREGISTERED"))


def test_prebuild_lists_sources_or_their_kernels_and_makes_either(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, TWO)
    words = ["--manifest", str(tmp_path / "libx.so")]

    def prebuild(*more: str) -> str:
        done = lazyck("prebuild", *more, cwd=tmp_path, env=lazy.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert prebuild("list", *words) == "two\t-\n"
    rows = [line.split("\t") for line in prebuild("list", *words, "--kernels").splitlines()]
    assert sorted(row[2] for row in rows) == ["void K<1>(float*)", "void K<2>(float*)"]
    prebuild("build", *words, rows[0][0])
    assert [p.name[: len(rows[0][0])] for p in (tmp_path / "cache").rglob("*.so")] == [rows[0][0]]
    prebuild("build", *words, "--all")
    for n in (1, 2):
        assert len(used(lazy.run(spy, "launch", n, LAZYCK_JIT="off")[1])) == 1


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


@pytest.mark.differs("ahead of time the device reads it, and ends there")
def test_the_device_is_spared_what_the_host_does_in_headers(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    source = """
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
    lazy = build(lazyck, tmp_path, {"host.cuh": HOST_ONLY, "one.cu": source})
    said, lines = lazy.run(spy, "launch", 1)
    assert (said, names(lines)) == ("50", ONE_KERNEL)
    (made,) = (tmp_path / "cache").rglob("*.so")
    assert made.name.startswith("one.K-")


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
    ahead = build_ahead(tmp_path / "ahead", UNNAMED, "-std=c++17")
    for n in range(1, 9):
        mine, theirs = lazy.run(spy, "launch", n), ahead.run(spy, "launch", n)
        assert names(mine[1]) == names(theirs[1]) != []
        assert mine[0] == theirs[0]


# A source's own declarations lead to these, in all the ways in which C++ declares a name. Nothing
# leads to the others, on which a device pass fails.
LED_TO = """
#ifdef __CUDA_ARCH__
#define BROKEN static_assert(sizeof(int) == 0, "read for the device");
#else
#define BROKEN
#endif
template <int N> __global__ void K(float* x) { x[0] = N; }
template <int A, bool B> struct Is { static const bool value = B; };
template <int A> struct Chosen { int value; };
struct Nobodys { int a; BROKEN };
template <class T> struct Nobodys2 { T member(Nobodys); BROKEN };
enum Plain { first = 1, second };
typedef struct { int n; } Named;
typedef int (*Pointer)(float*);
inline constexpr struct Starter {
    template <class T> int operator()(T* x) const { K<1><<<1, 1>>>(x); return 0; }
} starter = {};
template <int A> typename Is<A, (A >= 2 && sizeof(int) >= 4)>::type nobodys(int);
inline int pointed(float* x) { K<2><<<1, 1>>>(x); return 0; }
template <class T> requires requires(T t) { t + 1; } int constrained(T* x) { K<3><<<1, 1>>>(x); return 0; }
struct Range {
    float* x;
    struct Step { float* x; int operator*() const { K<4><<<1, 1>>>(x); return 4; }
                  bool operator!=(int) const { return x != nullptr; } void operator++() { x = nullptr; } };
    Step begin() const { return {x}; }
    int end() const { return 0; }
    template <class T> int nobodys(T t) const { BROKEN return t; }
    int later(float* x);
};
inline int Range::later(float* x) { K<5><<<1, 1>>>(x); return 0; }
template <> struct Chosen<6> { static int run(float* x) { K<6><<<1, 1>>>(x); return 0; } };
struct Made { Made(float* x) { K<7><<<1, 1>>>(x); } };
static __global__ void nobodys_kernel(float* x) { x[0] = 8; }
"""
LEADS = """
#include "led_to.cuh"
extern "C" int launch(int n, float* x) {
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


@pytest.mark.differs("ahead of time the device reads all of it, and ends there")
def test_what_nothing_leads_to_is_not_read(lazyck: Lazyck, tmp_path: Path, spy: Path) -> None:
    lazy = build(lazyck, tmp_path, {"led_to.cuh": LED_TO, "leads.cu": LEADS}, "-std=c++20")
    for n in range(1, 8):
        assert names(lazy.run(spy, "launch", n)[1]) == [f"launch _Z1KILi{n}EEvPf"]
