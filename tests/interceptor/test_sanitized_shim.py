"""Tests the shim under ASan and UBSan with the odd inputs of the other tests."""

# ruff: noqa: F401, F811
import shlex
import shutil
from pathlib import Path

import pytest
from support.command_forms import DEFERRED, PASSED
from support.include_forms import IS_COMPUTED, IS_INCLUDE, IS_NO_INCLUDE
from support.shim_project import Project, built_shim, clean_env, fake, make_project

from lazyck.errors import CommandError
from lazyck.interceptor import shims
from lazyck.interceptor.shims import build_shim

FLAGS = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_the_shim_compiles_without_a_warning(tmp_path: Path) -> None:
    assert build_shim(tmp_path, clean_env(), ("-Werror",)).exists()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_shim(tmp_path_factory.mktemp("sanitized"), clean_env(), FLAGS)
    except CommandError as e:
        pytest.skip(f"no sanitizers here: {e.output[-100:]}")


@pytest.fixture
def sanitized(fake: Project, program: Path) -> Project:
    for directory in fake.interception.bin_dirs:
        for conf in (Path(directory) / ".lazyck").iterdir():
            shutil.copy(program, Path(directory) / conf.stem)
    return fake


def test_no_memory_error_and_no_undefined_behaviour(sanitized: Project) -> None:
    sanitized.write("opts", "-DA='b c' \\\n")
    sanitized.write("odd.rsp", "-c 'blob/k.cpp' -o \"k.o\" \\")
    sanitized.write("open.rsp", "-c blob/k.cpp -o 'k.o")
    more = [
        "c++ @odd.rsp",
        "c++ @open.rsp",
        "c++ -MD -MT 'a b' -MQ '\\ $#' -c blob/k.cpp -o k.o",
        "c++ ''",
        "c++ - -",
        "c++ -c '' -o ''",
        "c++ -Wl,,, -l -L",
        "c++ -Wl,,a, -Lblob -lx -l:",
        "nvcc -optf ''",
        "nvcc -optf",
        "c++ @",
        "c++ -Wp,-MD,x.d,-MT,y -c blob/k.cpp -o k.o",
        "c++ -c ../../../../../../../x.cpp",
    ]
    (sanitized.dir / "k.o").write_text("")
    for line in [*(line for line, _ in PASSED), *DEFERRED, *more]:
        done = sanitized.run(*shlex.split(line), ASAN_OPTIONS="detect_leaks=0")
        assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, (line, done.stderr)
    sanitized.run("c++", "-c", "blob/k.cpp", "-o", "k.o", ASAN_OPTIONS="detect_leaks=0")
    whole = (sanitized.dir / "k.o").read_bytes()
    sanitized.ok("sh", "-c", "ar rcs k.a opts k.o && ar rcsT thin.a opts k.o", ASAN_OPTIONS="detect_leaks=0")
    archive, thin = (sanitized.dir / "k.a").read_bytes(), (sanitized.dir / "thin.a").read_bytes()
    unmarked = whole[:9] + bytes(7) + whole[16:]
    for data in (whole, unmarked, archive, thin):
        step = max(1, len(data) // 20)
        for size in range(0, len(data), step):
            # The inputs are cut short, or have offsets and sizes overwritten with nonsense.
            for mangled in (data[:size], data[:size] + b"\xff" * 8 + data[size + 8 :]):
                (sanitized.dir / "x.bin").write_bytes(mangled)
                done = sanitized.run("c++", "x.bin", ASAN_OPTIONS="detect_leaks=0")
                assert done.returncode == 0 and "Sanitizer" not in done.stderr, done.stderr


def test_no_memory_error_in_looking_for_headers(sanitized: Project) -> None:
    odd = [
        "#include",
        "#include ",
        '#include "',
        "#include <",
        "#",
        "\\",
        "#\\",
        '"\\',
        "'",
        'R"',
        'R"(',
        "/*",
        "/",
        "//\\",
        '#include "\\\n',
        '#include "../../../../../../x.h"',
        '#include "/x.h"',
        '#include "."',
        '#include "./"',
        '#include "x.h/"',
        '#include "' + "a/" * 3000 + '"',
        "\0" * 10,
        "%:",
        "#include_next <x.h>",
        'u8R"',
        "\ufeff",
    ]
    sanitized.write("blob/x.h", '#include "x.h"\n#include_next "x.h"\n#include "../blob/x.h"\n')
    env = {"ASAN_OPTIONS": "detect_leaks=0", "CPATH": ":::blob:/none/"}
    words = (
        "-I.",
        "-I",
        "",
        "-iquote",
        "./",
        "-isystem",
        "blob/../blob",
        "-include",
        "",
        "-include",
        "blob/x.h",
        "-MD",
    )
    for text in [*IS_INCLUDE, *IS_COMPUTED, *IS_NO_INCLUDE, *odd]:
        for ending in ("", "\n"):
            (sanitized.dir / "blob/k.cpp").write_bytes((text + ending).encode())
            done = sanitized.run("c++", *words, "-c", "blob/k.cpp", "-o", "k.o", **env)
            assert done.returncode == 0 and not done.stderr, (text, done.stderr)
    kept = next((sanitized.interception.log.parent / "headers").iterdir())
    whole = kept.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 60)):
        for mangled in (whole[:size], whole[:size] + b"\xff" * 8 + whole[size + 8 :]):
            kept.write_bytes(mangled)
            done = sanitized.run("c++", *words, "-c", "blob/k.cpp", "-o", "k.o", **env)
            assert done.returncode == 0 and not done.stderr, done.stderr


def test_no_memory_error_behind_the_launcher(sanitized: Project) -> None:
    launcher = sanitized.interception.bin_dirs[0] + "/lazyck-launch"
    fake = sanitized.dir.parent / "fake/bin"
    lines = [
        "",
        "''",
        "ccache",
        "ccache ''",
        "ccache ccache g++ -c blob/k.cpp -o k.o",
        "/",
        "./",
        "none",
        f"{fake}/g++",
        f"--defer '' {fake}/g++ -c blob/k.cpp -o new/dir/k.o",
        f"--defer k.o {fake}/g++ -c blob/k.cpp",
        "--defer",
        "--defer k.o",
        "--defer '' none blob/k.cpp",
        "--links",
        f"--links {fake}/nvcc -ccbin /x/g++ -c blob/k.cu -o k.o",
        f"{fake}/nvcc -ccbin / -c blob/k.cu -o k.o",
    ]
    for line in lines:
        done = sanitized.run(launcher, *shlex.split(line), ASAN_OPTIONS="detect_leaks=0")
        assert "Sanitizer" not in done.stderr and "runtime error" not in done.stderr, (line, done.stderr)


def test_the_shim_is_compiled_once_per_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shims, "_FLAGS", ("-O0",))
    env = clean_env() | {"XDG_CACHE_HOME": str(tmp_path / "home")}
    first = build_shim(tmp_path / "one", env).read_bytes()
    (kept,) = (tmp_path / "home/lazyck-tools/shim").iterdir()
    assert kept.read_bytes() == first
    kept.write_bytes(b"the one that is kept")
    assert build_shim(tmp_path / "two", env).read_bytes() == b"the one that is kept"
    (tmp_path / "home/lazyck-tools").rename(tmp_path / "somewhere")
    (tmp_path / "home/lazyck-tools").symlink_to(tmp_path / "somewhere")
    assert build_shim(tmp_path / "three", env).read_bytes() == first, "what may be anybody's is not run"
