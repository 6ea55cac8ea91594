"""Tests workers and schedulers that send what runs code where it is unpickled: none of it runs in
the client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bundles import Bundle
from farm_cluster import Cluster, farm_bundle
from support import REPOSITORY

pytest.importorskip("distributed", reason="needs lazyck[farm]")
pytestmark = pytest.mark.xdist_group("farm")

PRELOAD = ("--preload", str(Path(__file__).with_name("hostile_dask.py")))
# After this time, dask stops its attempts to reconnect.
IMPATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}


@contextmanager
def hostile(directory: Path, who: str, how: str) -> Iterator[Cluster]:
    """Run a scheduler and a worker, one of which is hostile."""
    (directory / "remote").mkdir(mode=0o700)
    cluster = Cluster(directory, f"{directory}/remote|trusted", env=IMPATIENT)
    evil = {"HOSTILE": how, "HOSTILE_MARKER": str(directory / "ran")}
    try:
        cluster.start(*(PRELOAD if who == "scheduler" else ()), env=evil)
        if how != "handshake":  # an honest worker would not survive it
            cluster.add("one", *(PRELOAD if who == "worker" else ()), env=evil)
        yield cluster
    finally:
        cluster.stop()


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
def test_nothing_that_a_cluster_sends_runs_in_the_client(tmp_path: Path, who: str, how: str, said: str) -> None:
    bundle = farm_bundle(tmp_path / "b", ["one"])
    bundle.slow.write_text("1")
    with hostile(tmp_path, who, how) as cluster:
        done = build(bundle, cluster)
    ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
    assert "prebuild build" not in ran, ran
    assert said in done.stderr, done.stderr
    assert done.returncode == (0 if said == DONE else 1)
    assert "Traceback" not in done.stderr, done.stderr


def test_what_workers_print_does_not_reach_the_terminal_as_it_came(tmp_path: Path) -> None:
    bundle = farm_bundle(tmp_path / "b", ["one"])
    bundle.slow.write_text("1")
    with hostile(tmp_path, "scheduler", "terminal") as cluster:
        done = build(bundle, cluster)
    assert DONE in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
