"""Test whole builds with real HIP compilers, in the layouts in which ROCm comes, up to HIP's own
answer to a launch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.hip_builds import LIGHT, SYSTEM_PATH, assert_calls_reach_hip, build_hip, stand_in_runtime
from support.ops_library import inspect
from support.rocm_layouts import need_real_hip, pip_sdk, rocm5, rocm6, script

pytestmark = pytest.mark.hip


@pytest.fixture(autouse=True)
def real_hip() -> None:
    need_real_hip()


def test_debians_hipcc_on_path_compiles_a_blob_on_its_first_call(lazyck: Lazyck, tmp_path: Path) -> None:
    archs = ("gfx90a", "gfx1030")
    build = build_hip(lazyck, tmp_path, "./build.sh", {"HIP_PLATFORM": "amd"}, archs=";".join(archs), light=False)
    assert "2 blobs deferred, 2 lazy with 2 symbols, 0 eager" in build.done.stderr
    assert build.deferred_by() == {"hipcc"}
    assert_calls_reach_hip(build, archs)


def test_only_the_kernel_that_is_called_is_launched(lazyck: Lazyck, tmp_path: Path) -> None:
    build = build_hip(lazyck, tmp_path, "./build.sh", {"HIP_PLATFORM": "amd"}, archs="gfx90a;gfx1030")
    launches = tmp_path / "launches"
    env = {"FAKE_ROCM_LAUNCH_LOG": str(launches), "FAKE_ROCM_ARCH": "gfx1030"}
    done = build.call(2, LD_LIBRARY_PATH=str(stand_in_runtime()), **env)
    assert (done.returncode, done.stdout) == (0, "1 0\n"), done.stderr
    (line,) = launches.read_text().splitlines()
    assert "arch=gfx1030" in line and "_Z12scale_kernelIfLi2EEvPT_i" in line
    code = b"".join(entry.read_bytes() for entry in build.entries())
    assert b"amdgcn-amd-amdhsa--gfx1030" in code
    assert b"amdgcn-amd-amdhsa--gfx90a" not in code  # code for the present device only


def test_a_kernel_that_others_launch_is_lazy_and_one_whose_address_they_take_is_by_kernel(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    (tmp_path / "blob").mkdir()
    shutil.copy(REPOSITORY / "tests/projects/hip_ops/include/light_hip.hpp", tmp_path)
    head = '#include "light_hip.hpp"\ntemplate <int N> __global__ void K(float* x) { x[0] = N; }\n'
    for n in (1, 2):
        text = f"{head}template __global__ void K<{n}>(float*);\n__device__ int counter;\n"
        (tmp_path / f"blob/k{n}.hip").write_text(text)
    (tmp_path / "main.hip").write_text(
        head + "extern template __global__ void K<1>(float*);\nextern template __global__ void K<2>(float*);\n"
        'extern "C" int launch() { K<1><<<1, 1>>>(nullptr); return hipGetLastError(); }\n'
        'extern "C" const void* ask() { return (const void*)K<2>; }\n'
    )
    flags = f"--offload-arch=gfx90a -fPIC -I. {LIGHT}"
    compile_all = f'for f in main blob/k1 blob/k2; do hipcc {flags} -c "$f.hip" -o "$f.o"; done'
    (tmp_path / "build.sh").write_text(f"set -e\n{compile_all}\nhipcc -shared main.o blob/*.o -o libx.so\n")
    env = {"PATH": SYSTEM_PATH, "HIP_PLATFORM": "amd"}
    done = lazyck("build", "full", "--gpu-archs", "gfx90a", "--", "sh", "build.sh", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 blobs deferred, 1 lazy with 1 symbol, 0 eager" in done.stderr
    assert "k2.hip has a kernel that another file launches, or takes the address of: K<2>, in main.hip" in done.stderr
    launches = tmp_path / "launches"
    code = "import ctypes; x = ctypes.CDLL('./libx.so'); print(x.launch())"
    env |= {"FAKE_ROCM_LAUNCH_LOG": str(launches), "FAKE_ROCM_ARCH": "gfx90a"}
    env |= {"LD_LIBRARY_PATH": str(stand_in_runtime())}
    called = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **env}, capture_output=True)
    assert (called.returncode, called.stdout) == (0, b"0\n"), called.stderr
    assert "_Z1KILi1EEvPf" in launches.read_text()


def test_the_platform_that_only_the_compiles_were_told_is_the_blobs_own(lazyck: Lazyck, tmp_path: Path) -> None:
    command = 'HIPCC="env HIP_PLATFORM=amd hipcc" LINKER=c++ LDFLAGS=-lamdhip64 ./build.sh'
    nvcc = script(tmp_path / "cuda/bin/nvcc", "#!/bin/sh\necho 'nvcc: NVIDIA (R) Cuda compiler driver'\n")
    build = build_hip(lazyck, tmp_path, command, {"CUDA_PATH": str(nvcc.parent.parent)})
    recipe, *_ = inspect(lazyck, build.library)["recipes"]  # one recipe for the whole blob, others for its parts
    assert recipe["toolchain_id"].startswith("clang15")  # not nvcc, which hipcc uses if nothing names amd
    assert recipe["env"]["HIP_PLATFORM"] == "amd"
    assert_calls_reach_hip(build)


def test_variables_that_only_the_build_had_decide_what_a_first_call_compiles(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob/mode.cpp").write_text(
        "#ifdef __HIP__\n#define HIP 1\n#else\n#define HIP 0\n#endif\n"
        "#ifndef __HIP_HCC_COMPAT_MODE__\n#define __HIP_HCC_COMPAT_MODE__ 0\n#endif\n"
        'extern "C" int mode() { return 10 * HIP + __HIP_HCC_COMPAT_MODE__; }\n'
    )
    (tmp_path / "main.cpp").write_text('extern "C" int mode();\nextern "C" int call() { return mode(); }\n')
    given = {"HIP_COMPILE_CXX_AS_HIP": "0", "HIP_CLANG_HCC_COMPAT_MODE": "1", "ROCM_PATH": "/usr"}
    compile_all = "for f in main blob/mode; do hipcc --offload-arch=gfx90a -fPIC -c $f.cpp -o $f.o; done"
    (tmp_path / "build.sh").write_text(f"set -e\n{compile_all}\nc++ -shared main.o blob/mode.o -o libx.so\n")
    env = {"PATH": SYSTEM_PATH, "HIP_PLATFORM": "amd", **given}
    done = lazyck("build", "full", "--gpu-archs", "gfx90a", "--", "sh", "build.sh", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    recipe, *_ = inspect(lazyck, tmp_path / "libx.so")["recipes"]
    assert {name: recipe["env"].get(name) for name in given} == given
    code = "import ctypes; print(ctypes.CDLL('./libx.so').call())"
    jobs = {**os.environ, "HIP_CLANG_HCC_COMPAT_MODE": "0", "HIP_CLANG_PATH": "/nowhere", "ROCM_PATH": "/nowhere"}
    called = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=jobs, capture_output=True, text=True)
    assert (called.returncode, called.stdout) == (0, "1\n"), called.stderr


def test_rocm_5_by_hip_path_alone(lazyck: Lazyck, tmp_path: Path) -> None:
    home = rocm5(tmp_path / "opt/rocm-5.2.3")
    env = {"HIP_PATH": f"{home}/hip", "HIP_PLATFORM": "amd"}
    build = build_hip(lazyck, tmp_path, 'HIPCC="$HIP_PATH/bin/hipcc" ./build.sh', env)
    assert build.deferred_by() == {"hipcc"}
    assert_calls_reach_hip(build)


def test_rocm_6_by_rocm_path_with_the_hipcc_in_it(lazyck: Lazyck, tmp_path: Path) -> None:
    home = rocm6(tmp_path / "opt/rocm-6.2.0")
    command, env = 'HIPCC="$ROCM_PATH/bin/hipcc" ./build.sh', {"ROCM_PATH": str(home)}
    build = build_hip(lazyck, tmp_path, command, env, light=False)
    assert build.deferred_by() == {"hipcc"}  # hipcc started the real clang, not the shim in its shim home
    assert [line.tool for line in build.log if line.action == "pass" and line.tool != "hipcc"] == []
    assert_calls_reach_hip(build)


@pytest.mark.parametrize("program", [pytest.param("llvm/bin/clang++", marks=pytest.mark.slow), "bin/amdclang++"])
def test_clang_of_a_rocm_compiles_hip_by_itself(lazyck: Lazyck, tmp_path: Path, program: str) -> None:
    home = rocm6(tmp_path / "opt/rocm-6.2.0")
    command = f'HIPCC="$ROCM_PATH/{program}" LANGUAGE="-x hip" LDFLAGS=--hip-link ./build.sh'
    build = build_hip(lazyck, tmp_path, command, {"ROCM_PATH": str(home)})
    assert build.deferred_by() == {Path(program).name}
    assert_calls_reach_hip(build)


def test_a_build_that_falls_back_on_a_place_of_its_own_is_led_to_the_shims(lazyck: Lazyck, tmp_path: Path) -> None:
    home = rocm6(tmp_path / "opt/rocm-6.2.0")
    command = f'HIPCC="${{ROCM_PATH:-{home}}}/bin/hipcc" ./build.sh'
    build = build_hip(lazyck, tmp_path, command, {"PATH": f"{home}/bin:{SYSTEM_PATH}"})
    assert build.deferred_by() == {"hipcc"}
    assert_calls_reach_hip(build)


@pytest.mark.parametrize("compiler", ["hipcc", "amdclang++ -x hip"])
def test_compilers_of_the_pip_packages_are_console_scripts(lazyck: Lazyck, tmp_path: Path, compiler: str) -> None:
    root = pip_sdk(tmp_path / "venv")
    command = f'HIPCC="{compiler.split()[0]}" LANGUAGE="{compiler.partition(" ")[2]}" LDFLAGS="$F" ./build.sh'
    env = {"PATH": f"{tmp_path}/venv/bin:{SYSTEM_PATH}", "F": "--hip-link" if "-x" in compiler else ""}
    build = build_hip(lazyck, tmp_path, command, env, "--verbose")
    assert f"({root})" in build.done.stderr  # the home is the SDK's tree, not the Python environment
    assert build.deferred_by() == {compiler.split()[0]}
    assert_calls_reach_hip(build)


def test_cmakes_hip_language_finds_the_shim_of_rocms_clang(lazyck: Lazyck, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    home = rocm6(tmp_path / "opt/rocm-6.2.0")
    command = "cmake -S . -B build -G 'Unix Makefiles' -DCMAKE_HIP_ARCHITECTURES=$ARCHS && cmake --build build"
    build = build_hip(lazyck, tmp_path, command, {"PATH": f"{home}/bin:{SYSTEM_PATH}", "HIPFLAGS": LIGHT})
    assert build.deferred_by() == {"clang++"}
    assert_calls_reach_hip(build)


def test_debians_clang_compiles_hip_under_its_versioned_name(lazyck: Lazyck, tmp_path: Path) -> None:
    flags = "--rocm-path=/usr --rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode"
    command = f'HIPCC=clang++-19 LANGUAGE="-x hip {flags}" LDFLAGS="--hip-link --rocm-path=/usr" ./build.sh'
    build = build_hip(lazyck, tmp_path, command, {})
    assert build.deferred_by() == {"clang++-19"}
    assert_calls_reach_hip(build)


def test_a_hipcc_that_is_nvcc_is_passed_on_with_the_reason(lazyck: Lazyck, tmp_path: Path) -> None:
    home = rocm6(tmp_path / "opt/rocm-6.2.0")
    env = {"PATH": f"{home}/bin:{SYSTEM_PATH}", "HIP_PLATFORM": "nvidia"}
    build = build_hip(lazyck, tmp_path, "./build.sh", env, expect_success=False)
    assert build.done.returncode == 1 and "hipcc: HIP_PLATFORM=nvidia" in build.done.stdout  # the compiler's own words
    assert [line.reason for line in build.log] == ["hip-on-nvidia"]
    assert "HIP_PLATFORM=amd" in build.done.stderr
