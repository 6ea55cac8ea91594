"""Tests `lazyck build quick`: it compiles only the runtime again, from a tmp dir that may have been
moved."""

import shutil
from pathlib import Path

from support import Lazyck
from support.changed_runtime import changed_runtime
from support.ops_library import build_ops, call


def test_quick_says_so_when_there_is_nothing_to_do(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    before = ops.library.stat().st_mtime_ns
    done = lazyck("build", "quick", "--tmp-dir", ops.tmp)
    assert done.returncode == 0, done.stderr
    assert "libops: nothing to do" in done.stdout
    assert ops.library.stat().st_mtime_ns == before


def test_quick_links_a_changed_runtime_and_reuses_everything_else(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    shutil.rmtree(ops.project / "blob")  # The project's sources and objects are not needed.
    for file in (ops.project / "build").glob("*.o"):
        file.unlink()
    env = {"LAZYCK_RUNTIME_SRC": str(changed_runtime(tmp_path))}
    done = lazyck("build", "quick", "--tmp-dir", ops.tmp, env=env)
    assert done.returncode == 0, done.stderr
    assert "linked again" in done.stdout
    called = ops.call("print(special(64, 1), lib.ops_table(3))")
    assert called.stdout == "644.0 4\n"
    assert "COMPILING AGAIN special_d64_true" in called.stderr
    again = lazyck("build", "quick", "--tmp-dir", ops.tmp, env=env)
    assert "nothing to do" in again.stdout


def test_tmp_dir_can_be_moved_and_the_project_deleted(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    moved = tmp_path / "elsewhere" / "kept"
    moved.parent.mkdir()
    ops.tmp.rename(moved)
    shutil.rmtree(ops.project)
    without = lazyck("build", "quick", "--tmp-dir", moved, env={"LAZYCK_RUNTIME_SRC": str(changed_runtime(tmp_path))})
    assert without.returncode == 1
    assert "--install-dir" in without.stderr
    done = lazyck("build", "quick", "--tmp-dir", moved, "--install-dir", tmp_path / "install")
    assert done.returncode == 0, done.stderr
    assert call(tmp_path / "install" / "libops.so", "print(special(32, 1))").stdout == "324.0\n"


def test_another_directory_is_a_clear_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("build", "quick", "--tmp-dir", tmp_path)
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert "build full" in done.stderr


def test_a_runtime_that_does_not_compile_leaves_the_library_as_it_was(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    runtime = changed_runtime(tmp_path)
    next(iter(sorted(runtime.rglob("*.cpp")))).write_text("#error broken on purpose\n")
    done = lazyck("build", "quick", "--tmp-dir", ops.tmp, env={"LAZYCK_RUNTIME_SRC": str(runtime)})
    assert done.returncode == 1
    assert "broken on purpose" in done.stderr
    assert ops.call("print(special(64, 0))").stdout == "640.0\n"
