"""Tests links of other shapes than `c++ -shared *.o`, all under `lazyck build full`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import Lazyck
from support.twice_project import BLOB, COMPILE, run_library, write_project


def build(lazyck: Lazyck, where: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    (where / "build.sh").write_text("set -e\n" + script)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", where / "tmp", *options, "--", "sh", "build.sh"]
    return lazyck(*words, cwd=where)


def test_static_archive_between_compile_and_link(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2, 3])
    done = build(lazyck, tmp_path, COMPILE + "ar rcs libv.a v*.o\nc++ -shared -o libx.so dispatch.o libv.a\n")
    assert done.returncode == 0, done.stderr
    assert "3 blobs deferred, 3 lazy with 3 symbols" in done.stderr
    assert "static libraries with deferred members, which only lazy links can use: libv.a\n" in done.stderr
    assert run_library(tmp_path / "libx.so", 2, 10).stdout == "22\n"


def test_archives_that_options_name(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2, 3, 4])
    script = COMPILE + (
        "ar rcs liba.a v1.o\nmkdir -p sub\nar rcs sub/libb.a v2.o\nar rcsT libt.a v3.o\nld -r -o merged.o v4.o\n"
        "c++ -shared -o libx.so dispatch.o -Wl,--whole-archive,liba.a,--no-whole-archive -Lsub -lb libt.a merged.o\n"
    )
    done = build(lazyck, tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert "4 blobs deferred, 4 lazy with 4 symbols" in done.stderr
    assert [run_library(tmp_path / "libx.so", n, 10).stdout for n in (1, 2, 3, 4)] == ["21\n", "22\n", "23\n", "24\n"]


def test_response_file_and_another_driver_than_the_compiler(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    script = COMPILE + "printf '%s\\n' -shared -o libx.so dispatch.o v1.o '\"v2.o\"' > args\ng++ @args\n"
    done = build(lazyck, tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert run_library(tmp_path / "libx.so", 1, 10).stdout == "21\n"


def test_link_by_the_c_driver(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1])
    done = build(lazyck, tmp_path, COMPILE + "cc -shared -o libx.so dispatch.o v1.o\n")
    assert done.returncode == 0, done.stderr
    assert run_library(tmp_path / "libx.so", 1, 10).stdout == "21\n"


def test_executable_as_output(lazyck: Lazyck, tmp_path: Path) -> None:
    main = '#include <cstdio>\nint main() { std::printf("%d %d\\n", run(1, 5), run(2, 5)); }\n'
    write_project(tmp_path, [1, 2], main)
    done = build(lazyck, tmp_path, COMPILE + "c++ -o prog dispatch.o v1.o v2.o\n")
    assert done.returncode == 0, done.stderr
    called = subprocess.run([tmp_path / "prog"], capture_output=True, text=True)
    assert called.stdout == "11 12\n", called.stderr
    assert "compiling v1" in called.stderr


def test_two_libraries_in_one_build_and_in_one_process(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    script = (
        COMPILE
        + "c++ -shared -o liba.so dispatch.o v1.o v2.o\nmkdir -p sub\nc++ -shared -o sub/libb.so dispatch.o v1.o v2.o\n"
    )
    done = build(lazyck, tmp_path, script)
    assert done.returncode == 0, done.stderr
    code = (
        "import ctypes\n"
        "a, b = ctypes.CDLL('./liba.so', ctypes.RTLD_GLOBAL), ctypes.CDLL('./sub/libb.so', ctypes.RTLD_GLOBAL)\n"
        "print(a.run(1, 1), b.run(2, 1), a.run(2, 1), b.run(1, 1))"
    )
    called = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert called.stdout == "3 4 4 3\n", called.stderr


def test_equal_stems_in_two_directories_are_two_blobs(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    (tmp_path / "blob" / "more").mkdir()
    (tmp_path / "blob" / "v2.cpp").rename(tmp_path / "blob" / "more" / "v1.cpp")
    script = (
        "c++ -fPIC -I. -c dispatch.cpp -o dispatch.o\nc++ -fPIC -I. -c blob/v1.cpp -o a.o\n"
        "c++ -fPIC -I. -c blob/more/v1.cpp -o b.o\nc++ -shared -o libx.so dispatch.o a.o b.o\n"
    )
    done = build(lazyck, tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert [run_library(tmp_path / "libx.so", n, 10).stdout for n in (1, 2)] == ["21\n", "22\n"]


def test_a_changed_blob_is_compiled_again_and_the_others_stay_cached(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    script = COMPILE + "c++ -shared -o libx.so dispatch.o v1.o v2.o\n"
    assert build(lazyck, tmp_path, script).returncode == 0
    assert [run_library(tmp_path / "libx.so", n, 10).stdout for n in (1, 2)] == ["21\n", "22\n"]
    (tmp_path / "blob" / "v1.cpp").write_text(BLOB.format(n=1).replace("x * 2", "x * 3"))
    assert build(lazyck, tmp_path, script).returncode == 0
    changed, same = run_library(tmp_path / "libx.so", 1, 10), run_library(tmp_path / "libx.so", 2, 10)
    assert (changed.stdout, same.stdout) == ("31\n", "22\n")
    assert "compiling v1" in changed.stderr
    assert same.stderr == ""


def test_a_changed_header_changes_the_key(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1])
    (tmp_path / "blob" / "v1.cpp").write_text(
        '#include "twice.hpp"\n#include "blob/factor.h"\ntemplate <> int twice<1>(int x) { return x * FACTOR; }\n'
    )
    script = COMPILE + "c++ -shared -o libx.so dispatch.o v1.o\n"
    for factor, answer in (("5", "50\n"), ("7", "70\n")):
        (tmp_path / "blob" / "factor.h").write_text(f"#define FACTOR {factor}\n")
        assert build(lazyck, tmp_path, script).returncode == 0
        assert run_library(tmp_path / "libx.so", 1, 10).stdout == answer


def test_a_needed_symbol_of_a_blob_that_cannot_be_understood_is_an_error_with_suspects(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    write_project(tmp_path, [1, 2])
    (tmp_path / "blob" / "v2.cpp").write_text('#include "no_such_header.hpp"\n' + BLOB.format(n=2))
    done = build(lazyck, tmp_path, COMPILE + "c++ -shared -o libx.so dispatch.o v1.o v2.o\n")
    assert done.returncode == 1
    assert "_Z5twiceILi2EEii" in done.stderr
    assert "blob/v2.cpp" in done.stderr
    assert "no_such_header.hpp" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "libx.so").exists()


def test_a_weak_definition_in_a_dispatcher_keeps_the_call_where_it_was(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    with (tmp_path / "dispatch.cpp").open("a") as f:
        f.write(
            'extern "C" __attribute__((weak)) int weakly() { return 5; }\nextern "C" int ask() { return weakly(); }\n'
        )
    (tmp_path / "blob" / "v3.cpp").write_text('extern "C" int weakly() { return 6; }\n')
    done = build(lazyck, tmp_path, COMPILE + "c++ -shared -o libx.so dispatch.o v1.o v2.o v3.o\n")
    assert done.returncode == 0, done.stderr
    code = "import ctypes; print(ctypes.CDLL('./libx.so').ask())"
    called = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ)
    )
    # No object leaves the symbol undefined, so the blob is linked as an object. Its strong
    # definition wins, as it does without lazyck.
    assert called.stdout == "6\n", called.stderr


CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(p CXX)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() { return 0; }" WORKS)
if(NOT WORKS)
  message(FATAL_ERROR "try_compile does not work")
endif()
add_library(parts OBJECT blob/v1.cpp blob/v2.cpp)
set_property(TARGET parts PROPERTY POSITION_INDEPENDENT_CODE ON)
add_library(x SHARED dispatch.cpp $<TARGET_OBJECTS:parts>)
target_include_directories(parts PRIVATE .)
target_include_directories(x PRIVATE .)
"""


@pytest.mark.parametrize("generator", ["Unix Makefiles", "Ninja"])
def test_cmake_project(lazyck: Lazyck, tmp_path: Path, generator: str) -> None:
    if not shutil.which("cmake"):
        pytest.skip("needs cmake")
    write_project(tmp_path, [1, 2])
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    done = build(lazyck, tmp_path, f"cmake -G '{generator}' -S . -B out\ncmake --build out -j2\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 blobs deferred, 2 lazy with 2 symbols" in done.stderr
    assert [run_library(tmp_path / "out" / "libx.so", n, 10).stdout for n in (1, 2)] == ["21\n", "22\n"]


def test_make_project_with_depfiles_is_rebuilt_incrementally(lazyck: Lazyck, tmp_path: Path) -> None:
    write_project(tmp_path, [1, 2])
    (tmp_path / "Makefile").write_text(
        "OBJS = dispatch.o blob/v1.o blob/v2.o\nCXXFLAGS = -fPIC -I. -MMD -MP\n"
        "libx.so: $(OBJS)\n\t$(CXX) -shared -o $@ $^\n-include $(OBJS:.o=.d)\n"
    )
    assert build(lazyck, tmp_path, "make -j2\n").returncode == 0
    assert run_library(tmp_path / "libx.so", 2, 10).stdout == "22\n"
    (tmp_path / "blob" / "v2.cpp").write_text(BLOB.format(n=2).replace("x * 2", "x * 9"))
    again = build(lazyck, tmp_path, "make -j2\n")
    assert "dispatch.cpp" not in again.stdout
    assert run_library(tmp_path / "libx.so", 2, 10).stdout == "92\n"


@pytest.mark.parametrize("driver", ["c++", "nvcc"])
def test_a_link_command_that_is_too_long_for_one_exec(lazyck: Lazyck, tmp_path: Path, driver: str) -> None:
    if not shutil.which(driver):
        pytest.skip(f"needs {driver}")
    write_project(tmp_path, [1])
    long = "x" * 150
    given = "@args" if driver == "c++" else "-optf args"
    script = COMPILE + (
        f"mkdir -p d\nfor i in $(seq 700); do objcopy --redefine-sym run=run$i dispatch.o d/{long}$i.o; done\n"
        f"printf '%s\\n' d/*.o > args\n{driver} -shared -o libx.so dispatch.o v1.o {given}\n"
    )
    done = build(lazyck, tmp_path, script, *(["--toolchain", "cuda"] if driver == "nvcc" else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (next((tmp_path / "tmp" / "libs").glob("*/link.rsp"))).stat().st_size > 96 * 1024
    assert run_library(tmp_path / "libx.so", 1, 10).stdout == "21\n"
