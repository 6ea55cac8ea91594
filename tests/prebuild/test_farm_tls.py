"""Tests dask's TLS with the settings that dask itself reads: real schedulers, workers and
certificates."""

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Lazyck, running
from support.bundles import Bundle
from support.certificates import PREFIX, Pair, make_pair
from support.farm_cluster import Cluster, farm_bundle
from support.tap import tapped

from lazyck.prebuild.farm.cluster import is_in_the_open

pytest.importorskip("distributed", reason="needs lazyck[farm]")
pytest.importorskip("cryptography", reason="needs lazyck[farm]")
pytestmark = pytest.mark.xdist_group("farm")

OPEN = "is not encrypted: anyone on the network path can read and change orders and answers"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("tls") / "others")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ours: Pair) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("farm")
    (directory / "remote").mkdir(mode=0o700)
    env = {**ours.settings(), f"{PREFIX}REQUIRE_ENCRYPTION": "true"}
    with running(Cluster(directory, f"{directory}/remote|trusted", protocol="tls", env=env), "one") as found:
        yield found


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return farm_bundle(tmp_path / "b", {"one": f'extern "C" int one() {{ return 1; }}  // of {tmp_path.name}\n'})


def test_a_farm_with_tls_builds_and_nothing_of_it_can_be_read_on_the_way(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, ours: Pair
) -> None:
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor")
    env = {"LAZYCK_REMOTE": cluster.remote, **ours.settings()}
    with tapped(cluster.port) as tap:
        done = lazyck(*words, f"dask+tls://127.0.0.1:{tap.port}", env=env)
    assert done.returncode == 0, done.stderr
    assert "lazyck: 1 entry: 1 compiled" in done.stderr
    assert len(tap.seen) > 10_000
    assert b"lazyck" not in tap.seen


def test_a_client_is_refused_that_has_no_certificate_or_another_authoritys(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, ours: Pair, others: Pair
) -> None:
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", cluster.url)
    remote = {"LAZYCK_REMOTE": cluster.remote}
    none = lazyck(*words, env=remote)
    assert (none.returncode, "dask's configuration names no certificates" in none.stderr) == (2, True), none.stderr
    assert "ca-file, client.cert and client.key (`lazyck help scale`)" in none.stderr
    # Here the client trusts the scheduler, but the scheduler does not trust the client.
    foreign = lazyck(*words, env={**remote, **others.settings(authority=ours.certificate)})
    assert (foreign.returncode, "no scheduler answers there" in foreign.stderr) == (1, True), foreign.stderr
    # Here the scheduler trusts the client, but the client does not trust the scheduler.
    deceived = lazyck(*words, env={**remote, **ours.settings(authority=others.certificate)})
    assert (deceived.returncode, "certificate verify failed" in deceived.stderr) == (1, True), deceived.stderr
    for done in (none, foreign, deceived):
        assert "Traceback" not in done.stderr
    plain = lazyck(*words[:-1], cluster.url.replace("dask+tls", "dask"), env=remote)
    assert (plain.returncode, "no scheduler answers there" in plain.stderr) == (1, True), plain.stderr
    assert bundle.compiled() == []


def test_settings_that_do_not_fit_the_address_are_an_error_that_says_so(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, ours: Pair, tmp_path: Path
) -> None:
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor")
    env = {"LAZYCK_REMOTE": cluster.remote, **ours.settings()}
    open_address = cluster.url.replace("dask+tls", "dask")
    required = lazyck(*words, open_address, env={**env, f"{PREFIX}REQUIRE_ENCRYPTION": "true"})
    assert (required.returncode, f"write {cluster.url}\n" in required.stderr) == (2, True), required.stderr
    gone = lazyck(*words, cluster.url, env={**env, f"{PREFIX}TLS__CLIENT__CERT": str(tmp_path / "gone.pem")})
    assert (gone.returncode, "dask's TLS settings" in gone.stderr) == (2, True), gone.stderr


def own_address() -> str:
    """Return an address of this machine that is not loopback, or an empty string if there is
    none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("198.51.100.1", 9))  # this sends nothing
        except OSError:
            return ""
        address = str(s.getsockname()[0])
    return "" if ipaddress.ip_address(address).is_loopback else address


@pytest.mark.skipif(not own_address(), reason="this machine has no address but loopback")
@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_a_scheduler_elsewhere_without_tls_is_warned_of(
    lazyck: Lazyck, bundle: Bundle, tmp_path: Path, ours: Pair, protocol: str
) -> None:
    (tmp_path / "remote").mkdir(mode=0o700)
    env = ours.settings() if protocol == "tls" else {}
    found = Cluster(tmp_path, f"{tmp_path}/remote|trusted", host=own_address(), protocol=protocol, env=env)
    with running(found, "one") as cluster:
        words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", cluster.url)
        done = lazyck(*words, env={"LAZYCK_REMOTE": cluster.remote, **env})
    assert done.returncode == 0, done.stderr
    assert (OPEN in done.stderr) == (protocol == "tcp"), done.stderr
    assert ("use TLS and dask+tls:// (`lazyck help scale`)" in done.stderr) == (protocol == "tcp")


def test_loopback_is_not_on_anybodys_way(lazyck: Lazyck, cluster: Cluster, bundle: Bundle) -> None:
    assert not is_in_the_open("tcp://localhost:8786", "127.0.0.1")
    assert not is_in_the_open("tcp://h:8786", "::1")
    assert not is_in_the_open("tls://h:8786", "192.0.2.7")
    assert is_in_the_open("tcp://h:8786", "192.0.2.7")
    assert is_in_the_open("tcp://h:8786", "fe80::1%eth0")
