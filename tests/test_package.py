"""Tests the package as users install it."""

import subprocess
import sys
import zipfile
from pathlib import Path

from support import REPOSITORY, Lazyck


def test_wheel_is_pure_python_and_carries_the_sources_of_runtime_and_shim(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(REPOSITORY)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wheel = next(tmp_path.glob("lazyck-*.whl"))
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    files = (p for p in (REPOSITORY / "lazyck").rglob("*") if p.is_file())
    shipped = {p.relative_to(REPOSITORY).as_posix() for p in files}
    wanted = {n for n in shipped if not n.endswith(".pyc")}
    wanted |= {f"lazyck/docs/{page.name}" for page in (REPOSITORY / "docs").glob("*.md")}
    assert wanted <= set(names), sorted(wanted - set(names))
    assert not [n for n in names if n.endswith((".so", ".o")) or n.startswith(("tests", "examples"))]


def test_module_and_console_script_are_the_same_command(lazyck: Lazyck) -> None:
    version = lazyck("--version")
    assert version.returncode == 0
    script = subprocess.run([Path(sys.executable).parent / "lazyck", "--version"], capture_output=True, text=True)
    assert script.stdout == version.stdout


def test_usage_errors_end_with_status_2_and_no_traceback(lazyck: Lazyck) -> None:
    for words in (["build"], ["build", "full", "--nonsense"], ["prebuild", "list"], ["build", "quick"], ["nonsense"]):
        done = lazyck(*words)
        assert done.returncode == 2, words
        assert "Traceback" not in done.stderr


def test_an_unwritable_tmp_dir_is_a_clear_error(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "file" / "tmp", "--", "true")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_build_command_that_does_not_exist_is_named(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "tmp", "--", "no-such-build-tool", "all")
    assert done.returncode == 1
    assert "no-such-build-tool" in done.stderr
