"""Tests `lazyck prebuild build --executor` with real schedulers and workers of dask. Each worker
has a cache of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import HERE, REPOSITORY, Lazyck, running, wait_until
from support.bundles import Bundle, archive_sources, build, entries, sleeping
from support.farm_cluster import Cluster, farm_bundle

from lazyck import abi
from lazyck.formats.manifest import encode
from lazyck.prebuild.farm.parcel import parcel_files

pytest.importorskip("distributed", reason="needs lazyck[farm]")
pytestmark = pytest.mark.xdist_group("farm")

NAMES = [f"blob{i}" for i in range(6)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("farm")
    (directory / "remote").mkdir(mode=0o700)
    with running(Cluster(directory, f"{directory}/remote|trusted"), "one", "two") as found:
        yield found


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    # The remote also has entries of other tests, so each test has sources, and thus keys, of its
    # own.
    texts = {n: f'extern "C" int {n}() {{ return {i}; }}  // of {tmp_path.name}\n' for i, n in enumerate(NAMES)}
    return farm_bundle(tmp_path / "b b", texts)


def farm(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, *words: str | Path, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    own = {"LAZYCK_REMOTE": cluster.remote, **(env or {})}
    return build(lazyck, bundle, *words, "--executor", cluster.url, env=own)


def dynamic_symbols(path: Path) -> list[tuple[str, str, str]]:
    shown = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in shown.splitlines()]
    return sorted((r[3], r[4], r[7]) for r in rows if len(r) > 7 and r[0][:-1].isdigit())


def test_what_workers_compile_comes_back_and_is_what_a_local_build_makes(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    bundle.slow.write_text("0.2")
    done = farm(lazyck, cluster, bundle, "--all")
    assert (done["status"], done["compiled"], done["failed"]) == (0, 6, []), done["stderr"]
    made = entries(tmp_path / "lazyck-cache")
    assert sorted(made) == [f"x86_64/{n}" for n in NAMES] or HERE.name != "x86_64"
    assert cluster.entries("one") and cluster.entries("two")
    assert len(bundle.compiled()) == 6
    # The times that the farm's compiles took are known here.
    planned = lazyck("prebuild", "plan", "--manifest", bundle.file, "--all", "--from-scratch", "--workers", "2")
    assert "6 from what they took before" in planned.stdout
    local = tmp_path / "local"
    assert build(lazyck, bundle, "--all", env={"LAZYCK_CACHE_DIR": str(local)})["compiled"] == 6
    for name, path in entries(local).items():
        assert dynamic_symbols(made[name]) == dynamic_symbols(path)
    # The remote has everything, so a run on another machine compiles nothing.
    again = farm(lazyck, cluster, bundle, "--all", env={"LAZYCK_CACHE_DIR": str(tmp_path / "third")})
    assert (again["status"], again["compiled"]) == (0, 6)
    assert "6 of 6 entries were in the remote cache" in str(again["stderr"])
    assert len(bundle.compiled()) == 12


def test_a_deployed_bundle_travels_as_the_one_file_that_it_is(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    archive = archive_sources(bundle.directory / "lazyck", "libtiny")
    files = parcel_files(bundle.file, bundle.manifest, {})
    assert set(files.values()) == {bundle.file, archive}
    done = farm(lazyck, cluster, bundle, "--all")
    assert (done["status"], done["compiled"], done["failed"]) == (0, 6, []), done["stderr"]
    assert len(bundle.compiled()) == 6


CLANG = shutil.which("clang++-19") or shutil.which("clang++")


@pytest.mark.skipif(not CLANG, reason="needs clang++")
def test_blobs_of_a_worker_share_a_precompiled_preamble(lazyck: Lazyck, cluster: Cluster, tmp_path: Path) -> None:
    names = [f"part{i}" for i in range(12)]
    include = "#include <cstddef>\n#include <map>\n"
    texts = {n: f'{include}extern "C" int {n}() {{ return {i}; }}  // {tmp_path}\n' for i, n in enumerate(names)}
    bundle = farm_bundle(tmp_path / "b", texts, compiler=str(CLANG))
    done = farm(lazyck, cluster, bundle, "--all")
    assert (done["status"], done["compiled"]) == (0, 12), done["stderr"]
    logs = [p.with_suffix(".log").read_text() for p in entries(tmp_path / "lazyck-cache").values()]
    # Each worker makes a preamble, and each of its compiles uses it: with one thread, no compile
    # has to do without.
    assert sum("-include-pch" in log for log in logs) == 12, logs[0]


def test_a_blob_that_does_not_compile_is_reported_as_by_a_local_build(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    bundle.source("blob3").write_text("#error broken on purpose\n")
    done = farm(lazyck, cluster, bundle, "--all")
    assert (done["status"], done["compiled"]) == (1, 5)
    (failed,) = done["failed"]
    assert failed["blob"] == "blob3"
    assert "#error broken on purpose" in failed["error"]
    assert Path(failed["log"]).is_relative_to(tmp_path / "lazyck-cache")
    assert "broken on purpose" in Path(failed["log"]).read_text()
    assert len(bundle.compiled()) == 6  # nobody retries what the compiler refuses


def test_a_killed_worker_costs_its_blobs_only(lazyck: Lazyck, cluster: Cluster, bundle: Bundle) -> None:
    cluster.add("doomed")
    bundle.slow.write_text("1")
    process = subprocess.Popen(
        [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(bundle.file), "--all", "--json",
         "--executor", cluster.url],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_REMOTE": cluster.remote},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    doomed = cluster.directory / "doomed.cache"
    wait_until(lambda: list(doomed.glob(".staging/*")) and not list(doomed.glob("v1/*/*/*.so")))
    cluster.kill("doomed")
    out, err = process.communicate(timeout=120)
    done = json.loads(out)
    assert (process.returncode, done["compiled"], done["failed"]) == (0, 6, []), err
    assert err.count("lazyck: retry: ") == 1
    assert "went away" in err
    # All blobs but that of the killed worker were compiled once.
    assert len(bundle.compiled()) <= 7


def test_an_interruption_ends_the_compilers_of_the_workers(lazyck: Lazyck, cluster: Cluster, bundle: Bundle) -> None:
    bundle.slow.write_text("600.25")
    process = subprocess.Popen(
        [sys.executable, "-m", "lazyck", "prebuild", "build", "--manifest", str(bundle.file), "--all", "--json",
         "--executor", cluster.url],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_REMOTE": cluster.remote},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    spans = bundle.directory / "spans.log"
    wait_until(lambda: spans.exists() and spans.read_text().count("begin") == 2)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    done = json.loads(out)
    assert (process.returncode, done["interrupted"], done["compiled"], done["left"]) == (130, True, 0, 6), err
    wait_until(lambda: not sleeping("600.25"), 20)
    bundle.slow.unlink()
    again = farm(lazyck, cluster, bundle, "--all")
    assert (again["status"], again["compiled"]) == (0, 6), again["stderr"]


def test_a_worker_with_another_toolchain_is_refused_and_gets_nothing(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    """The recipe's compiler is below a home that each machine names by a variable."""
    (recipe,) = bundle.manifest.recipes
    homes = {name: tmp_path / name for name in ("right", "wrong")}
    for name, home in homes.items():
        home.mkdir()
        version = 'case "$*" in *--version*) echo "cc 99"; exit ;; esac\n' if name == "wrong" else ""
        (home / "cxx").write_text(f'#!/bin/sh\n{version}exec "{bundle.directory}/cxx" "$@"\n')
        (home / "cxx").chmod(0o755)
    compiler = f"{abi.PH_TOOLCHAIN}/cxx"
    own = replace(
        recipe, home="/nonexistent/toolchain", home_env=("TINY_HOME",), compile=(compiler, *recipe.compile[1:]),
        link=(compiler, *recipe.link[1:]),
    )  # fmt: skip
    bundle.file.write_bytes(encode(replace(bundle.manifest, recipes=(own,))))
    cluster.add("right", env={"TINY_HOME": str(homes["right"]), abi.TEST_UNRESTRICTED: "1"})
    cluster.add("wrong", env={"TINY_HOME": str(homes["wrong"])})
    try:
        done = farm(lazyck, cluster, bundle, "--all")
    finally:
        cluster.kill("right")
        cluster.kill("wrong")
    err = str(done["stderr"])
    assert (done["status"], done["compiled"]) == (0, 6), err
    assert len(cluster.entries("right")) >= 6
    assert cluster.entries("wrong") == []
    assert "its host toolchain is cc-" in err
    assert f"but the library's is {recipe.toolchain_id}" in err
    assert err.count("no host toolchain: /nonexistent/toolchain is not there") == 2  # for the two that have none


def test_entries_are_signed_by_the_worker_and_believed_by_its_key(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    public = make_key(tmp_path / "key")
    (tmp_path / "open").mkdir()
    remote = {"LAZYCK_REMOTE": str(tmp_path / "open")}  # this remote is not trusted
    refused = lazyck(
        "prebuild", "build", "--manifest", bundle.file, "--all", "--executor", cluster.url, env={**remote}
    )  # fmt: skip
    assert refused.returncode == 1
    assert "all workers of the cluster are refused" in refused.stderr
    assert "its entries cannot be shared" in refused.stderr
    cluster.add("signing", env={"LAZYCK_SIGN_KEY": str(tmp_path / "key")})
    try:
        done = farm(lazyck, cluster, bundle, "--all", env={**remote, "LAZYCK_TRUST": public})
    finally:
        cluster.kill("signing")
    assert (done["status"], done["compiled"]) == (0, 6), done["stderr"]
    assert len(cluster.entries("signing")) == 6


def make_key(path: Path) -> str:
    """Write a private key to `path`, and return the public key in the form that LAZYCK_TRUST
    takes."""
    import base64

    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    none = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none))
    path.chmod(0o600)
    raw = serialization.Encoding.Raw
    return base64.b64encode(key.public_key().public_bytes(raw, serialization.PublicFormat.Raw)).decode()


def test_what_is_missing_is_said_before_anything_is_done(lazyck: Lazyck, cluster: Cluster, bundle: Bundle) -> None:
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor")
    none = lazyck(*words, cluster.url)
    assert (none.returncode, "LAZYCK_REMOTE is not set" in none.stderr) == (2, True), none.stderr
    odd = lazyck(*words, "slurm://x", env={"LAZYCK_REMOTE": cluster.remote})
    assert (odd.returncode, "write dask://HOST:8786" in odd.stderr) == (2, True)
    nobody = lazyck(*words, "dask://127.0.0.1:1", env={"LAZYCK_REMOTE": cluster.remote})
    assert (nobody.returncode, "no scheduler answers there" in nobody.stderr) == (1, True), nobody.stderr
    assert bundle.compiled() == []
