"""Test that blobs are compiled for the device that is present. Stand-ins for the HIP and CUDA
libraries answer here."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support import REPOSITORY
from support.lazylib import CLANG, CXX, SOURCES, LazyLibrary, as_new, build_lazy_library, run

from lazyck import abi
from lazyck.formats.c_header import render_header
from lazyck.runtime.builder import CXX_FLAGS

HEADER = "#pragma once\nint arch();\nint other();\nint use();\n"
BLOBS = {"arch": "int arch() { return ARCH; }\n", "other": "int other() { return 1; }\n"}
MAIN = '#include "demo.h"\nint use() { return arch(); }\n'
SYMBOLS = {"arch": ("_Z4archv",), "other": ("_Z5otherv",)}
PROGRAM = r"""
#include "demo.h"
#include "error.hpp"
#include <cstdio>
int main() {
    try { std::printf("%d %d\n", use(), other()); return 0; }
    catch (const lazyck::CompileError& e) { std::puts(e.what()); return 3; }
}
"""
HIP_R0600 = r"""
#include <cstring>
extern "C" int hipGetDevice(int* d) { *d = 3; return STATUS; }
extern "C" int hipGetDevicePropertiesR0600(char* p, int d) {
    std::strcpy(p, "gfx is a bad name"); std::strcpy(p + 1160, d == 3 ? "gfx942:sramecc+:xnack-" : "gfx000"); return 0;
}
"""
HIP_OLD = r"""
#include <cstring>
extern "C" int hipGetDevice(int* d) { *d = 0; return STATUS; }
extern "C" int hipGetDeviceProperties(char* p, int) {
    std::strcpy(p, "gfx is a bad name"); std::strcpy(p + 640, "gfx90a"); return 0;
}
"""
CUDA = r"""
#include <cstdlib>
extern "C" int cudaGetDevice(int* d) { *d = 0; return STATUS; }
extern "C" int cudaDeviceGetAttribute(int* v, int a, int) {
    const char* capability = std::getenv("TEST_CAPABILITY");
    const int number = capability ? std::atoi(capability) : 90;
    *v = a == 75 ? number / 10 : number % 10;
    return 0;
}
"""


Build = Callable[[str, str, int, Sequence[str]], LazyLibrary]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> Build:
    """Return a function that makes a library for a toolchain, a device and its status, and the
    archs that were built. Tests share the libraries."""

    @functools.cache
    def once(toolchain: str, device: str, status: int, archs: tuple[str, ...]) -> LazyLibrary:
        where = tmp_path_factory.mktemp("arch")
        (where / "device.cpp").write_text(f"#define STATUS {status}\n{device}")
        run([CXX, "-shared", "-fPIC", where / "device.cpp", "-o", where / "libdevice.so"])
        flag = f"-DARCH=0x{abi.PH_ARCH.replace('gfx', '')}"
        lib = build_lazy_library(
            where, objects_dir, BLOBS, MAIN, header=HEADER, symbols=SYMBOLS, toolchain=toolchain,
            arch_flags=(f"-DFOR_{abi.PH_ARCH}", "-DARCH=7" if not archs else flag.replace(abi.PH_ARCH, "1")),
            archs=archs, link_flags=["-Wl,--no-as-needed", "-L.", "-ldevice", "-Wl,-rpath,$ORIGIN"],
        )  # fmt: skip
        lib.program(PROGRAM, libs=[f"-Wl,-rpath-link,{where}"])
        return lib

    return lambda toolchain, device, status, archs: as_new(once(toolchain, device, status, tuple(archs)))


def arch_directories(lib: LazyLibrary) -> list[str]:
    return sorted(p.name.partition("-")[0] for p in lib.cache.glob("v1/demo/*"))


@pytest.mark.parametrize(
    ("toolchain", "device", "built", "expected"),
    [
        ("rocm", HIP_R0600, ["gfx942", "gfx950"], "gfx942"),
        ("rocm", HIP_OLD, ["gfx942"], "gfx90a"),
        ("cuda", CUDA, ["80", "90"], "90"),
    ],
)
def test_present_device_decides(build: Build, toolchain: str, device: str, built: list[str], expected: str) -> None:
    lib = build(toolchain, device, 0, built)
    done = lib.call(lib.directory / "main")
    assert done.stdout == "1 1\n", done
    assert arch_directories(lib) == [expected]
    commands = [line for line in lib.calls.read_text().splitlines() if " -c " in line]
    assert all(f"-DFOR_{expected} " in c and c.count("-DFOR_") == 1 for c in commands)
    assert f"compiling arch for {expected} ..." in done.stderr


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        # The devices are as built, newer or older. Code for 8.0 runs on 8.6, and code for a family
        # (100f) on the family's later members, to which 10.1 does not belong.
        (
            ["80", "90a", "100f"],
            {"80": "80", "86": "80", "90": "90a", "100": "100f", "103": "100f", "101": "101", "121": "121"},
        ),
        # Code for one architecture is preferred to that for a family. If only such code was built
        # (100a), a device of its kind (10.3) gets code for itself alone, too.
        (["100a", "120f", "120a"], {"100": "100a", "103": "103a", "120": "120a", "121": "120f", "90": "90"}),
        # The driver makes what is lacking of the newest PTX that the device takes.
        (
            ["80", "75-virtual", "80-virtual", "100-virtual"],
            {"86": "80", "90": "90_ptx80", "100": "100", "121": "121_ptx100", "75": "75", "70": "70"},
        ),
        (["90a", "90a-virtual"], {"90": "90a", "100": "100"}),
    ],
)
def test_a_device_keeps_what_the_build_chose_of_its_kind(
    build: Build, tmp_path: Path, built: list[str], expected: dict[str, str]
) -> None:
    lib = build("cuda", CUDA, 0, built)
    for capability, arch in expected.items():
        lib.call(
            lib.directory / "main", env={"TEST_CAPABILITY": capability, "LAZYCK_CACHE_DIR": str(tmp_path / capability)}
        )
        made = {p.name.partition("-")[0] for p in (tmp_path / capability).glob("v1/demo/*")}
        assert made == {arch}, capability


def test_an_arch_that_the_compiler_does_not_know_is_said_so(build: Build) -> None:
    lib = build("cuda", CUDA, 0, ["80"])
    source = lib.directory / "lazyck/src/arch.cpp"
    source.write_text("#error Unsupported gpu architecture 'compute_130'\n")
    done = lib.call(lib.directory / "main", env={"TEST_CAPABILITY": "130"})
    assert done.returncode == 3
    assert "does not know the arch 130" in done.stdout and "LAZYCK_ARCHS" in done.stdout


def test_without_answer_the_builds_archs_make_one_entry(build: Build) -> None:
    lib = build("rocm", HIP_R0600, 100, ["gfx950", "gfx942"])
    assert lib.call(lib.directory / "main").stdout == "1 1\n"
    assert arch_directories(lib) == ["gfx942+gfx950"]
    assert "-DFOR_gfx942" in lib.calls.read_text()
    assert "-DFOR_gfx950" in lib.calls.read_text()


def test_environment_overrides_the_device(build: Build, rt_tool: Path) -> None:
    lib = build("rocm", HIP_R0600, 0, ["gfx942"])
    assert lib.call(lib.directory / "main", env={"LAZYCK_ARCHS": "gfx1030;gfx90a:xnack-, gfx1030"}).stdout == "1 1\n"
    assert arch_directories(lib) == ["gfx1030+gfx90a"]
    # The tool agrees when it is given these archs, and asks no device.
    done = lib.call(rt_tool, "status", "--from", lib.library, "--arch", "gfx90a", "--arch", "gfx1030")
    assert done.stdout.count('"cached": true') == 2, done
    assert lib.call(rt_tool, "status", "--from", lib.library).stdout.count('"arch": "gfx942"') == 2


def test_nothing_says_an_arch(build: Build) -> None:
    lib = build("rocm", HIP_R0600, 100, [])
    done = lib.call(lib.directory / "main")
    assert done.returncode == 3
    assert "LAZYCK_ARCHS" in done.stdout


CAPTURES = r"""
#include <cstdlib>
static long captured() { const char* which = std::getenv("TEST_CAPTURED"); return which ? std::atol(which) : -1; }
extern "C" int FUNCTION(void* stream, int* status) {
    *status = reinterpret_cast<long>(stream) == captured();
    return captured() == 906 && stream == nullptr ? 906 : 0;  // another stream than the default one
}
"""
# The classes have the memory layout of PyTorch's: a device of two bytes, then a number of eight.
TORCH = r"""
namespace c10 {
struct Device { signed char type, index; };
class Stream {
    Device device;
    long id;
 public:
    Stream(Device d, long number) : device(d), id(number) {}
    void* handle() const { return reinterpret_cast<void*>(device.type == 1 && device.index == 2 ? id : 0); }
};
namespace LOWER {
class UPPERStream {
    Stream own;
 public:
    explicit UPPERStream(Stream stream) : own(stream) {}
    void* stream() const;
};
UPPERStream getCurrentUPPERStream(signed char) { return UPPERStream(Stream({1, 2}, ID)); }
void* UPPERStream::stream() const { return own.handle(); }
}}
"""


@pytest.mark.parametrize(
    ("toolchain", "device", "function", "names"),
    [
        ("cuda", CUDA, "cuStreamIsCapturing", ("cuda", "CUDA")),
        ("rocm", HIP_R0600, "hipStreamIsCapturing", ("hip", "HIP")),
        ("rocm", HIP_R0600, "hipStreamIsCapturing", ("cuda", "CUDA")),  # PyTorch 2.11 and later
    ],
)
@pytest.mark.parametrize("captured", ["0", "77", "906"])
def test_first_call_during_a_capture_is_an_error_that_names_blob_and_prebuild(
    build: Build, toolchain: str, device: str, function: str, names: tuple[str, str], captured: str
) -> None:
    torch = TORCH.replace("LOWER", names[0]).replace("UPPER", names[1]).replace("ID", "77")
    lib = build(toolchain, device + CAPTURES.replace("FUNCTION", function) + torch, 0, ["90"])
    done = lib.call(lib.directory / "main", env={"TEST_CAPTURED": captured})
    assert done.returncode == 3
    runtime = {"cuda": "CUDA", "rocm": "HIP"}[toolchain]
    assert f"blob 'other' is called for the first time while a {runtime} stream is being captured" in done.stdout
    assert f"lazyck prebuild build --manifest {lib.library} other" in done.stdout
    assert not lib.entries()
    assert lib.call(lib.directory / "main").returncode == 0
    assert lib.call(lib.directory / "main", env={"TEST_CAPTURED": "5"}).returncode == 0, (
        "a stream of which nobody knows"
    )


CAPTURING = r"""
#include "platform/environment.h"
#include "platform/glibc.h"
#include "platform/gpu.h"
#include <cstdio>
bool lazyck::rt::is_privileged() { return false; }
bool lazyck::rt::may_ask_loader() { return true; }
int main() { std::puts(lazyck::rt::capturing_runtime("rocm").c_str()); }
"""


STREAM = 0x7123456789AB  # both halves matter


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that compiles PyTorch's or the runtime's half of this with a compiler at a
    level."""

    @functools.cache
    def compile_half(name: str, compiler: str, level: str) -> Path:
        where = tmp_path_factory.mktemp(name)
        if name == "torch":
            torch = TORCH.replace("LOWER", "cuda").replace("UPPER", "CUDA").replace("ID", str(STREAM))
            (where / "torch.cpp").write_text(CAPTURES.replace("FUNCTION", "hipStreamIsCapturing") + torch)
            run([compiler, level, "-shared", "-fPIC", where / "torch.cpp", "-o", where / "libtorch.so"])
            return where / "libtorch.so"
        (where / "main.cpp").write_text(CAPTURING + f'#include "{SOURCES / "platform/gpu.cpp"}"\n')
        (where / "lazyck_abi.h").write_text(render_header())
        include: list[str | Path] = ["-iquote", SOURCES, "-iquote", SOURCES / "platform", "-iquote", where]
        run([compiler, *CXX_FLAGS, level, *include, "-c", where / "main.cpp", "-o", where / "main.o"])
        return where / "main.o"

    return compile_half


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("torch_by", [CXX, CLANG])
@pytest.mark.parametrize("runtime_by", [CXX, CLANG])
def test_pytorch_s_stream_comes_back_whole(
    half: Callable[..., Path], tmp_path: Path, runtime_by: str | None, torch_by: str | None, level: str
) -> None:
    if runtime_by is None or torch_by is None:
        pytest.skip("needs clang++")
    torch, main, program = half("torch", torch_by, level), half("main", runtime_by, level), tmp_path / "main"
    run([runtime_by, main, "-o", program, "-Wl,--no-as-needed", torch, f"-Wl,-rpath,{torch.parent}", "-ldl"])
    for captured, expected in ((STREAM, "HIP\n"), (STREAM & 0xFFFFFFFF, "\n"), (5, "\n")):
        assert run([program], env={**os.environ, "TEST_CAPTURED": str(captured)}).stdout == expected


# There are two devices, and each thread chooses one. Until it does, device 0 is current.
TWO_HIP_UNCOUNTED = r"""
#include <cstring>
static thread_local int current = 0;
extern "C" void choose(int d) { current = d; }
extern "C" int hipGetDevice(int* d) { *d = current; return STATUS; }
extern "C" int hipGetDevicePropertiesR0600(char* p, int d) { std::strcpy(p + 1160, d ? "gfx942" : "gfx90a"); return 0; }
"""
TWO_HIP = TWO_HIP_UNCOUNTED + 'extern "C" int hipGetDeviceCount(int* n) { *n = 2; return 0; }\n'
TWO_CUDA = r"""
extern "C" int cudaGetDeviceCount(int* n) { *n = 2; return 0; }
static thread_local int current = 0;
extern "C" void choose(int d) { current = d; }
extern "C" int cudaGetDevice(int* d) { *d = current; return STATUS; }
extern "C" int cudaDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? (d ? 9 : 8) : 0; return 0; }
"""
TWO_BY_DRIVER = r"""
extern "C" int cuDeviceGetCount(int* n) { *n = 2; return 0; }
static thread_local int current = -1;
extern "C" void choose(int d) { current = d; }
extern "C" int cuInit(unsigned) { return STATUS; }
extern "C" int cuCtxGetDevice(int* d) { *d = current; return current < 0 ? 201 : 0; }
extern "C" int cuDeviceGet(int* d, int ordinal) { *d = ordinal; return 0; }
extern "C" int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? (d ? 9 : 8) : 0; return 0; }
"""
PREFETCHING = r"""
#include "demo.h"
#include "lazyck.h"
#include <unistd.h>
#include <string>
extern "C" void choose(int);
int main(int, char** argv) {
    const std::string way = argv[1];
    choose(1);
    if (way == "prefetch") lazyck_prefetch("*");
    if (way == "job") {
        const char* blobs[] = {"arch", "other"};
        lazyck_job_wait(lazyck_job_start(blobs, 2, 2), -1, nullptr);
    }
    if (way == "call") other();
    lazyck_stats stats = {};
    stats.size = sizeof stats;
    for (int i = 0; i < 600 && stats.loaded < 2; ++i) {
        usleep(50000);
        lazyck_get_stats(&stats);
    }
    return stats.loaded == 2 ? 0 : 3;
}
"""


@pytest.mark.parametrize("way", ["prefetch", "job", "profile"])
@pytest.mark.parametrize(
    ("toolchain", "device", "expected"),
    [("rocm", TWO_HIP, "gfx942"), ("cuda", TWO_CUDA, "90"), ("cuda", TWO_BY_DRIVER, "90")],
    ids=["hip", "cuda", "driver"],
)
def test_what_is_made_ready_in_the_background_is_for_the_device_of_whoever_asked(
    build: Build, tmp_path: Path, toolchain: str, device: str, expected: str, way: str
) -> None:
    lib = build(toolchain, device, 0, ["90"])
    main = lib.program(PREFETCHING, "prefetching", libs=["-L" + str(lib.directory), "-ldevice"])
    profile = tmp_path / "profile"
    profile.write_text("# lazyck profile 1: \n")
    env = {"LAZYCK_JOBS": "4", "LAZYCK_MEM_PER_JOB": "1M"}
    if way == "profile":
        recorded = lib.call(
            lib.directory / "main", env={"LAZYCK_RECORD": str(profile), "LAZYCK_CACHE_DIR": str(tmp_path / "r")}
        )
        assert recorded.returncode == 0, recorded
        env["LAZYCK_PREFETCH"] = str(profile)
        way = "call"
    done = lib.call(main, way, env=env)
    assert done.returncode == 0, done
    assert arch_directories(lib) == [expected]


SINGLE = r"""
#include "demo.h"
#include <cstdlib>
extern "C" void choose(int);
int main(int, char** argv) {
    choose(std::atoi(argv[1]));
    return use() == 1 ? 0 : 3;
}
"""


HIP_CASES = [
    (["gfx90a", "gfx942"], "0", "gfx90a+gfx942"),
    (["gfx90a:xnack-", "gfx942"], "1", "gfx90a+gfx942"),
    (["gfx942", "gfx950"], "1", "gfx942"),  # the build ahead of time has no code for device 0 either
]
# The devices have the capabilities 8.0 and 9.0.
CUDA_CASES = [
    (["80", "90a"], "0", "80+90a"),
    (["80", "90a"], "1", "80+90a"),
    (["90a"], "1", "90a"),
    (["90"], "0", "80+90"),  # the device of the call counts in any case
    (["86", "100"], "1", "90"),
]


@pytest.mark.parametrize(
    ("toolchain", "device", "built", "current", "expected"),
    [
        *(("rocm", TWO_HIP, *case) for case in HIP_CASES),
        ("rocm", TWO_HIP_UNCOUNTED, ["gfx90a", "gfx942"], "0", "gfx90a"),
        ("rocm", TWO_HIP_UNCOUNTED, ["gfx90a", "gfx942"], "1", "gfx90a+gfx942"),
        *(("cuda", TWO_CUDA, *case) for case in CUDA_CASES),
        *(("cuda", TWO_BY_DRIVER, *case) for case in CUDA_CASES),
    ],
)
def test_a_blob_has_code_for_all_devices_of_the_process_that_the_build_has_code_for(
    build: Build, toolchain: str, device: str, built: list[str], current: str, expected: str
) -> None:
    lib = build(toolchain, device, 0, built)
    done = lib.call(lib.program(SINGLE, "single", libs=["-L" + str(lib.directory), "-ldevice"]), current)
    assert done.returncode == 0, done
    assert arch_directories(lib) == [expected]


def test_the_command_that_a_forbidden_compile_prints_makes_the_entry_for_all_devices(build: Build) -> None:
    lib = build("cuda", TWO_CUDA, 0, ["80", "90"])
    env = {"LAZYCK_JIT": "off", "PYTHONPATH": str(REPOSITORY)}
    refused = lib.call(lib.directory / "main", env=env)
    assert refused.returncode == 3
    for _ in range(2):  # one for each blob
        line = lib.call(lib.directory / "main", env=env).stdout.partition("to build it: ")[2]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        pasted = lib.call("sh", "-c", line, env={**env, "PATH": path, "LAZYCK_CACHE_DIR": ""})
        assert pasted.returncode == 0, line + pasted.stderr
    assert lib.call(lib.directory / "main", env=env).stdout == "1 1\n"
    assert arch_directories(lib) == ["80+90"]
