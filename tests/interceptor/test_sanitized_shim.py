"""The shim under ASan and UBSan, over the odd inputs of the other tests."""

# ruff: noqa: F401, F811
from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from shim_project import Project, built_shim, clean_env, fake, make_project
from test_reasons import DEFERRED, PASSED

from lazyck.errors import CommandError
from lazyck.interceptor.shims import build_shim

FLAGS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_the_shim_compiles_without_a_warning(tmp_path: Path) -> None:
    assert build_shim(tmp_path, clean_env(), ("-Werror",)).exists()


@pytest.fixture
def sanitized(fake: Project, tmp_path: Path) -> Project:
    try:
        program = build_shim(tmp_path / "sanitized", clean_env(), FLAGS)
    except CommandError as e:
        pytest.skip(f"no sanitizers here: {e.output[-100:]}")
    for directory in fake.interception.bin_dirs:
        for conf in (Path(directory) / ".lazyck").iterdir():
            shutil.copy(program, Path(directory) / conf.stem)
    return fake


def test_no_memory_error_and_no_undefined_behaviour(sanitized: Project) -> None:
    sanitized.write("opts", "-DA='b c' \\\n")
    sanitized.write("odd.rsp", "-c 'blob/k.cpp' -o \"k.o\" \\")
    sanitized.write("open.rsp", "-c blob/k.cpp -o 'k.o")
    more = ["c++ @odd.rsp", "c++ @open.rsp", "c++ -MD -MT 'a b' -MQ '\\ $#' -c blob/k.cpp -o k.o", "c++ ''", "c++ - -",
            "c++ -c '' -o ''", "c++ -Wl,,, -l -L", "c++ -Wl,,a, -Lblob -lx -l:", "nvcc -optf ''", "nvcc -optf",
            "c++ @", "c++ -Wp,-MD,x.d,-MT,y -c blob/k.cpp -o k.o", "c++ -c ../../../../../../../x.cpp"]  # fmt: skip
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
            # cut short, and with bytes that are offsets or sizes set to nonsense
            for mangled in (data[:size], data[:size] + b"\xff" * 8 + data[size + 8 :]):
                (sanitized.dir / "x.bin").write_bytes(mangled)
                done = sanitized.run("c++", "x.bin", ASAN_OPTIONS="detect_leaks=0")
                assert done.returncode == 0 and "Sanitizer" not in done.stderr, done.stderr
