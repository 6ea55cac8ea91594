"""Tests `lazyck prebuild build --executor grpc://…` with BuildGrid and workers of our own."""

import subprocess
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support import HERE, Lazyck
from support.buildgrid_server import BuildGrid
from support.bundles import Bundle, archive_sources, build, entries
from support.farm_cluster import farm_bundle

from lazyck.toolchains.identity import identity_of, mark_of

pytestmark = pytest.mark.xdist_group("reapi")

NAMES = [f"blob{i}" for i in range(4)]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    # The service keeps results of other tests, so each test has sources, and thus keys, of its own.
    texts = {n: f'extern "C" int {n}() {{ return {i}; }}  // of {tmp_path.name}\n' for i, n in enumerate(NAMES)}
    return farm_bundle(tmp_path / "b b", texts)


def service(lazyck: Lazyck, url: str, bundle: Bundle, *words: str | Path, cache: Path | None = None) -> dict[str, Any]:
    env = {"LAZYCK_CACHE_DIR": str(cache)} if cache else None
    return build(lazyck, bundle, *words, "--executor", url, env=env)


def test_what_a_service_compiles_is_what_a_local_build_makes(
    lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle, tmp_path: Path
) -> None:
    done = service(lazyck, buildgrid.url, bundle, "--all")
    assert (done["status"], done["compiled"], done["failed"]) == (0, 4, []), done["stderr"]
    made = entries(tmp_path / "lazyck-cache")
    assert {p.rpartition("/")[2] for p in made} == set(NAMES)
    assert len(bundle.compiled()) == 4
    # The times of the service's compiles are known here.
    planned = lazyck("prebuild", "plan", "--manifest", bundle.file, "--all", "--from-scratch", "--workers", "2")
    assert "4 from what they took before" in planned.stdout
    local = tmp_path / "local"
    assert build(lazyck, bundle, "--all", env={"LAZYCK_CACHE_DIR": str(local)})["compiled"] == 4
    for name, path in entries(local).items():
        assert dynamic_symbols(made[name]) == dynamic_symbols(path)
        assert made[name].with_suffix(".log").is_file()
    # Another machine gets the results that the service has kept.
    again = service(lazyck, buildgrid.url, bundle, "--all", cache=tmp_path / "third")
    assert (again["status"], again["compiled"]) == (0, 4)
    assert len(bundle.compiled()) == 8


def dynamic_symbols(path: Path) -> list[tuple[str, str, str]]:
    shown = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in shown.splitlines()]
    return sorted((r[3], r[4], r[7]) for r in rows if len(r) > 7 and r[0][:-1].isdigit())


def test_a_deployed_bundle_is_compiled_from_its_archive(lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle) -> None:
    archive_sources(bundle.directory / "lazyck", "libtiny")
    done = service(lazyck, buildgrid.url, bundle, "--all")
    assert (done["status"], done["compiled"], done["failed"]) == (0, 4, []), done["stderr"]


def test_a_blob_that_does_not_compile_is_reported_as_by_a_local_build(
    lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle, tmp_path: Path
) -> None:
    bundle.source("blob3").write_text("#error broken on purpose\n")
    done = service(lazyck, buildgrid.url, bundle, "--all")
    assert (done["status"], done["compiled"]) == (1, 3)
    (failed,) = done["failed"]
    assert failed["blob"] == "blob3"
    assert "#error broken on purpose" in failed["error"]
    assert Path(failed["log"]).is_relative_to(tmp_path / "lazyck-cache")
    assert "broken on purpose" in Path(failed["log"]).read_text()
    assert len(bundle.compiled()) == 4  # nobody retries what the compiler refuses


def test_a_worker_with_another_compiler_makes_nothing(lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle) -> None:
    script = bundle.directory / "cxx"
    text = script.read_text()
    script.write_text(
        text.replace("#!/bin/sh\n", '#!/bin/sh\n[ "$1" = --version ] && exec echo "clang version 99.1"\n')
    )
    done = service(lazyck, buildgrid.url, bundle, "blob0")
    (failed,) = done["failed"]
    (recipe,) = bundle.manifest.recipes
    other = identity_of("clang version 99.1\n", (mark_of(HERE.cxx, None),))
    assert f"is {other}, but the library was built with {recipe.toolchain_id}" in failed["error"]
    assert not bundle.compiled()


def test_a_killed_worker_costs_its_action_only(lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle) -> None:
    bundle.slow.write_text("2")
    buildgrid.add("doomed")
    done: dict[str, Any] = {}
    running = Thread(target=lambda: done.update(service(lazyck, buildgrid.url, bundle, "--all")))
    running.start()
    buildgrid.wait_for("doomed", "^begin")
    buildgrid.kill("doomed")
    running.join(timeout=120)
    assert (done["status"], done["compiled"], done["failed"]) == (0, 4, []), done["stderr"]
    assert len(bundle.compiled()) == 4


def test_workers_that_cannot_store_their_outputs_are_a_failure_after_three_tries(
    lazyck: Lazyck, tmp_path: Path, buildgrid: BuildGrid, bundle: Bundle
) -> None:
    (tmp_path / "full").mkdir()
    full = BuildGrid(buildgrid.home, tmp_path / "full")
    try:
        full.start().add("full", fault=8)
        done = service(lazyck, full.url, bundle, "blob0")
    finally:
        full.stop()
    (failed,) = done["failed"]
    assert failed["error"].startswith("gave up after 3 tries: grpc://127.0.0.1")
    assert "RESOURCE_EXHAUSTED" in failed["error"]


def test_a_service_that_is_not_called_trusted_is_refused(lazyck: Lazyck, bundle: Bundle) -> None:
    done = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", "grpc://127.0.0.1:1")
    assert done.returncode == 2
    assert "'grpc://127.0.0.1:1|trusted'" in done.stderr
