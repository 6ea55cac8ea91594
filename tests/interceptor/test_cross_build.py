"""Tests a library for another machine: the project's own build makes it here, an emulator runs it,
and its cache is filled here. What each machine does by itself is tested on all."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import AARCH64, HERE, RISCV64, Lazyck, Machine, machine_params
from support.ops_library import Ops, build_ops, inspect

from lazyck.postbuild.objects import elf

pytestmark = [*AARCH64.marks, pytest.mark.xdist_group("cross")]
CLANG = shutil.which("clang++-19") or shutil.which("clang++")
DRIVER = r"""
#include <cstdio>
#include <dlfcn.h>
int main(int, char** argv) {
    void* lib = dlopen(argv[1], RTLD_NOW);
    if (!lib) return std::puts(dlerror()), 2;
    const auto special = reinterpret_cast<double (*)(int, int, const float*, float*, int)>(dlsym(lib, "ops_special"));
    const auto plain = reinterpret_cast<double (*)(float)>(dlsym(lib, "ops_plain"));
    const auto name = reinterpret_cast<int (*)(char*, int)>(dlsym(lib, "ops_name"));
    const auto same = reinterpret_cast<int (*)()>(dlsym(lib, "ops_same_address"));
    const auto registered = reinterpret_cast<int (*)()>(dlsym(lib, "ops_registered"));
    const float in[1000] = {1, 2, 3, 4};
    float out[1000] = {};
    char text[200];
    const double result = special(64, 1, in, out, 1000);
    if (result == -2) return std::puts(reinterpret_cast<char*>(out)), 3;  // a caught exception's message
    name(text, sizeof text);
    std::printf("%g %s %g %d %d\n", special(64, 1, in, out, 4), text, plain(4), same(), registered());
}
"""


on_each = pytest.mark.parametrize("machine", machine_params(AARCH64, RISCV64))


@pytest.fixture
def machine() -> Machine:
    return AARCH64


@pytest.fixture
def where(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Path:
    return tmp_path_factory.getbasetemp() / f"cross-{machine.name}"


@pytest.fixture
def ops(lazyck: Lazyck, where: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Ops:
    """Return the library, built once, and make a program that calls it."""
    tmp = where / "tmp"
    monkeypatch.setenv("CXX", machine.cxx)
    if not (tmp / "report").exists():
        where.mkdir()
        (where / "driver.cpp").write_text(DRIVER)
        subprocess.run([machine.cxx, "driver.cpp", "-o", "driver", "-ldl"], cwd=where, check=True)
        report = build_ops(lazyck, where).report
        (tmp / "report").write_text(report)
    project = where / "my ops"
    return Ops(project, project / "build" / "libops.so", tmp, (tmp / "report").read_text())


def call(where: Path, library: Path, machine: Machine = AARCH64, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [*machine.runner, str(where / "driver"), str(library)]
    return subprocess.run(argv, env={**os.environ, **machine.env, **env}, capture_output=True, text=True, timeout=300)


@on_each
def test_first_call_in_the_emulator_compiles_and_the_second_process_does_not(
    ops: Ops, where: Path, machine: Machine
) -> None:
    ahead = where / "ahead"
    subprocess.run([ops.project / "build.sh"], env={**os.environ, "OUT": str(ahead)}, check=True)
    reference = call(where, ahead / "libops.so", machine)
    assert reference.returncode == 0, reference
    first = call(where, ops.library, machine)
    assert first.stdout == reference.stdout, first.stderr
    assert f"compiling special_d64_true for {machine.name}" in first.stderr
    second = call(where, ops.library, machine, LAZYCK_JIT="off", PATH="/nonexistent")
    assert (second.stdout, second.stderr) == (reference.stdout, "")


def test_failed_compile_is_an_exception_that_the_library_catches(ops: Ops, where: Path) -> None:
    done = call(where, ops.library, LAZYCK_LAUNCHER="/broken")
    assert done.returncode == 3, done
    assert "cannot compile blob 'special_d64_true' for aarch64: " in done.stdout
    assert "broken" in done.stdout


def test_bundle_of_another_is_refused(ops: Ops, where: Path, tmp_path: Path) -> None:
    copy = tmp_path / "lazyck"
    shutil.copytree(ops.tmp / "libs", copy)
    (source,) = copy.rglob("special_d64_true.cpp")
    source.write_text("broken\n")
    done = call(where, ops.library, LAZYCK_ROOT=str(source.parents[source.parts[::-1].index("bundle") - 1]))
    assert done.returncode == 3, done
    assert f"not as it was when the library was built: '{source}' was changed" in done.stdout


@on_each
def test_summary_and_manifest_name_the_same_blobs_as_for_this_machine(
    ops: Ops, lazyck: Lazyck, machine: Machine
) -> None:
    # The probe reads the machine's objects: it finds data and initializers there as well.
    assert "17 blobs deferred, 15 lazy with 21 symbols, 2 eager" in ops.report, ops.report
    assert "blob/data.cpp defines data that other files can use: table\n" in ops.report
    assert "blob/registrar.cpp has code that runs when the library is loaded: registrar at registrar.cpp:" in ops.report
    assert inspect(lazyck, ops.library)["machine"] == machine.name
    assert elf.machine(ops.library) == machine.name
    assert not [p for p in (ops.tmp / "libs").rglob("*") if "gnu" in p.name], "system headers are no part of the bundle"


def test_this_machine_fills_the_cache_for_the_other(ops: Ops, where: Path, lazyck: Lazyck) -> None:
    # CXX still names the cross compiler, so another compiler must make the tool itself.
    done = lazyck("prebuild", "build", "--manifest", ops.library, "special_d64_true", "plain", "c_plain",
                  "instance_float_2")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    listed = lazyck("prebuild", "list", "--manifest", ops.library, "--all").stdout.splitlines()
    assert "special_d64_true\taarch64" in listed
    assert "special_d32_true\t-" in listed
    entries = list(Path(os.environ["LAZYCK_CACHE_DIR"]).rglob("*.so"))
    assert {elf.machine(e) for e in entries} == {"aarch64"}
    found = call(where, ops.library, LAZYCK_JIT="off")
    assert (found.returncode, found.stderr) == (0, ""), found


def build_tiny(lazyck: Lazyck, where: Path, name: str, words: str, broken: str = "") -> Path:
    """Build a program of one blob with the compiler command `words`. If `broken` is not empty, it
    is the source of a second blob."""
    project = where / name
    (project / "blob").mkdir(parents=True)
    (project / "blob" / "b.cpp").write_text("int add(int a, int b) { return a + b; }\n")
    main = "#include <string>\nint add(int, int);\nint main(int n, char** v) { return add(4, std::stoi(v[n - 1])); }\n"
    (project / "main.cpp").write_text(main)
    lines = [f"cd '{project}'", f"{words} -c blob/b.cpp -o b.o", f"{words} -c main.cpp -o main.o"]
    if broken:
        (project / "blob" / "broken.cpp").write_text(broken)
        lines.append(f"{words} -c blob/broken.cpp -o broken.o")
    lines.append(f"{words} main.o *b*.o -o prog")
    tmp = where / f"tmp-{name}"
    done = lazyck("build", "full", "--toolchain", "host", "--tmp-dir", tmp, "--", "sh", "-ec", "\n".join(lines))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 lazy with 1 symbol" in done.stderr, done.stderr
    assert ("broken.cpp was left out" in done.stderr) == bool(broken), done.stderr
    return project / "prog"


def test_programs_of_two_machines_share_a_cache(lazyck: Lazyck, tmp_path: Path) -> None:
    # The cross compiler is called by its name on PATH, as CXX is not set.
    foreign = build_tiny(lazyck, tmp_path, "foreign", AARCH64.cxx)
    own = build_tiny(lazyck, tmp_path, "own", "g++")
    for argv in ([str(own), "5"], [*AARCH64.runner, str(foreign), "5"]) * 2:
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 9, done
    assert done.stderr == "", "the second round compiles nothing"
    entries = list(Path(os.environ["LAZYCK_CACHE_DIR"]).rglob("*.so"))
    assert len({e.name for e in entries}) == 2
    assert {elf.machine(e) for e in entries} == {AARCH64.name, HERE.name}


def test_a_blob_that_does_not_compile_is_left_out_if_the_targets_libraries_have_the_rest(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    assert build_tiny(lazyck, tmp_path, "broken", AARCH64.cxx, broken="#error never\n").is_file()


def test_libraries_of_the_target_that_nothing_needs_are_dropped_as_they_are_ahead_of_time(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    for name, source in {"first": "int help() { return 1; }", "second": "int help() { return 2; }"}.items():
        (tmp_path / f"{name}.cpp").write_text(source)
        words = ["-shared", "-fPIC", f"-Wl,-soname,lib{name}.so", f"{name}.cpp", "-o", f"lib{name}.so"]
        subprocess.run([AARCH64.cxx, *words], cwd=tmp_path, check=True)
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob" / "b.cpp").write_text("int help();\nint add(int a, int b) { return a + b + help(); }\n")
    (tmp_path / "main.cpp").write_text("int help();\nint add(int, int);\nint main() { return add(4, 5) + help(); }\n")
    compile_both = "for s in blob/b main; do $CXX -c $s.cpp -o $(basename $s).o; done"
    link = "$CXX main.o b.o -Wl,--as-needed -L. -lfirst -lsecond -Wl,-rpath,$PWD -o prog"
    done = lazyck(
        "build", "full", "--toolchain", "host", "--", "sh", "-ec", f"CXX={AARCH64.cxx}; {compile_both}; {link}",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 lazy with 1 symbol" in done.stderr
    needed = elf.read_shared(tmp_path / "prog").needed
    assert "libfirst.so" in needed
    assert "libsecond.so" not in needed
    called = subprocess.run([*AARCH64.runner, tmp_path / "prog"], capture_output=True, text=True)
    assert called.returncode == 11, called


@pytest.mark.slow
@pytest.mark.skipif(not CLANG, reason="no clang++")
def test_compiler_that_is_a_cross_compiler_by_an_option_makes_the_runtime_too(
    lazyck: Lazyck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", CLANG or "")
    program = build_tiny(lazyck, tmp_path, "clang", '"$CXX" --target=aarch64-linux-gnu')
    done = subprocess.run([*AARCH64.runner, program, "5"], capture_output=True, text=True)
    assert done.returncode == 9, done
