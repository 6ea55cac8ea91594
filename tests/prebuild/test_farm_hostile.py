"""Tests workers and schedulers that send what runs code where it is unpickled: none of it runs in
the client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import REPOSITORY, running
from support.bundles import Bundle
from support.farm_cluster import Cluster, farm_bundle

pytest.importorskip("distributed", reason="needs lazyck[farm]")
pytestmark = pytest.mark.xdist_group("farm")

PRELOAD = ("--preload", str(REPOSITORY / "tests/support/hostile_dask.py"))
# After this time, dask stops its attempts to reconnect.
IMPATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}


def cluster_in(directory: Path) -> Cluster:
    (directory / "remote").mkdir(mode=0o700)
    return Cluster(directory, f"{directory}/remote|trusted", env=IMPATIENT)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run an honest scheduler for all hostile workers, one after the other."""
    with running(cluster_in(tmp_path_factory.mktemp("honest"))) as found:
        yield found


def evil(directory: Path, how: str) -> dict[str, str]:
    return {"HOSTILE": how, "HOSTILE_MARKER": str(directory / "ran")}


@contextmanager
def hostile_worker(directory: Path, cluster: Cluster, how: str) -> Iterator[Cluster]:
    """Add the only worker of `cluster`, which is hostile."""
    cluster.add(how, *PRELOAD, env=evil(directory, how))
    try:
        yield cluster
    finally:
        cluster.kill(how)


@contextmanager
def hostile_scheduler(directory: Path, how: str) -> Iterator[Cluster]:
    """Run a hostile scheduler and an honest worker."""
    cluster = cluster_in(directory)
    try:
        cluster.start(*PRELOAD, env=evil(directory, how))
        if how != "handshake":  # an honest worker would not survive it
            cluster.add("one")
        yield cluster
    finally:
        cluster.stop()


def one_blob(tmp_path: Path) -> Bundle:
    # The remote may have entries of other tests, so each test has a source of its own.
    return farm_bundle(tmp_path / "b", {"one": f'extern "C" int one() {{ return 1; }}  // of {tmp_path.name}\n'})


def build(bundle: Bundle, cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """Run `lazyck prebuild build` on the cluster. It must end within 150 s."""
    words = ["prebuild", "build", "--manifest", str(bundle.file), "--all", "--executor", cluster.url]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "LAZYCK_REMOTE": cluster.remote, **IMPATIENT}
    argv = [sys.executable, "-m", "lazyck", *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=150)


LOADS = "lazyck: error: the cluster sent a pickle that loads builtins.exec, which would have run code here: refused"
NO_PICKLE = "Data serialized with pickle but only able to deserialize data with ['msgpack', 'error']"
DONE = "lazyck: 1 entry: 1 compiled"


@pytest.mark.parametrize(
    ("who", "how", "said"),
    [
        ("worker", "error", LOADS), ("worker", "result", NO_PICKLE), ("worker", "type", LOADS),
        ("worker", "warning", DONE), ("worker", "broadcast", LOADS), ("scheduler", "handshake", LOADS),
        ("scheduler", "reply", LOADS), ("scheduler", "stream", LOADS), ("scheduler", "gather", NO_PICKLE),
    ],
    ids=lambda word: word[:10].replace(" ", "-"),
)  # fmt: skip
def test_nothing_that_a_cluster_sends_runs_in_the_client(
    tmp_path: Path, honest: Cluster, who: str, how: str, said: str
) -> None:
    bundle = one_blob(tmp_path)
    if who == "scheduler":
        bundle.slow.write_text("1")  # it sends what is hostile 0.5 s after the client's greeting
    with hostile_worker(tmp_path, honest, how) if who == "worker" else hostile_scheduler(tmp_path, how) as cluster:
        done = build(bundle, cluster)
    ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
    assert "prebuild build" not in ran, ran
    assert said in done.stderr, done.stderr
    assert done.returncode == (0 if said == DONE else 1)
    assert "Traceback" not in done.stderr, done.stderr


def test_what_workers_print_does_not_reach_the_terminal_as_it_came(tmp_path: Path) -> None:
    bundle = one_blob(tmp_path)
    bundle.slow.write_text("1")
    with hostile_scheduler(tmp_path, "terminal") as cluster:
        done = build(bundle, cluster)
    assert DONE in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
