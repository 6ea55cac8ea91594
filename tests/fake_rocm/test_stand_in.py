"""Tests the runtime under libraries of the real compiler: it records what they launch, and answers
as the real headers expect."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.launches import Run, read_launches

BITCODE = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
REAL_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")
REAL_HEADER = Path("/usr/include/hip/hip_runtime.h")

needs_real_compiler = pytest.mark.skipif(
    shutil.which("clang++-19") is None
    or not (BITCODE / "oclc_isa_version_90a.bc").exists()
    or not REAL_HEADER.exists(),
    reason="needs clang++-19, the ROCm device libraries and the HIP headers (Debian packages)",
)

PROGRAM = """
#include <hip/hip_runtime.h>
#include <cstdio>
template <class T> __global__ void scale(T* data, T factor) { data[threadIdx.x] *= factor; }
__constant__ float table[4];
int main() {
    hipDeviceProp_t prop;
    if (hipGetDeviceProperties(&prop, 0) != hipSuccess) return 2;
    printf("%s|%s|%d|%d|%d\\n", prop.name, prop.gcnArchName, prop.multiProcessorCount, prop.warpSize,
           prop.pageableMemoryAccess);
    float* data = nullptr;
    const float values[4] = {1, 2, 3, 4};
    float back[4] = {};
    if (hipMalloc((void**)&data, 1024) != hipSuccess) return 3;
    if (hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof(values)) != hipSuccess) return 4;
    if (hipMemcpy(data, values, sizeof(values), hipMemcpyHostToDevice) != hipSuccess) return 5;
    if (hipMemcpy(back, data, sizeof(values), hipMemcpyDeviceToHost) != hipSuccess || back[3] != 4) return 6;
    hipPointerAttribute_t attributes;
    if (hipPointerGetAttributes(&attributes, data) != hipSuccess) return 7;
    if (attributes.memoryType != hipMemoryTypeDevice) return 8;
    scale<float><<<dim3(2, 3), dim3(64), 128>>>(data, 2.0f);
    hipLaunchKernelGGL(scale<double>, dim3(1), dim3(32, 4), 0, 0, (double*)data, 2.0);
    const hipError_t status = hipGetLastError();
    printf("%s\\n", hipGetErrorName(status));
    return status == hipSuccess ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("standin")
    (directory / "program.hip").write_text(PROGRAM)
    words = [
        *("clang++-19", "-x", "hip", "--rocm-path=/usr", f"--rocm-device-lib-path={BITCODE}"),
        *("-D__HIP_PLATFORM_AMD__=1", "--offload-arch=gfx90a", "-O1", "-Wno-deprecated-declarations"),
        *("program.hip", "-o", "program", "-lamdhip64"),
    ]
    subprocess.run(words, cwd=directory, check=True, timeout=120)
    return directory / "program"


@needs_real_compiler
@pytest.mark.parametrize("how", ["LD_PRELOAD", "LD_LIBRARY_PATH"])
def test_launches_of_real_kernels_are_recorded(
    how: str, program: Path, run: Run, library_dir: Path, tmp_path: Path
) -> None:
    log = tmp_path / "launches"
    where = library_dir / "libamdhip64.so.5" if how == "LD_PRELOAD" else library_dir
    done = run([program], env={how: str(where), "FAKE_ROCM_ARCH": "gfx90a", "FAKE_ROCM_LAUNCH_LOG": str(log)})
    assert done.stdout == "fake gfx90a|gfx90a|104|64|1\nhipSuccess\n"
    assert done.stderr == ""  # ld.so says nothing about versions either
    first, second = read_launches(log)
    assert (first.kernel, first.grid, first.block, first.shared) == ("_Z5scaleIfEvPT_S0_", "2,3,1", "64,1,1", 128)
    assert (second.kernel, second.grid, second.block, second.shared) == ("_Z5scaleIdEvPT_S0_", "1,1,1", "32,4,1", 0)
    assert {launch.role for launch in (first, second)} == {"standin"}


@needs_real_compiler
def test_real_kernel_without_code_for_the_device_is_refused(
    program: Path, run: Run, library_dir: Path, tmp_path: Path
) -> None:
    log = tmp_path / "launches"
    env = {"LD_LIBRARY_PATH": str(library_dir), "FAKE_ROCM_ARCH": "gfx942", "FAKE_ROCM_LAUNCH_LOG": str(log)}
    assert run([program], env=env, fails=True).stdout.endswith("hipErrorNoBinaryForGpu\n")
    assert read_launches(log) == []


@pytest.mark.skipif(
    not REAL_LIBRARY.resolve().name.startswith("libamdhip64.so.5.2."),
    reason="needs the real libamdhip64.so.5 of HIP 5.2, which the stand-in stands for (Debian 12's package)",
)
def test_every_function_of_the_real_library_is_there_with_its_version(run: Run, library_dir: Path) -> None:
    def exported(path: Path) -> set[str]:
        listing = run(["nm", "-D", "--with-symbol-versions", "--defined-only", path]).stdout
        names = {line.split()[-1] for line in listing.splitlines()}
        return {name for name in names if re.match(r"(_*hip|_Z\d+hip|__gnu_)", name)}

    assert exported(REAL_LIBRARY) - exported(library_dir / "libamdhip64.so.5") == set()


@pytest.mark.skipif(not REAL_HEADER.exists(), reason="needs the real HIP 5 headers (Debian package)")
def test_properties_of_version_5_land_where_the_real_header_reads_them(
    run: Run, library_dir: Path, tmp_path: Path
) -> None:
    fields = {
        "totalGlobalMem": 64 << 30, "sharedMemPerBlock": 65536, "maxThreadsPerBlock": 1024, "major": 9, "minor": 0,
        "multiProcessorCount": 104, "maxThreadsPerMultiProcessor": 2048, "concurrentKernels": 1, "pciBusID": 1,
        "maxSharedMemoryPerMultiProcessor": 65536, "gcnArch": 910, "cooperativeLaunch": 1, "memPitch": 2147483647,
        "textureAlignment": 256, "isLargeBar": 1, "managedMemory": 1, "pageableMemoryAccess": 1,
        "pageableMemoryAccessUsesHostPageTables": 0,
    }  # fmt: skip
    checks = "".join(f'if (p.{f} != {v}ULL) printf("{f} %lld\\n", (long long)p.{f});\n' for f, v in fields.items())
    (tmp_path / "check.cpp").write_text(
        "#include <hip/hip_runtime_api.h>\n#include <cstdio>\n"
        f"int main() {{ hipDeviceProp_t p; if (hipGetDeviceProperties(&p, 0) != hipSuccess) return 1;\n{checks}"
        "return puts(p.gcnArchName) < 0; }\n"
    )
    run(["c++", "-w", "-D__HIP_PLATFORM_AMD__=1", "check.cpp", "-o", "check", library_dir / "libamdhip64.so.5"])
    env = {"LD_LIBRARY_PATH": str(library_dir), "FAKE_ROCM_ARCH": "gfx90a"}
    assert run(["./check"], env=env).stdout == "gfx90a\n"
