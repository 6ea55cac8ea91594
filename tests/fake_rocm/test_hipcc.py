"""Tests that the fake hipcc is a compiler driver: it does what builds ask of hipcc, or refuses
clearly."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.launches import HOME, Run

ADD = """
#include <hip/hip_runtime.h>
#include "local.h"
__global__ void add(float* a) { a[0] += ONE; }
void launch(float* a) { hipLaunchKernelGGL(add, 1, 1, 0, 0, a); }
"""


@pytest.fixture(autouse=True)
def source(tmp_path: Path) -> Path:
    (tmp_path / "local.h").write_text("#define ONE 1\n")
    (tmp_path / "add.hip").write_text(ADD)
    return tmp_path / "add.hip"


def archs_in(path: Path) -> str:
    dump = subprocess.run(["readelf", "-p", ".fake_rocm.archs", path], capture_output=True, text=True, check=True)
    return "".join(line.split("]", 1)[1].strip() for line in dump.stdout.splitlines() if line.startswith("  ["))


def test_archs_asked_for_are_visible_in_object_and_library(hipcc: Run, tmp_path: Path) -> None:
    hipcc("--offload-arch=gfx942", "--offload-arch=gfx90a:xnack-,gfx942", "-fPIC", "-c", "add.hip")
    assert archs_in(tmp_path / "add.o") == "gfx942,gfx90a:xnack-"
    hipcc("-shared", "-Wl,--gc-sections", "add.o", "-o", "libadd.so")
    assert archs_in(tmp_path / "libadd.so") == "gfx942,gfx90a:xnack-"


def test_without_arch_the_device_decides(hipcc: Run, tmp_path: Path) -> None:
    hipcc("-c", "add.hip")
    assert archs_in(tmp_path / "add.o") == "gfx942"
    hipcc("-c", "add.hip", "--offload-arch=native", env={"FAKE_ROCM_ARCH": "gfx1100"})
    assert archs_in(tmp_path / "add.o") == "gfx1100"


def test_object_defines_no_strong_symbol_but_the_sources_functions(hipcc: Run, run: Run) -> None:
    hipcc("-c", "add.hip")
    symbols = [line.split()[-2:] for line in run(["nm", "--defined-only", "-g", "add.o"]).stdout.splitlines()]
    assert [name for kind, name in symbols if kind not in "WV"] == ["_Z3addPf", "_Z6launchPf"]
    assert not [name for kind, name in symbols if kind in "DBRu"]


@pytest.mark.parametrize("arch", ["gfx999", "sm_80", "gfx942:foo+"])
def test_unknown_arch_is_an_error(arch: str, hipcc: Run) -> None:
    done = hipcc("-c", "add.hip", f"--offload-arch={arch}", fails=True)
    assert done.returncode == 1
    assert f"invalid target ID '{arch}'" in done.stderr


def test_version_names_hip_and_the_host_compiler(hipcc: Run) -> None:
    lines = hipcc("--version").stdout.splitlines()
    assert lines[0] == "HIP version: 6.0.0-fake"
    assert lines[1].startswith("clang version") and "fake_rocm_home" in lines[1]
    assert f"InstalledDir: {HOME}/bin" in lines


def test_preprocesses_a_file_without_suffix_and_stdin(hipcc: Run) -> None:
    assert hipcc("-E", "-P", "/dev/null").stdout.strip() == ""
    done = hipcc("-x", "hip", "-E", "-P", "-", stdin="int is_hip = __HIP__; int amd = __HIP_PLATFORM_AMD__;")
    assert done.stdout.splitlines()[-1] == "int is_hip = 1; int amd = 1;"


def test_compiles_stdin_and_reports_by_exit_code(hipcc: Run, tmp_path: Path) -> None:
    code = "#include <hip/hip_runtime.h>\n__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }\n"
    hipcc("-x", "hip", "-c", "-o", "probe.o", "-", stdin=code)
    assert (tmp_path / "probe.o").exists()
    done = hipcc("-x", "hip", "-c", "-o", "probe.o", "-", stdin=code + "nonsense", fails=True)
    assert "nonsense" in done.stderr


def test_diagnostics_of_rewritten_sources_keep_their_places(hipcc: Run, tmp_path: Path) -> None:
    text = "#include <hip/hip_runtime.h>\n__global__ void k() {}\nvoid f() {\n  k<<<1, 1>>>();\n  wrong;\n}\n"
    (tmp_path / "wrong.hip").write_text(text)
    assert "wrong.hip:5:3: error" in hipcc("-c", "wrong.hip", fails=True).stderr


def test_diagnostics_of_plain_sources_come_once(hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong.hip").write_text("int f() { return wrong; }\n")
    assert hipcc("-c", "wrong.hip", fails=True).stderr.count("error:") == 1
    (tmp_path / "warn.hip").write_text("int f() { int unused; return 0; }\n")
    assert hipcc("-c", "-Wall", "warn.hip").stderr.count("warning:") == 1


def test_launch_with_deduced_template_arguments_gets_a_hint(hipcc: Run, tmp_path: Path) -> None:
    text = "#include <hip/hip_runtime.h>\ntemplate <class T> __global__ void k(T) {}\nvoid f() { k<<<1, 1>>>(2); }\n"
    (tmp_path / "deduced.hip").write_text(text)
    assert "template whose arguments are not spelled out" in hipcc("-c", "deduced.hip", fails=True).stderr


@pytest.mark.parametrize("launch", ["hipLaunchKernelGGL(add, 1, 1, 0, 0, a)", "add<<<1, 1>>>(a)"])
def test_dependency_file_lists_local_headers(launch: str, hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "add.hip").write_text(ADD.replace("hipLaunchKernelGGL(add, 1, 1, 0, 0, a)", launch))
    hipcc("-MMD", "-c", "add.hip", "-o", "out.o")
    assert (tmp_path / "out.d").read_text().split() == ["out.o:", "add.hip", "local.h"]
    hipcc("-MD", "-MF", "deps", "-MT", "target", "-c", "add.hip")
    text = (tmp_path / "deps").read_text()
    assert text.startswith("target: add.hip") and "hip_runtime.h" in text
    assert "local.h" in hipcc("-MM", "add.hip").stdout


def test_response_files_nest_and_keep_quoted_words_whole(hipcc: Run, tmp_path: Path) -> None:
    (tmp_path / "inner.rsp").write_text("-c\n'-DSPACED=\"a b\"'\n")
    (tmp_path / "outer.rsp").write_text('@inner.rsp --offload-arch=gfx90a "add.hip" -o add\\ 2.o')
    hipcc("@outer.rsp")
    assert archs_in(tmp_path / "add 2.o") == "gfx90a"


def test_links_of_more_files_than_an_argument_list_holds_work(hipcc: Run, run: Run, tmp_path: Path) -> None:
    hipcc("-c", "-fPIC", "add.hip")
    empty = tmp_path / ("x" * 200) / "empty.a"
    empty.parent.mkdir()
    run(["ar", "rc", empty])
    (tmp_path / "long.rsp").write_text(f"{empty}\n" * 10_000)
    hipcc("-shared", "add.o", "@long.rsp", "-o", "libadd.so")
    assert archs_in(tmp_path / "libadd.so") == "gfx942"


def test_dry_run_prints_the_command_and_runs_nothing(hipcc: Run, tmp_path: Path) -> None:
    done = hipcc("-###", "-S", "add.hip", "--offload-arch=gfx942")
    assert '"-S"' in done.stderr and "gfx942" in done.stderr
    assert not (tmp_path / "add.s").exists()


def test_dry_run_of_a_compile_prints_passes_that_make_the_object(hipcc: Run, run: Run, tmp_path: Path) -> None:
    done = hipcc("-###", "-c", "-fPIC", "add.hip", "--offload-arch=gfx942")
    steps = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith(' "')]
    assert len(steps) == 3 and not (tmp_path / "add.o").exists()
    made = steps[0][steps[0].index("-o") + 1]
    for step in steps:
        run([word.replace(made.removesuffix(".o"), str(tmp_path / "step")) for word in step])
    assert b"__CLANG_OFFLOAD_BUNDLE__" in (tmp_path / "add.o").read_bytes()


def test_options_for_the_device_compiler_are_ignored(hipcc: Run) -> None:
    hipcc(
        *("-mllvm", "-amdgpu-early-inline-all=true", "-Xoffload-linker", "--gc", "-Xarch_device", "-O3"),
        *("--rocm-path=/opt/rocm", "--rocm-device-lib-path=/x", "-fno-offload-uniform-block", "--offload-compress"),
        *("-parallel-jobs=4", "-fgpu-flush-denormals-to-zero", "-munsafe-fp-atomics", "--cuda-host-only", "--hip-link"),
        *("-Weverything", "-Wno-c++98-compat", "-Xclang", "-fallow-half-arguments-and-returns", "-ferror-limit=0"),
        *("-Xarch_host", "-DHOST_ONLY=1", "-fno-gpu-rdc", "-c", "add.hip"),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-fgpu-rdc", "-c"], "-fgpu-rdc"),
        (["--genco"], "--genco"),
        (["--cuda-device-only", "-c"], "device-only"),
        (["-fno-gnu-unique", "-c"], "unknown argument"),
    ],
)
def test_what_cannot_be_done_is_refused_clearly(words: list[str], message: str, hipcc: Run) -> None:
    done = hipcc(*words, "add.hip", fails=True)
    assert done.stderr.startswith("hipcc: error:") and message in done.stderr


def test_device_only_preprocessing_shows_the_device_side(hipcc: Run) -> None:
    code = "#if defined(__HIP_DEVICE_COMPILE__) && defined(__gfx942__)\nint device;\n#endif\n"
    words = ("-x", "hip", "-E", "-P", "--offload-arch=gfx942", "-")
    assert "int device;" in hipcc("--cuda-device-only", *words, stdin=code).stdout
    assert "int device;" not in hipcc(*words, stdin=code).stdout


def test_flags_appended_by_environment_reach_compile_and_link(hipcc: Run, run: Run, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text("int main() { return EXIT; }\n")
    env = {"HIPCC_COMPILE_FLAGS_APPEND": "-DEXIT=0", "HIPCC_LINK_FLAGS_APPEND": "-Wl,-soname,libfound.so -shared"}
    hipcc("main.cpp", "-fPIC", "-o", "program", env=env)
    assert "libfound.so" in run(["readelf", "-d", "program"]).stdout


def test_linking_finds_the_runtime_from_anywhere(hipcc: Run, run: Run, library_dir: Path) -> None:
    hipcc("-shared", "-fPIC", "add.hip", "-o", "libadd.so")
    dynamic = run(["readelf", "-d", "libadd.so"]).stdout
    assert "[libamdhip64.so.6]" in dynamic and f"[{library_dir}]" in dynamic
    hipcc("-shared", "-fPIC", "-no-hip-rt", "add.hip", "-o", "libbare.so")
    assert "amdhip64" not in run(["readelf", "-d", "libbare.so"]).stdout


def test_several_sources_of_all_kinds_link_in_one_command(hipcc: Run, run: Run, tmp_path: Path) -> None:
    (tmp_path / "plain.c").write_text("int new(void) { return 3; }\n")  # this is not valid C++
    (tmp_path / "main.cpp").write_text(
        "#include <hip/hip_runtime.h>\nextern \"C\" int new_() __asm__(\"new\");\n"
        "__global__ void k(int* a) { extern __shared__ int s[]; s[0] = 1; *a += s[0]; }\n"
        "void launch(float*);\n"
        "int main() { int a = 1; float f = 1; k<<<1, 1>>>(&a); launch(&f); return new_() - a - (int)f + 1; }\n"
    )  # fmt: skip
    hipcc("main.cpp", "plain.c", "add.hip", "-o", "program")
    run(["./program"])


def test_a_mirror_of_the_home_made_of_links_works(run: Run, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for entry in HOME.iterdir():
        if entry.name != "bin":
            (mirror / entry.name).symlink_to(entry)
    (mirror / "bin").mkdir()
    (mirror / "bin" / "hipcc").write_text(f'#!/bin/sh\nexec "{HOME}/bin/hipcc" "$@"\n')
    (mirror / "bin" / "hipcc").chmod(0o755)
    (mirror / "bin" / "linked").symlink_to(HOME / "bin" / "hipcc")
    for name in ("hipcc", "linked"):
        run([mirror / "bin" / name, "-shared", "-fPIC", "add.hip", "-o", "libadd.so"], env={"ROCM_PATH": str(mirror)})


def test_plain_compiler_with_the_headers_compiles_host_code(run: Run, tmp_path: Path, library_dir: Path) -> None:
    (tmp_path / "host.cpp").write_text(
        "#include <hip/hip_runtime_api.h>\n"
        "int main() { int n; return hipGetDeviceCount(&n) != hipSuccess || n != 1; }\n"
    )
    words = ["-D__HIP_PLATFORM_AMD__=1", f"-I{HOME}/include", "host.cpp", f"-L{library_dir}", "-lamdhip64"]
    run(["c++", *words, f"-Wl,-rpath,{library_dir}", "-o", "host"])
    run(["./host"])


@pytest.mark.skipif(shutil.which("clang++-19") is None, reason="clang++-19 is not installed")
def test_clang_serves_as_host_compiler(hipcc: Run, tmp_path: Path) -> None:
    done = hipcc("-Wall", "-Werror", "-c", "add.hip", "-mllvm", "-x", env={"FAKE_ROCM_CXX": "clang++-19"})
    assert done.stderr == ""
    assert archs_in(tmp_path / "add.o") == "gfx942"


def test_missing_host_compiler_is_named(hipcc: Run) -> None:
    done = hipcc("-c", "add.hip", env={"FAKE_ROCM_CXX": "no-such-compiler"}, fails=True)
    assert "no-such-compiler" in done.stderr and "FAKE_ROCM_CXX" in done.stderr


def test_hipconfig_and_enumerator_answer_as_builds_ask(run: Run) -> None:
    def hipconfig(option: str) -> str:
        return run([HOME / "bin" / "hipconfig", option]).stdout

    assert hipconfig("--platform") == "amd"
    assert hipconfig("--compiler") == "clang"
    assert hipconfig("--path") == hipconfig("-R") == hipconfig("--rocmpath") == str(HOME)
    assert hipconfig("--version") == (HOME / ".info" / "version").read_text().strip()
    assert f"-I{HOME}/include" in hipconfig("--cpp_config")
    enumerator = HOME / "bin" / "rocm_agent_enumerator"
    assert run([enumerator]).stdout.split() == ["gfx000", "gfx942"]
    assert run([enumerator], env={"FAKE_ROCM_ARCH": "gfx90a,gfx1100"}).stdout.split() == ["gfx000", "gfx90a", "gfx1100"]
    assert os.access(enumerator, os.X_OK)
