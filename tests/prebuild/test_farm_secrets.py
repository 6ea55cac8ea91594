"""Tests that secrets of the client's LAZYCK_REMOTE stay in the client."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Lazyck, running
from support.bundles import Bundle
from support.farm_cluster import Cluster, farm_bundle
from support.tap import serving_cache, tapped

from lazyck.errors import UsageError
from lazyck.prebuild.farm.messages import settings_for_workers

pytest.importorskip("distributed", reason="needs lazyck[farm]")
pytest.importorskip("requests", reason="needs lazyck[remote]")
pytestmark = pytest.mark.xdist_group("farm")

PASSWORD = "open-sesame-4711"
BASIC = "Basic " + base64.b64encode(f"builder:{PASSWORD}".encode()).decode()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(Cluster(tmp_path, "")) as found:
        yield found


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return farm_bundle(tmp_path / "b", ["one"])


def test_a_password_in_the_remotes_url_is_in_no_message_of_a_farm(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle
) -> None:
    with serving_cache(BASIC) as host, tapped(cluster.port) as tap:
        remote = f"http://builder:{PASSWORD}@{host}|trusted"
        cluster.add("one", env={"LAZYCK_REMOTE": remote}, port=tap.port)
        words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", f"dask://127.0.0.1:{tap.port}")
        done = lazyck(*words, env={"LAZYCK_REMOTE": remote})
    assert done.returncode == 0, done.stderr
    assert not tap.has(PASSWORD)
    assert b'"blob":"one"' in tap.seen  # orders pass through the tap
    assert f"LAZYCK_REMOTE has a password or token in its URL (http://{host}), and stays on this machine" in done.stderr
    assert PASSWORD not in done.stderr + cluster.log("one") + cluster.log("scheduler")


def test_a_worker_that_lacks_the_password_is_refused_before_it_compiles(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle
) -> None:
    cluster.add("one")
    with serving_cache(BASIC) as host:
        words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", cluster.url)
        done = lazyck(*words, env={"LAZYCK_REMOTE": f"http://builder:{PASSWORD}@{host}|trusted"})
    assert done.returncode == 1
    assert "its entries cannot be shared: LAZYCK_REMOTE there names no tier" in done.stderr
    assert "set LAZYCK_REMOTE in each worker's own environment, or name a file" in done.stderr
    assert bundle.compiled() == []


def test_a_file_with_the_token_is_named_to_workers_and_its_contents_stay(
    lazyck: Lazyck, cluster: Cluster, bundle: Bundle, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(PASSWORD)
    token.chmod(0o600)
    with serving_cache(f"Bearer {PASSWORD}") as host, tapped(cluster.port) as tap:
        cluster.add("one", port=tap.port)
        words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", f"dask://127.0.0.1:{tap.port}")
        done = lazyck(*words, env={"LAZYCK_REMOTE": f"http://{host}|trusted|token-file={token}"})
    assert done.returncode == 0, done.stderr
    assert tap.has(f"token-file={token}")
    assert not tap.has(PASSWORD)
    assert "stays on this machine" not in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pass@host/x", "https://token@host", "redis://:pass@host/0", "redis://host/0?password=pass",
        "http://host/x?sig=pass", "http://near,https://user:pass@far",
    ],
)  # fmt: skip
def test_a_url_with_a_secret_does_not_travel(url: str) -> None:
    settings, said = settings_for_workers({"LAZYCK_REMOTE": url, "LAZYCK_TRUST": "/keys", "LAZYCK_SIGN_KEY": "/key"})
    assert settings == {"LAZYCK_TRUST": "/keys"}
    assert "stays on this machine" in said
    assert "pass@" not in said and "token@" not in said and "=pass" not in said


@pytest.mark.parametrize(
    "url", ["http://host/x|trusted", "/shared/cache", "s3://b/p|endpoint=http://h:1", "redis://h/0|token-file=/t"]
)
def test_a_url_without_a_secret_travels(url: str) -> None:
    assert settings_for_workers({"LAZYCK_REMOTE": url}) == ({"LAZYCK_REMOTE": url}, "")


def test_a_url_that_cannot_be_read_is_an_error_without_it() -> None:
    with pytest.raises(UsageError) as e:
        settings_for_workers({"LAZYCK_REMOTE": f"http://u:{PASSWORD}@ho st/x"})
    assert PASSWORD not in e.value.render()
