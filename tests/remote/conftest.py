"""Provide servers and keys that tests of remotes share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.driver import python_path
from support.servers import NGINX, REDIS, Hostile, Server, hostile_server, make_bucket, moto, nginx, redis, running

from lazyck.remote.sign import make_key

BACKENDS = [
    "directory",
    pytest.param("nginx", marks=pytest.mark.skipif(not NGINX, reason="no nginx (Debian: nginx-light)")),
    pytest.param("redis", marks=pytest.mark.skipif(not REDIS, reason="no redis-server (Debian: redis-server)")),
    "s3",
    "shelf",
]


@pytest.fixture(scope="session")
def nginx_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("requests", reason="no requests (pip install lazyck[remote])")
    with running(nginx(tmp_path_factory.mktemp("nginx") / "root")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("redis", reason="no redis (pip install lazyck[remote-redis])")
    with running(redis(tmp_path_factory.mktemp("redis") / "root")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("moto", reason="no moto (pip install lazyck[test])")
    with running(moto(tmp_path_factory.mktemp("s3") / "root")) as server:
        make_bucket(server.port)
        yield server


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Set credentials that moto accepts, and hide the user's own settings."""
    for name in ("NETRC", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a bucket of an object store that only fsspec knows."""
    pytest.importorskip("fsspec", reason="no fsspec (pip install lazyck[remote-s3])")
    from support.shelf import install

    for name in ("package", "bucket"):
        (tmp_path / name).mkdir()
    install(tmp_path / "package")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "package"), python_path()])))
    monkeypatch.setenv("SHELF_ROOT", str(tmp_path))
    return tmp_path / "bucket"


_count = 0


@pytest.fixture(params=BACKENDS)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty tier, one of each kind."""
    global _count
    _count += 1
    if request.param == "directory":
        (tmp_path / "shared").mkdir()
        return str(tmp_path / "shared")
    if request.param == "shelf":
        shelf: Path = request.getfixturevalue("shelf")
        return f"shelf://{shelf.name}/kernels"
    server: Server = request.getfixturevalue(f"{request.param}_server")
    if request.param == "redis":
        return server.url[:-1] + str(_count % 16)
    url, bar, rest = server.url.partition("|")
    return f"{url}/{_count}{bar}{rest}"


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with hostile_server() as server:
        yield server


@pytest.fixture
def key(tmp_path: Path) -> tuple[Path, str]:
    """Return the file of a private key, and the public key."""
    path = tmp_path / "key.pem"
    return path, make_key(path).public
