"""Tests `lazyck prebuild build --output DIR`, which fills a cache to be shipped."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.bundles import Bundle, archive_sources, build, entries, make_bundle
from support.ops_library import build_ops


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "b", ["one", "two"], archs=["gfx942"])


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir())


def test_the_directory_holds_entries_and_nothing_else(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    out = tmp_path / "ship"
    done = build(lazyck, bundle, "--all", "--output", out, env={"LAZYCK_CACHE_PATH": "/nonexistent"})
    assert (done["status"], done["compiled"]) == (0, 2), done["stderr"]
    assert [p.name for p in out.iterdir()] == ["v1"]
    assert sorted(entries(out)) == ["gfx942/one", "gfx942/two"]
    assert all(name.endswith(".so") for name in files(out))
    assert not (tmp_path / "lazyck-cache" / "v1").exists()
    assert all(p.stat().st_mode & 0o777 == 0o700 for p in [out, *out.rglob("*")] if p.is_dir())


def test_an_unpacked_bundle_stays_only_for_what_failed(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    bundle.source("two").write_text("#error broken on purpose\n")
    archive_sources(bundle.directory / "lazyck", "libtiny")
    out = tmp_path / "ship"
    done = build(lazyck, bundle, "--all", "--output", out)
    assert (done["status"], done["compiled"]) == (1, 1), done["stderr"]
    (log,) = (Path(f["log"]).read_text() for f in done["failed"])
    (root,) = re.findall(r"ln -s (\S+) bundle", log)  # of the command that repeats the compile
    assert Path(root, "src", "two.cpp").is_file()
    done = build(lazyck, bundle, "one", "--output", out)
    assert (done["status"], done["cached"]) == (0, 1), done["stderr"]
    assert [p.name for p in out.iterdir()] == ["v1"]


def test_a_second_run_takes_what_is_there(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    out = tmp_path / "ship"
    build(lazyck, bundle, "one", "--output", out)
    done = build(lazyck, bundle, "--all", "--arch", "gfx942;gfx950", "--output", out)
    assert (done["status"], done["cached"], done["compiled"]) == (0, 1, 3), done["stderr"]
    assert all(name.endswith(".so") for name in files(out))


def test_logs_stay_if_asked_for_and_those_of_failures_always(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    bundle.source("two").write_text("#error broken on purpose\n")
    done = build(lazyck, bundle, "--all", "--output", tmp_path / "ship")
    assert done["status"] == 1
    logs = [n for n in files(tmp_path / "ship") if n.endswith(".log")]
    assert [str(tmp_path / "ship" / n) for n in logs] == [f["log"] for f in done["failed"]]
    build(lazyck, bundle, "one", "--output", tmp_path / "kept", "--keep-logs")
    assert sorted(Path(n).suffix for n in files(tmp_path / "kept")) == [".log", ".so"]
    assert lazyck("prebuild", "build", "--manifest", bundle.file, "one", "--keep-logs").returncode == 2


def test_two_at_once_fill_one_directory(bundle: Bundle, tmp_path: Path) -> None:
    bundle.slow.write_text("0.5")
    argv = [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(bundle.file), "--all"]
    argv += ["--output", str(tmp_path / "ship"), "--jobs", "2", "--arch"]
    both = [
        subprocess.Popen([*argv, arch], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
        for arch in ("gfx942", "gfx950")
    ]
    ends = [(p.communicate(timeout=120)[1], p.returncode) for p in both]
    assert [status for _, status in ends] == [0, 0], ends
    assert sorted(entries(tmp_path / "ship")) == ["gfx942/one", "gfx942/two", "gfx950/one", "gfx950/two"]
    assert all(name.endswith(".so") for name in files(tmp_path / "ship"))


def test_a_library_runs_from_it_without_a_compiler(lazyck: Lazyck, tmp_path: Path) -> None:
    ops = build_ops(lazyck, tmp_path)
    done = lazyck("prebuild", "build", "--manifest", ops.library, "--all", "--output", "ship", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    env = {"LAZYCK_JIT": "off", "PATH": "/nonexistent", "LAZYCK_CACHE_DIR": str(tmp_path / "ship")}
    called = ops.call("print(special(64, 1))", env)
    assert (called.stdout, called.stderr) == ("644.0\n", "")


def test_a_directory_that_cannot_be_made_is_a_clear_error(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--output", tmp_path / "file" / "ship")
    assert done.returncode == 1
    assert f"--output {tmp_path / 'file' / 'ship'}" in done.stderr
    assert "Traceback" not in done.stderr
