"""Tests examples/aiter/attention_build.py under `lazyck build full` with a stand-in for aiter's
jit/core.py. examples/aiter has aiter itself."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import FAKE_ROCM, REPOSITORY, Lazyck
from support.ops_library import inspect

SCRIPT = REPOSITORY / "examples" / "aiter" / "attention_build.py"
BLOBS = "*/blob/*_d[0-9]*.cpp"
# This has the shape of aiter's own script, which only a checkout has.
COMPILE_PY = """
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
sys.path[:0] = [os.path.join(root, "aiter"), root]
from jit.core import compile_ops
assert os.environ["CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT"] == "3"
api = sys.argv[1].removeprefix("--api=")
def build(): ...
build.__name__ = f"compile_mha_{api}"
compile_ops(f"libmha_{api}")(build)()
"""


@pytest.fixture(autouse=True)
def path_with_hipcc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake `hipcc` first on PATH, since aiter runs the `hipcc` that PATH leads to."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(FAKE_ROCM / "bin"), os.environ["PATH"]]))


def make_archive(where: Path) -> Path:
    """Make those parts of an unpacked source archive that matter."""
    root = where / "aiter"
    jit = root / "aiter" / "jit"
    jit.mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests" / "projects" / "aiter" / "core.py", jit)
    for package in (root / "aiter", jit):
        (package / "__init__.py").write_text("")
    (jit / "optCompilerConfig.json").write_text(json.dumps({"libmha_fwd": {}, "libmha_bwd": {}}))
    return root


def make_checkout(where: Path) -> Path:
    root = make_archive(where)
    script = root / "op_tests" / "cpp" / "mha" / "compile.py"
    script.parent.mkdir(parents=True)
    script.write_text(COMPILE_PY)
    return root


def build(
    lazyck: Lazyck, aiter: Path, tmp: Path, *apis: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    words = ["build", "full", "--blobs", BLOBS, "--gpu-archs", "gfx942", "--tmp-dir", tmp, "--"]
    return lazyck(*words, sys.executable, SCRIPT, aiter, *apis, env=env, cwd=tmp.parent)


def call(library: Path, api: str, dim: int, x: float) -> str:
    """Call `mha_<api>` in a process of its own. Return its output, messages included."""
    code = (
        "import ctypes, sys; f = ctypes.CDLL(sys.argv[1])['mha_' + sys.argv[2]]; f.restype = ctypes.c_float; "
        "print(f(int(sys.argv[3]), ctypes.c_float(float(sys.argv[4]))))"
    )
    lib = subprocess.run([FAKE_ROCM / "bin" / "fake-rocm-build"], capture_output=True, text=True, check=True).stdout
    env = {**os.environ, "LD_LIBRARY_PATH": lib.strip()}
    argv = [sys.executable, "-c", code, str(library), api, str(dim), str(x)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def test_source_archive_is_built_through_core_py_side_by_side(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_archive(tmp_path)
    done = build(lazyck, aiter, tmp_path / "tmp")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("2 blobs deferred, 2 lazy with 2 symbols, 0 eager") == 2, done.stderr
    for api in ("fwd", "bwd"):
        library = aiter / "op_tests" / "cpp" / "mha" / f"libmha_{api}.so"
        assert call(library, api, 32, 1.5).startswith("48.0\n")
        assert call(library, api, 32, 1.5) == "48.0\n", "a second process compiles nothing"
        assert call(library, api, 64, 1.5).startswith("96.0\n"), "called through an address"
        assert call(library, api, 0, 2.5) == "80.0\n", "called through a table of addresses"


def test_checkout_is_built_by_its_own_script_with_archs_and_bf16_mode(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_checkout(tmp_path)
    env = {"CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT": "3"}
    done = build(lazyck, aiter, tmp_path / "tmp", "bwd", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("2 lazy with 2 symbols") == 1, done.stderr
    assert call(aiter / "op_tests" / "cpp" / "mha" / "libmha_bwd.so", "bwd", 64, 2).startswith("128.0\n")


def test_large_code_model_refers_to_stubs_through_64_bit_got_entries(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_archive(tmp_path)
    assert build(lazyck, aiter, tmp_path / "tmp").returncode == 0
    directory = aiter / "aiter" / "jit" / "build" / "libmha_fwd"
    shown = subprocess.run(["readelf", "-rW", directory / "fmha_fwd_api.cuda.o"], capture_output=True, text=True).stdout
    stubbed = {s for b in inspect(lazyck, directory / "libmha_fwd.so")["blobs"] for s in b["symbols"]}
    kinds = {m[1] for m in re.finditer(r"(R_X86_64_\w+)\s+[0-9a-f]+\s+(\S+)", shown) if m[2] in stubbed}
    assert "R_X86_64_GOT64" in kinds, shown
    left = subprocess.run(["ldd", "-r", directory / "libmha_fwd.so"], capture_output=True, text=True)
    assert "undefined symbol" not in left.stdout + left.stderr


def test_library_names_no_other_arch_than_the_builds_in_the_way_aiter_asks(lazyck: Lazyck, tmp_path: Path) -> None:
    """aiter rebuilds a library whose offload bundles name archs, but not the arch of the device."""
    aiter = make_archive(tmp_path)
    assert build(lazyck, aiter, tmp_path / "tmp").returncode == 0
    library = aiter / "op_tests" / "cpp" / "mha" / "libmha_fwd.so"
    assert set(re.findall(rb"amdhsa--(gfx[0-9a-z]+)", library.read_bytes())) <= {b"gfx942"}


def test_error_of_aiters_build_is_shown_as_it_is(lazyck: Lazyck, tmp_path: Path) -> None:
    done = build(lazyck, make_archive(tmp_path), tmp_path / "tmp", env={"BREAK": "bwd"})
    assert done.returncode == 1
    assert "[aiter] build [libmha_bwd] failed !!!!!!" in done.stderr
    assert "#error broken on purpose" in done.stderr
    assert "libmha_fwd: 2 blobs deferred" in done.stderr


def test_python_modules_that_aiters_build_misses_are_named_with_the_line_that_installs_them(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    absent = [m for m in ("pandas", "psutil") if importlib.util.find_spec(m) is None]
    if not absent:
        pytest.skip("pandas and psutil are both installed")
    aiter = make_archive(tmp_path)
    with (aiter / "aiter" / "jit" / "core.py").open("a") as f:
        f.write("def check():\n    import psutil\n    import pandas as pd\n    import json\n")
    done = build(lazyck, aiter, tmp_path / "tmp")
    assert done.returncode == 1
    assert f"aiter's build imports {', '.join(absent)}, which {sys.executable} lacks" in done.stderr
    assert f"-m pip install {' '.join(absent)}" in done.stderr


def test_missing_ninja_is_an_error_that_says_so(tmp_path: Path) -> None:
    argv: list[str | Path] = [sys.executable, SCRIPT, make_archive(tmp_path)]
    done = subprocess.run(argv, env={"PATH": str(FAKE_ROCM / "bin")}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "aiter's build runs `ninja`, which is not on PATH" in done.stderr


def test_lock_of_a_killed_build_is_named(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_archive(tmp_path)
    lock = aiter / "aiter" / "jit" / "build" / "lock_libmha_fwd"
    lock.parent.mkdir()
    lock.write_text("")
    done = build(lazyck, aiter, tmp_path / "tmp")
    assert done.returncode == 0, done.stderr
    assert f"warning: {lock} exists: aiter waits for the build that made it" in done.stdout


def test_another_directory_is_an_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = build(lazyck, tmp_path, tmp_path / "tmp")
    assert done.returncode == 1
    assert "aiter/jit/core.py is missing" in done.stderr


def test_an_archive_of_a_version_without_the_two_libraries_is_an_error(lazyck: Lazyck, tmp_path: Path) -> None:
    aiter = make_archive(tmp_path)
    (aiter / "aiter" / "jit" / "optCompilerConfig.json").write_text(json.dumps({"libmha_fwd": {}}))
    done = build(lazyck, aiter, tmp_path / "tmp")
    assert done.returncode == 1
    assert "neither op_tests/cpp/mha/compile.py nor libmha_bwd" in done.stderr
