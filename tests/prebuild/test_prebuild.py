"""Tests that `lazyck prebuild` fills the cache that the runtime reads."""

from pathlib import Path

import pytest
from support import Lazyck
from support.ops_library import Ops, build_ops


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ops")


@pytest.fixture
def ops(lazyck: Lazyck, shared: Path) -> Ops:
    project = shared / "my ops"
    if not project.exists():
        build_ops(lazyck, shared)
    return Ops(project, project / "build" / "libops.so", shared / "tmp", "")


def entries(cache: Path) -> dict[str, Path]:
    return {p.name.rpartition("-")[0]: p for p in (cache / "lazyck-cache").rglob("*.so")}


def test_a_prebuilt_blob_needs_no_compiler_at_run_time(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("prebuild", "build", "--manifest", ops.library, "special_d64_true")
    assert done.returncode == 0, done.stdout + done.stderr
    called = ops.call("print(special(64, 1))", {"LAZYCK_JIT": "off", "PATH": "/nonexistent"})
    assert (called.stdout, called.stderr) == ("644.0\n", "")


def test_blobs_are_named_in_every_way_freely_mixed(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    first = lazyck("prebuild", "build", "--manifest", ops.library, "plain")
    assert first.returncode == 0, first.stderr
    entry = entries(tmp_path)["plain"]
    entry.unlink()
    listing = tmp_path / "names"
    listing.write_text("# a comment\ninstance_int_2\n")
    done = lazyck(
        "prebuild", "build", "--manifest", ops.library, "special_d32_true", "special_d32_false.cpp",
        ops.project / "blob" / "c_plain.cpp", entry, "--blob-list", listing, "--blob-list", "-",
        stdin="instance_int_3\tcolumns after a tab are ignored\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(entries(tmp_path)) == [
        "c_plain", "instance_int_2", "instance_int_3", "plain", "special_d32_false", "special_d32_true",
    ]  # fmt: skip


def test_prebuild_compiles_also_where_jobs_may_not(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    done = lazyck("prebuild", "build", "--manifest", ops.library, "plain", env={"LAZYCK_JIT": "off"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(entries(tmp_path)) == ["plain"]


def test_unknown_names_are_all_listed(ops: Ops, lazyck: Lazyck) -> None:
    done = lazyck("prebuild", "build", "--manifest", ops.library, "plain", "nonsense", "no/such.cpp")
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "no/such.cpp" in done.stderr
    assert "plain\n" not in done.stderr


def test_list_says_what_is_cached_and_for_which_arch(ops: Ops, lazyck: Lazyck) -> None:
    assert lazyck("prebuild", "build", "--manifest", ops.library, "plain").returncode == 0
    done = lazyck("prebuild", "list", "--manifest", ops.library)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    assert len(rows) == 15
    assert rows["plain"] == "x86_64"
    assert rows["c_plain"] == "-"


def test_clean_removes_what_it_names_and_all_with_all(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    assert lazyck("prebuild", "build", "--manifest", ops.library, "plain", "c_plain").returncode == 0
    done = lazyck("prebuild", "clean", "--manifest", ops.library, "plain")
    assert "removed 1 " in done.stdout, done.stderr
    assert sorted(entries(tmp_path)) == ["c_plain"]
    assert "removed 1 " in lazyck("prebuild", "clean", "--manifest", ops.library, "--all").stdout
    assert not entries(tmp_path)


def test_a_failing_blob_does_not_stop_the_others(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    source = next(ops.tmp.glob("libs/*/bundle/libops/**/c_plain.cpp"))
    good = source.read_text()
    source.write_text("#error broken on purpose\n")
    try:
        done = lazyck("prebuild", "build", "--manifest", ops.library, "c_plain", "plain")
    finally:
        source.write_text(good)
    assert done.returncode == 1
    assert f"'{source}' was changed" in done.stdout + done.stderr
    assert sorted(entries(tmp_path)) == ["plain"]


def test_the_manifest_file_of_a_bundle_does_as_well_as_the_library(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    manifest = next(ops.tmp.glob("libs/*/bundle/libops/manifest"))
    done = lazyck("prebuild", "build", "--manifest", manifest, "special_d64_true")
    assert done.returncode == 0, done.stdout + done.stderr
    called = ops.call("print(special(64, 1))", {"LAZYCK_JIT": "off"})
    assert called.stdout == "644.0\n", called.stderr


def test_a_file_that_is_no_manifest_is_a_clear_error(ops: Ops, lazyck: Lazyck, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    for file in (tmp_path / "text", tmp_path / "missing", ops.project / "build" / "dispatch.o"):
        done = lazyck("prebuild", "list", "--manifest", file)
        assert done.returncode == 1
        assert str(file) in done.stderr
        assert "Traceback" not in done.stderr


def test_naming_nothing_is_a_usage_error(ops: Ops, lazyck: Lazyck) -> None:
    done = lazyck("prebuild", "build", "--manifest", ops.library)
    assert done.returncode == 2
    assert "--all" in done.stderr


def test_bad_values_name_their_variable(ops: Ops, lazyck: Lazyck) -> None:
    done = lazyck("prebuild", "build", "--manifest", ops.library, "plain", env={"LAZYCK_JOBS": "many"})
    assert done.returncode == 2
    assert "LAZYCK_JOBS" in done.stderr
