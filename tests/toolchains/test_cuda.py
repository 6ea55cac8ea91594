"""Tests CUDA projects with the real nvcc: they are built lazily, and the first call compiles.
Without a GPU, a call ends in CUDA's error 35."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import NINJA, REPOSITORY, Lazyck
from support.cuda_machine import bare_environment, cuda_environment, cuda_home, device_code, needs_nvcc, project, wheels
from support.ops_library import inspect

from lazyck import abi
from lazyck.toolchains import CUDA, Found
from lazyck.toolchains.requirement import RequirementState

pytestmark = [pytest.mark.cuda, needs_nvcc]

# A call that reached CUDA finds no driver, or no device (a driver without a GPU). With a GPU, it
# succeeds up to the null pointer that the kernel is given.
REACHED_CUDA = ("35", "100", "0")


def build(lazyck: Lazyck, work: Path, env: Mapping[str, str], *command: str, blobs: str = "*/blob/*") -> str:
    done = lazyck("build", "full", "--blobs", blobs, "--", *(command or ("./build.sh",)), cwd=work, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def program(work: Path, library: Path) -> Path:
    made = work / "main-program"
    words = [str(library), f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined"]
    subprocess.run(["c++", str(work / "main.cpp"), *words, "-o", str(made)], check=True)
    return made


def call(program: Path, env: Mapping[str, str]) -> str:
    """Return what a call of the library returns in a process of its own. An error of lazyck fails
    the test."""
    libraries = str(cuda_home() / "lib64")
    done = subprocess.run([program], env={**env, "LD_LIBRARY_PATH": libraries}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def entries(env: Mapping[str, str]) -> list[Path]:
    return sorted(Path(env["LAZYCK_CACHE_DIR"]).glob("v1/*/*/*.so"))


def unique_symbols(file: Path) -> list[str]:
    shown = subprocess.run(["readelf", "-sW", file], check=True, capture_output=True, text=True).stdout
    return [line for line in shown.splitlines() if " UNIQUE " in line]


NVCCFLAGS = "-gencode arch=compute_80,code=[sm_80,compute_80] -optf options"


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> tuple[Path, dict[str, str]]:
    """Build for archs that the command, the environment and a file of options name. Return the
    project and the environment of a job."""
    root = tmp_path_factory.mktemp("named")
    work, env = project("cuda_ops", root), cuda_environment(root)
    (work / "options").write_text('-gencode=arch=compute_75,code=sm_75 -DNAMED="a b" -I\'nowhere\n')
    appended = '-gencode arch=compute_86,code=[sm_86,compute_86] -DN=1 -DS="x y"'
    build(lazyck_shared, work, {**env, "NVCCFLAGS": NVCCFLAGS, "NVCC_APPEND_FLAGS": appended})
    return work, env


def test_an_entry_has_code_for_one_arch_whatever_the_build_names(
    tmp_path: Path, lazyck: Lazyck, named: tuple[Path, dict[str, str]]
) -> None:
    work, env = named
    library = work / "build/libcudaops.so"
    (archs,) = {tuple(r["archs"]) for r in inspect(lazyck, library)["recipes"]}
    assert archs == ("75", "80", "80-virtual", "86", "86-virtual")
    main = program(work, library)
    # Flags in the job's own environment do not reach an entry either.
    flags = {"NVCC_APPEND_FLAGS": "-gencode arch=compute_75,code=compute_75 -DBROKEN=("}
    job = {**env, "LAZYCK_ARCHS": "87", "LAZYCK_CACHE_DIR": str(tmp_path / "by-kernel"), **flags}
    assert call(main, job) in REACHED_CUDA
    host, kernel = entries(job)
    assert device_code(kernel) == ["elf 86"]  # which runs on 8.7
    assert not unique_symbols(host)
    job |= {"LAZYCK_CACHE_DIR": str(tmp_path / "whole"), "LAZYCK_BY_KERNEL": "0"}
    assert call(main, job) in REACHED_CUDA
    (entry,) = entries(job)
    assert device_code(entry) == ["elf 86"]
    assert not unique_symbols(entry)
    # An ahead-of-time object has unique symbols.
    aot = ["-std=c++17", "-Iinclude", "-Xcompiler", "-fPIC", "-c", "blob/scale_float_2.cu", "-o", "aot.o"]
    subprocess.run([cuda_home() / "bin/nvcc", *aot], cwd=work, check=True)
    assert unique_symbols(work / "aot.o")


def test_a_source_has_the_archs_of_its_own_command(tmp_path: Path, lazyck: Lazyck) -> None:
    """No source compiles for another virtual arch than that of its own command."""
    kernel = (
        "#if defined(__CUDA_ARCH__) && !({1})\n#error\n#endif\n"
        "__global__ void k{0}(int* p) {{ *p = 1; }}\nvoid call{0}(int* p) {{ k{0}<<<1, 1>>>(p); }}\n"
    )
    sources = {
        "a": ("-gencode arch=compute_90a,code=sm_90a", "defined(__CUDA_ARCH_FEAT_SM90_ALL)"),
        "b": ("-arch=compute_90 -code=sm_90", "__CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)"),
        "c": ("-arch=sm_80", "__CUDA_ARCH__ == 800"),
    }
    steps = [f"nvcc -Xcompiler -fPIC {option} -c {name}.cu -o {name}.o" for name, (option, _) in sources.items()]
    for name, (_, condition) in sources.items():
        (tmp_path / f"{name}.cu").write_text(kernel.format(name, condition))
    env = cuda_environment(tmp_path)
    script = " && ".join([*steps, "nvcc -shared -cudart shared a.o b.o c.o -o libk.so"])
    build(lazyck, tmp_path, env, "sh", "-c", script, blobs="none")
    expected = {
        (): (["a", "90a", "b", "90", "c", "80"], ["elf 80"]),
        ("--gpu-archs", "90"): (["a", "90a", "b", "90", "c", "90_ptx80"], ["elf 90"]),
    }
    for chosen, (listed, code) in expected.items():
        job = {**env, "LAZYCK_CACHE_DIR": str(tmp_path / "-".join(["cache", *chosen]))}
        done = lazyck("prebuild", "build", "--manifest", "libk.so", *chosen, "--all", cwd=tmp_path, env=job)
        assert done.returncode == 0, done.stderr
        assert lazyck("prebuild", "list", "--manifest", "libk.so", cwd=tmp_path, env=job).stdout.split() == listed
        assert [device_code(p) for p in entries(job) if p.name[0] == "c"] == [code]


def test_a_device_that_nvcc_does_not_know(named: tuple[Path, dict[str, str]]) -> None:
    work, env = named
    main = program(work, work / "build/libcudaops.so")
    done = subprocess.run([main], env={**env, "LAZYCK_ARCHS": "990"}, capture_output=True, text=True)
    assert "does not know the arch 990: use a newer CUDA toolkit" in done.stderr


def test_flags_of_the_environment_are_part_of_the_key(lazyck: Lazyck, named: tuple[Path, dict[str, str]]) -> None:
    work, env = named
    build(lazyck, work, {**env, "NVCCFLAGS": NVCCFLAGS, "NVCC_PREPEND_FLAGS": "-arch=sm_80 -DN=1", "OUT": "prepended"})

    def recipe_and_keys(directory: str) -> tuple[list[str], list[str]]:
        shown = inspect(lazyck, work / directory / "libcudaops.so")
        recipe, *_ = shown["recipes"]
        assert not [name for name in recipe["env"] if name.startswith("NVCC")]
        return recipe["compile"], [b["digest"] for b in shown["blobs"]]

    before, first = recipe_and_keys("prepended")
    after, second = recipe_and_keys("build")
    assert before.index("-DN=1") < before.index("-O2") and after.index("-DN=1") > after.index("-O2")
    assert '-DS="x y"' in after and not any("sm_" in word for word in (*before, *after))
    assert not set(first) & set(second)


def test_variables_that_nvcc_hands_to_its_passes_are_the_builds_own(tmp_path: Path, lazyck: Lazyck) -> None:
    work, env = project("cuda_ops", tmp_path), cuda_environment(tmp_path)
    used = '#include "more.h"\n#ifndef NAMED\n#error NAMED is what INCLUDES says\n#endif\n'
    (work / "more").mkdir()
    (work / "more/more.h").write_text("")
    for source in (work / "blob").iterdir():
        source.write_text(used + source.read_text())
    given = {"INCLUDES": f"-DNAMED=1 -I{work}/more", "SYSTEM_INCLUDES": "-DOTHER=1", "CUDAFE_FLAGS": "-DF=1"}
    given["PTXAS_FLAGS"] = "-O1"
    build(lazyck, work, {**env, **given})
    library = work / "build/libcudaops.so"
    recipe, *_ = inspect(lazyck, library)["recipes"]
    assert recipe["env"].pop("SOURCE_DATE_EPOCH") == "315532800"
    assert recipe["env"].pop("INCLUDES").startswith(f"-DNAMED=1 -I{abi.PH_ROOT}/libcudaops/tree/")
    assert recipe["env"] == {name: value for name, value in given.items() if name != "INCLUDES"}
    shutil.rmtree(work / "more")
    # Neither variables that the job lacks nor variables that it has change an entry.
    job = {**env, "PTXAS_FLAGS": "--no-such-option", "CUDAFE_FLAGS": "-DF=2", "SYSTEM_INCLUDES": "-Dint=broken"}
    assert call(program(work, library), job) in REACHED_CUDA


# The directories below that of the build, and the links that fill them
LINKS = {
    "static": "nvcc -shared build/*.o -o build/static/libcudaops.so",
    "shared": "nvcc -shared build/*.o -o build/shared/libcudaops.so -cudart shared",
    "shared-by-c++": 'c++ -shared build/*.o -o build/shared-by-c++/libcudaops.so -L"$CUDA_HOME/lib64" -lcudart',
}


@pytest.fixture(scope="module")
def by_wheels(tmp_path_factory: pytest.TempPathFactory, lazyck_shared: Lazyck) -> tuple[Path, Path, dict[str, str]]:
    """Build with wheels, and link in each way. Return the wheels' root, the project, and the
    environment of the build."""
    root = tmp_path_factory.mktemp("wheels")
    work, home = project("cuda_ops", root), wheels(root / "site")
    assert not (home / "lib64").exists() and not (home / "lib/libcudart.so").exists()
    # lazyck and the wheels are in one Python environment, as `pip install lazyck[cuda]` leaves
    # them.
    env = {**bare_environment(root), "PYTHONPATH": f"{REPOSITORY}:{home.parent.parent}"}
    for name in LINKS:
        (work / "build" / name).mkdir(parents=True)
    script = " && ".join(["LINK=true ./build.sh", *LINKS.values()])
    build(lazyck_shared, work, env, "sh", "-c", script)
    composed = json.loads((work / ".lazyck-build/options.json").read_text())["composed"]
    for made, _ in composed:  # compiles do not need what was made for the build
        shutil.rmtree(made)
    return home, work, env


@pytest.mark.parametrize("link", LINKS)
def test_wheels_alone_are_a_toolkit(
    tmp_path: Path, lazyck: Lazyck, by_wheels: tuple[Path, Path, dict[str, str]], link: str
) -> None:
    home, work, env = by_wheels
    library = work / "build" / link / "libcudaops.so"
    shown = inspect(lazyck, library)
    assert {recipe["home"] for recipe in shown["recipes"]} == {str(home)}
    job = {**env, "LAZYCK_CACHE_DIR": str(tmp_path / "cache"), "LAZYCK_ARCHS": "80"}
    assert call(program(work, library), job) in REACHED_CUDA
    host, kernel = entries(job)
    assert device_code(kernel) == ["elf 80"]
    needed = subprocess.run(["readelf", "-d", host], check=True, capture_output=True, text=True).stdout
    assert ("libcudart.so" in needed) == (link != "static")


@pytest.mark.skipif("TEST_CUDA_WHEELS" in os.environ, reason="these wheels are not ours to take apart")
def test_doctor_names_the_wheel_that_is_missing(tmp_path: Path) -> None:
    home = wheels(tmp_path / "site")
    found = Found(CUDA, str(home), (str(home / "bin/nvcc"),))

    def states() -> dict[str, tuple[RequirementState, str]]:
        return {check.name: (check.state, check.install) for check in CUDA.checks(found, os.environ)}

    whole = states()
    assert {whole[name][0] for name in ("compiler", "headers", "device compiler", "runtime library")} == {
        RequirementState.OK
    }
    (home / "nvvm").unlink()
    assert (
        states()["device compiler"][0] is RequirementState.MISSING and "nvidia-nvvm" in states()["device compiler"][1]
    )
    (home / "include").unlink()
    assert states()["headers"][0] is RequirementState.MISSING and "nvidia-cuda-runtime" in states()["headers"][1]


@pytest.mark.parametrize(
    ("generator", "words"),
    [
        ("Ninja", ["-DCMAKE_CUDA_ARCHITECTURES=75;80"]),
        pytest.param("Unix Makefiles", ["-DCMAKE_CUDA_RUNTIME_LIBRARY=Shared"], marks=pytest.mark.slow),
    ],
)
def test_cmake_s_cuda_language(tmp_path: Path, lazyck: Lazyck, generator: str, words: list[str]) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    work, env = project("cuda_ops", tmp_path), cuda_environment(tmp_path)
    # Ninja finds the compiler by PATH. The other generator is given its path, and also uses
    # response files.
    compiler = "" if generator == "Ninja" else '-DCMAKE_CUDA_COMPILER="${CUDA_HOME:+$CUDA_HOME/bin/}nvcc"'
    responses = [f"-DCMAKE_CUDA_USE_RESPONSE_FILE_FOR_{w}=1" for w in ("INCLUDES", "OBJECTS", "LIBRARIES")]
    ninja = f"-DCMAKE_MAKE_PROGRAM={NINJA}"
    words = [*words, *([ninja] if generator == "Ninja" else responses)]
    script = f"cmake -S . -B b -G '{generator}' {compiler} \"$@\" && cmake --build b"
    build(lazyck, work, env, "sh", "-c", script, "sh", *words)
    log = (work / ".lazyck-build/intercept.log").read_text()
    assert "try-compile" in log and log.count("defer\tblob\tnvcc") == 3
    blobs = inspect(lazyck, work / "b/libcudaops.so")["blobs"]
    assert len([b for b in blobs if not b["kernel"]]) == 2
    assert call(work / "b/main", env) in REACHED_CUDA
    assert {code.split()[0] for entry in entries(env) for code in device_code(entry)} == {"elf"}


def test_relocatable_device_code_is_compiled_as_always(tmp_path: Path, lazyck: Lazyck) -> None:
    work, env = project("cuda_ops", tmp_path), cuda_environment(tmp_path)
    build(lazyck, work, {**env, "NVCC_APPEND_FLAGS": "-rdc true"})
    log = (work / ".lazyck-build/intercept.log").read_text()
    assert log.count("pass\trelocatable-device-code") == 3 and "defer" not in log
    assert call(program(work, work / "build/libcudaops.so"), env) in REACHED_CUDA
