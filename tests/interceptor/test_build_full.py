"""Tests `lazyck build full` on a small project: any build command, `c++`, and no option but
--blobs."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import FAKE_ROCM, REPOSITORY, Lazyck
from support.ops_library import Ops, build_ops, call, copy_project, inspect

from lazyck.postbuild.reasons import ReasonKind

SPECIAL = {(32, 0): 320.0, (32, 1): 324.0, (64, 0): 640.0, (64, 1): 644.0, (128, 0): 1280.0, (128, 1): 1284.0}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ops")


@pytest.fixture
def ops(lazyck: Lazyck, shared: Path) -> Ops:
    """Return one lazy build for the tests that only inspect it or call it."""
    done = shared / "tmp" / "report"
    if not done.exists():
        built = build_ops(lazyck, shared, "--explain-eager")
        done.write_text(built.report)
    project = shared / "my ops"
    return Ops(project, project / "build" / "libops.so", shared / "tmp", done.read_text())


def test_every_variant_computes_what_the_ahead_of_time_library_computes(ops: Ops, tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"
    subprocess.run([ops.project / "build.sh"], env={**os.environ, "OUT": str(ahead)}, check=True)
    code = """
        for dim in (32, 64, 128):
            for masked in (0, 1):
                print(dim, masked, special(dim, masked))
        for kind in ("float", "double", "int"):
            for scale in (2, 3):
                print(kind, scale, instance(kind, scale))
        print(name(), plain(4), lib.ops_table(2), lib.ops_registered(), lib.ops_same_address())
    """
    lazy, reference = ops.call(code), call(ahead / "libops.so", code)
    assert reference.returncode == 0, reference.stderr
    assert lazy.stdout == reference.stdout, lazy.stderr
    assert f"64 1 {SPECIAL[64, 1]}" in lazy.stdout


def test_only_the_blobs_that_are_called_are_compiled(ops: Ops, tmp_path: Path) -> None:
    done = ops.call("print(special(64, 1)); print(special(64, 1)); print(instance('int', 3))")
    assert done.stdout.split() == ["644.0", "644.0", "30.0"], done.stderr
    compiled = sorted(p.name.rpartition("-")[0] for p in (tmp_path / "lazyck-cache").rglob("*.so"))
    assert compiled == ["instance_int_3", "special_d64_true"]


def test_a_second_process_starts_no_compiler(ops: Ops) -> None:
    first = ops.call("print(special(32, 0))")
    second = ops.call("print(special(32, 0))", {"PATH": "/nonexistent"})
    assert "compiling special_d32_false" in first.stderr
    assert (second.stdout, second.stderr) == ("320.0\n", "")


def test_summary_counts_blobs_symbols_and_gives_each_eager_blob_its_reason(ops: Ops) -> None:
    assert "17 blobs deferred, 15 lazy with 21 symbols, 2 eager" in ops.report, ops.report
    assert "blob/data.cpp defines data that other files can use: table\n" in ops.report
    assert "blob/registrar.cpp has code that runs when the library is loaded: registrar at registrar.cpp:" in ops.report
    assert "1 lazy blob is needed by nothing in this link" in ops.report
    assert "probe" in ops.report
    assert "link" in ops.report


def test_explain_eager_says_of_each_library_what_to_change(ops: Ops, lazyck: Lazyck) -> None:
    told = ops.report.partition("libops:\n1 source ")[2]
    assert ReasonKind.DATA.advice[:60] in told and ReasonKind.INITIALIZER.advice[:60] in told
    hint = next(line for line in ops.report.splitlines() if "what to change" in line).partition("lazyck inspect ")[2]
    assert f"1 source {told}" == lazyck("inspect", *shlex.split(hint)).stdout


def test_inspect_shows_blobs_symbols_and_commands(ops: Ops, lazyck: Lazyck) -> None:
    found = inspect(lazyck, ops.library)
    blobs = {b["name"]: b for b in found["blobs"]}
    assert blobs["special_d64_true"]["symbols"] == ["_Z11run_specialI6TraitsILi64ELb1EEEfRK4Args"]
    assert blobs["c_plain"]["symbols"] == ["c_plain"]
    assert sorted(blobs["instance_float_2"]["symbols"]) == [
        "_Z12run_instanceIfLi2EET_PKS0_i",
        "_Z7name_ofIfLi2EENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEv",
    ]
    assert found["file_name"] == "libops.so"
    assert [Path(e["source"]).stem for e in found["eager"]] == ["data", "registrar"]
    text = lazyck("inspect", "--all", ops.library).stdout
    assert "{source}" in text
    assert "special_d64_true" in text


def test_library_gets_no_soname_and_leaves_nothing_of_its_own_undefined(ops: Ops) -> None:
    dynamic = subprocess.run(["readelf", "-d", ops.library], capture_output=True, text=True, check=True).stdout
    assert "SONAME" not in dynamic
    unresolved = subprocess.run(["ldd", "-r", ops.library], capture_output=True, text=True)
    assert "undefined symbol" not in unresolved.stdout + unresolved.stderr


def test_status_of_the_build_command_is_the_status_of_build_full(lazyck: Lazyck, tmp_path: Path) -> None:
    words = ("build", "full", "--tmp-dir", tmp_path / "tmp", "--", "sh", "-c", "exit 37")
    assert lazyck(*words).returncode == 37
    heedless = ["env", "--ignore-signal=CHLD", sys.executable, "-m", "lazyck"]
    assert subprocess.run([*heedless, *words], env=dict(os.environ, PYTHONPATH=str(REPOSITORY))).returncode == 37


def test_the_projects_own_compile_error_shows_and_stops_the_build(lazyck: Lazyck, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    (project / "dispatch.cpp").write_text("int broken( {\n")
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh")
    assert done.returncode == 1
    assert "dispatch.cpp:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_blob_that_does_not_compile_hurts_only_its_callers(lazyck: Lazyck, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    blob = project / "blob" / "special_d64_true.cpp"
    blob.write_text(blob.read_text().replace("float sum = 0;", "no_such_type sum = 0;"))
    done = lazyck("build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", project / "build.sh")
    assert done.returncode == 0, done.stderr
    called = call(
        project / "build" / "libops.so", "print(special(64, 0)); r, why = failing(64, 1); print(r); print(why)"
    )
    assert called.returncode == 0, called.stderr
    lines = called.stdout.splitlines()
    assert lines[:2] == ["640.0", "-2.0"]
    assert "special_d64_true" in called.stdout
    assert "no_such_type" in called.stdout
    logs = list((tmp_path / "lazyck-cache").rglob("special_d64_true*.log"))
    assert logs
    assert "no_such_type" in logs[0].read_text()


def test_installed_tree_works_after_it_was_moved_and_the_build_tree_deleted(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path, "--install-dir", str(tmp_path / "install"))
    assert sorted(p.name for p in (tmp_path / "install").iterdir()) == ["lazyck", "libops.so"]
    (tmp_path / "install").rename(tmp_path / "moved here")
    shutil.rmtree(ops.project)
    shutil.rmtree(ops.tmp)
    done = call(tmp_path / "moved here" / "libops.so", "print(special(128, 1)); print(name())")
    assert done.stdout.splitlines() == ["1284.0", "scale 2 of 4 bytes"], done.stderr


def test_two_libraries_of_one_name_do_not_overwrite_each_other_in_the_install_dir(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    project = copy_project(tmp_path)
    install = tmp_path / "install"
    options = ("--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--install-dir", install)
    build = "OUT=first ./build.sh && OUT=second ./build.sh"
    done = lazyck("build", "full", *options, "--", "sh", "-c", build, cwd=project)
    assert done.returncode != 0
    assert f"{install}/libops.so: two libraries of this build would be installed there" in done.stderr
    assert f"{project}/first/libops.so and {project}/second/libops.so" in done.stderr
    assert "build without --install-dir" in done.stderr
    assert call(install / "libops.so", "print(special(128, 1))").stdout.splitlines() == ["1284.0"]


def test_bundle_holds_the_sources_and_the_reached_headers_and_no_system_header(ops: Ops) -> None:
    bundles = list(ops.tmp.glob("libs/*/bundle/libops"))
    assert len(bundles) == 1
    names = sorted(p.name for p in bundles[0].rglob("*") if p.is_file())
    assert "manifest" in names
    assert [n for n in names if n.endswith(".hpp")] == ["ops.hpp", "ops_impl.hpp"]
    assert len([n for n in names if n.endswith(".cpp")]) == 15


def test_no_build_command_is_a_usage_error(lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("build", "full", "--tmp-dir", tmp_path / "tmp")
    assert done.returncode == 2
    assert "--" in done.stderr


def test_a_deferred_object_that_no_link_takes_is_reported(lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "blob").mkdir()
    source = tmp_path / "blob" / "lonely.cpp"
    source.write_text("int lonely() { return 1; }\n")
    words = ["c++", "-c", str(source), "-o", str(tmp_path / "lonely.o")]
    done = lazyck("build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp", "--", *words)
    assert done.returncode == 0
    assert "1 deferred object was taken by no link" in done.stderr
    assert "lonely.o" in done.stderr


def test_a_build_in_which_nothing_is_lazy_says_why(lazyck: Lazyck, tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    words = ["build", "full", "--toolchain", "host", "--tmp-dir", tmp_path / "tmp"]
    pattern = lazyck(*words, "--blobs", "*/kernels/*", "--", project / "build.sh")
    assert pattern.returncode == 0
    assert "no compile matched --blobs */kernels/*" in pattern.stderr
    assert "not-a-blob" in pattern.stderr
    silent = lazyck(*words, "--", "true")
    assert "called no compiler" in silent.stderr


def test_name_is_the_name_of_the_cache_directory(
    lazyck: Lazyck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = build_ops(lazyck, tmp_path, "--name", "mykernels")
    monkeypatch.delenv("LAZYCK_CACHE_DIR")
    assert ops.call("special(32, 0)", {"XDG_CACHE_HOME": str(tmp_path / "xdg")}).returncode == 0
    assert [p.name for p in (tmp_path / "xdg").iterdir()] == ["mykernels"]
    assert ops.call("special(32, 0)", {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""}).returncode == 0
    assert list((tmp_path / "home" / ".cache" / "mykernels" / "v1" / "libops").rglob("special_d32_false*.so"))
    other = {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "LAZYCK_NAME": "othername"}
    assert ops.call("special(32, 0)", other).returncode == 0
    assert (tmp_path / "xdg" / "othername").is_dir()


def test_root_is_where_the_deployed_bundle_is_found(lazyck: Lazyck, tmp_path: Path) -> None:
    root = tmp_path / "share" / "kernel sources"
    ops = build_ops(lazyck, tmp_path, "--install-dir", str(tmp_path / "install"), "--root", str(root))
    root.parent.mkdir()
    (tmp_path / "install" / "lazyck").rename(root)
    shutil.rmtree(ops.project)
    shutil.rmtree(ops.tmp)
    library = tmp_path / "install" / "libops.so"
    assert call(library, "print(special(32, 0))").stdout == "320.0\n"
    root.rename(tmp_path / "gone")
    missing = call(library, "print(failing(64, 0)[1])")
    assert "LAZYCK_ROOT" in missing.stdout
    found = call(library, "print(special(64, 0))", {"LAZYCK_ROOT": str(tmp_path / "gone")})
    assert found.stdout == "640.0\n", found.stderr


def test_archs_that_no_toolchain_knows_are_a_usage_error(lazyck: Lazyck, tmp_path: Path) -> None:
    words = ["build", "full", "--tmp-dir", tmp_path / "tmp", "--gpu-archs", "pentium"]
    done = lazyck(*words, "--", "true", env={"ROCM_PATH": str(FAKE_ROCM)})
    assert done.returncode == 2
    assert "pentium" in done.stderr


def test_a_library_whose_blobs_are_all_compiled_by_the_real_compiler_is_installed(
    lazyck: Lazyck, tmp_path: Path
) -> None:
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob/k.c").write_text("int k(void) { return 3; }\n")
    (tmp_path / "other.c").write_text("int other(void) { return 4; }\n")
    script = (
        "cc -fPIC -save-temps -c blob/k.c -o k.o; cc -fPIC -c other.c -o other.o; "
        "cc -shared ./k.o -o libk.so; cc -shared other.o -o libother.so"
    )
    words = ("--toolchain", "host", "--blobs", "*/blob/*", "--install-dir", "install", "--", "sh", "-ec", script)
    done = lazyck("build", "full", *words, cwd=tmp_path)
    assert done.returncode == 0 and "other-output: k.c" in done.stderr, done.stderr
    assert [p.name for p in (tmp_path / "install").iterdir()] == ["libk.so"]
