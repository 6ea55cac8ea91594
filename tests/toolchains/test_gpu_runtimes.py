"""Test that a GPU runtime is one row, with one that lazyck does not have."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from support import REPOSITORY
from support.lazylib import CXX, SOURCES, build_lazy_library, run, runtime_objects

from lazyck import abi
from lazyck.errors import BuildError
from lazyck.formats.c_header import render_header
from lazyck.postbuild.link.stubs import render_stubs
from lazyck.toolchains import ALL, gpu_runtimes
from lazyck.toolchains.gpu_runtimes import CUDA_RUNTIME, GPU_RUNTIMES, HIP_RUNTIME, GpuRuntime, Handle, Process

MUSA = GpuRuntime(
    toolchain="musa",
    name="MUSA",
    prefix="musa",
    own_data="__musa_(gpubin_handle|fatbin|module)",
    own_code="__musa",
    more_handles={"musaGraphAddTask": Handle(1, abi.HANDLE_FIELD, 8)},
    more_registering={"__musaRegisterFatBinaryEnd": abi.REGISTER_END},
    process=Process(
        libraries=("libmusart.so",), device="musaGetDevice", count="musaGetDeviceCount",
        attribute="musaDeviceGetAttribute", major=5, minor=6, is_capturing="musaStreamIsCapturing",
    ),
)  # fmt: skip
HOST_UNIT = r"""
extern "C" {
void* __musaRegisterFatBinary(const void*);
void __musaRegisterFatBinaryEnd(void*);
void __musaUnregisterFatBinary(void*);
void __musaRegisterFunction(void*, const void*, const char*, const char*, int, void*, void*, void*, void*, int*);
const char* musaLaunchKernel(const void*);
const char* musaGraphAddTask(int, const void* const*);
}
static const char mark[] = "MARKunit\0";
static const struct { unsigned magic, version; const void* data; void* unused; } image = {0x4155534d, 1, mark, nullptr};
static void first() {}
static void second() {}
static struct Registration {
    void* module = __musaRegisterFatBinary(&image);
    Registration() {
        const auto add = [&](void (*handle)(), const char* name) {
            const void* at = reinterpret_cast<const void*>(handle);
            __musaRegisterFunction(module, at, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
        };
        add(first, "first");
        add(second, "second");
        __musaRegisterFatBinaryEnd(module);
    }
    ~Registration() { __musaUnregisterFatBinary(module); }
} registration;
const char* launch(int which) {
    const void* const task[] = {nullptr, reinterpret_cast<const void*>(second)};
    return which == 0 ? musaLaunchKernel(reinterpret_cast<const void*>(first)) : musaGraphAddTask(0, task);
}
""".replace("MARK", abi.HOST_UNIT_MARK)
IMAGE = r"""
#define TEXT(x) #x
#define CODE(arch) asm(START ".asciz \"NAME for " TEXT(arch) "\"\n")
#define START ".section .rodata\n.globl NAME\n.type NAME,%function\nNAME: "
CODE(ARCH);
"""
PROGRAM = r"""
#include "demo.h"
#include <cstdio>
#include <cstdlib>
int main(int, char** argv) { std::puts(launch(std::atoi(argv[1]))); return 0; }
"""


ASKING = r"""
#include "bundle/arch.cpp"
#include <cstdio>
extern "C" bool is_captured;
int main() {
    using namespace lazyck::rt;
    const GpuRuntime& gpu = *gpu_runtime_of("TOOLCHAIN");
    is_captured = true;
    std::printf("%s ", capturing_runtime(gpu.toolchain).c_str());
    std::printf("%s %s\n", join(ask(gpu, {"10"}), ",").c_str(), join(ask(gpu, {"21"}), ",").c_str());
    return 0;
}
"""
ASKED = ("platform/gpu.cpp", "platform/glibc.cpp", "platform/threads.cpp", "base/text.cpp")
# Where functions of GPU runtimes may be named besides, and why.
NAMED = {
    "lazyck/toolchains/": "toolchains know the libraries that their compilers link, and try compilers out",
    "lazyck/units/src/": "takes apart what nvcc and clang write for one runtime, and writes such text",
    "lazyck/postbuild/reasons.py": "tells users what to write instead",
}


@pytest.fixture
def musa(monkeypatch: pytest.MonkeyPatch) -> GpuRuntime:
    monkeypatch.setattr(gpu_runtimes, "GPU_RUNTIMES", (*GPU_RUNTIMES, MUSA))
    return MUSA


def make_stand_in(where: Path) -> Path:
    source = REPOSITORY / "tests/support/musa_standin.cpp"
    run([CXX, "-std=c++17", "-shared", "-fPIC", source, "-o", where / "libmusart.so"])
    return where / "libmusart.so"


def test_each_gpu_toolchain_has_one_row_and_no_other_toolchain_has_one() -> None:
    rows = [row.toolchain for row in GPU_RUNTIMES]
    assert sorted(rows) == sorted(t.name for t in ALL if t.arch_flags)
    for toolchain in ("host", "musa", ""):
        with pytest.raises(KeyError):
            gpu_runtimes.of_toolchain(toolchain)


def test_the_functions_of_each_gpu_runtime_are_told_apart() -> None:
    assert {"cudaLaunchKernel", "__cudaRegisterFatBinary", "cudaFuncGetAttributes"} <= CUDA_RUNTIME.functions
    assert {"hipLaunchKernel", "__hipRegisterFatBinary", "hipFuncGetAttributes"} <= HIP_RUNTIME.functions
    for row in GPU_RUNTIMES:
        assert all(name.lstrip("_").startswith(row.prefix) for name in row.functions)


def test_nothing_else_names_the_functions_or_libraries_of_a_gpu_runtime() -> None:
    given = {name for row in GPU_RUNTIMES for name in (row.static_archive, *row.functions)}
    for value in (getattr(row.process, each.name) for row in GPU_RUNTIMES for each in fields(Process)):
        given |= {value} if isinstance(value, str) else set(value) if isinstance(value, tuple) else set()
    words = "|".join(re.escape(name) for name in given - {"", "gfx"})
    pattern = re.compile(rf"\b(?:__)?(?:{'|'.join(row.prefix for row in GPU_RUNTIMES)})[A-Z]\w+|(?<!\w)(?:{words})\b")
    sources = [p for p in (REPOSITORY / "lazyck").rglob("*") if p.suffix in (".py", ".c", ".cpp", ".h", ".hpp", ".S")]
    found = {p.relative_to(REPOSITORY).as_posix(): pattern.findall(p.read_text()) for p in sources}
    assert len(found[Path(gpu_runtimes.__file__).relative_to(REPOSITORY).as_posix()]) > 50
    naming = {file for file, names in found.items() if names}
    assert {file for file in naming if not file.startswith(tuple(NAMED))} == set()
    assert {place for place in NAMED if any(file.startswith(place) for file in naming)} == NAMED.keys()


def test_a_row_gives_wrappers_and_a_part_of_the_header(musa: GpuRuntime) -> None:
    names = sorted(musa.functions)
    text = render_stubs([], "m", "x86_64", wrapped=names)
    wrappers = set(re.findall(r'^"?__wrap_(\w+)"?:$', text, re.M))
    assert wrappers == musa.functions >= {"musaLaunchKernel", "musaMemcpyToSymbol", "__musaRegisterVar"}
    assert " .quad __real_musaGraphAddTask\n .short 1,1\n .long 8\n" in text
    assert '{"musa", "MUSA", {"libmusart.so"}, "musaGetDevice"' in render_header()


def test_kernels_for_two_runtimes_in_one_library_are_an_error() -> None:
    with pytest.raises(BuildError, match="two GPU runtimes"):
        render_stubs([], "m", "x86_64", wrapped=["__cudaRegisterFatBinary", "__hipRegisterFatBinary"])


def test_the_device_answers_by_the_functions_of_the_row(musa: GpuRuntime, tmp_path: Path) -> None:
    (tmp_path / "lazyck_abi.h").write_text(render_header())
    (tmp_path / "main.cpp").write_text(ASKING.replace("TOOLCHAIN", musa.toolchain))
    sources = [tmp_path / "main.cpp", *(SOURCES / name for name in ASKED), make_stand_in(tmp_path)]
    words: list[str | Path] = ["-std=c++17", "-O0", "-pthread", "-iquote", SOURCES, "-iquote", tmp_path]
    unused = ["-ffunction-sections", "-Wl,--gc-sections"]  # so that the rest of the runtime is not needed
    run([CXX, *words, *unused, *sources, "-o", tmp_path / "main", "-ldl", f"-Wl,-rpath,{tmp_path}"])
    assert run([tmp_path / "main"]).stdout == "MUSA 31 21,31\n"


def test_a_kernel_of_a_runtime_with_a_row_is_compiled_and_launched_at_its_first_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, objects_dir: Path
) -> None:
    runtime_objects(objects_dir, CXX, ())  # those of other tests: they have no row for this runtime
    monkeypatch.setattr(gpu_runtimes, "GPU_RUNTIMES", (*GPU_RUNTIMES, MUSA))
    make_stand_in(tmp_path)
    used = [name for name in sorted(MUSA.functions) if re.search(rf"\b{name}\b", HOST_UNIT)]
    lib = build_lazy_library(
        tmp_path, objects_dir, {}, HOST_UNIT, header="const char* launch(int which);\n", toolchain=MUSA.toolchain,
        arch_flags=(f"-DARCH={abi.PH_ARCH}",), archs=("10", "31"),
        kernels={name: IMAGE.replace("NAME", name) for name in ("first", "second")}, wrapped=used,
        link_flags=["-L.", "-lmusart", "-Wl,-rpath,$ORIGIN"],
    )  # fmt: skip
    program = lib.program(PROGRAM, libs=[f"-Wl,-rpath-link,{tmp_path}"])
    env = {abi.ENV_ARCHS: "31"}
    for which, name in enumerate(("first", "second")):
        done = lib.call(program, str(which), env=env)
        assert (done.returncode, done.stdout) == (0, f"{name} for 31\n"), done.stderr
        assert lib.compiles(f"of_{name}") == 1
    assert lib.call(program, "0", env=env).stdout == "first for 31\n"
    assert (lib.compiles("of_first"), lib.compiles("whole")) == (1, 0)
    assert "no GPU runtime is known for the toolchain 'musa'" in lib.call(program, "0").stderr
