"""Tests that each file in `examples/deploy` is accepted by the program that it is for, if that
program is installed."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from support import REPOSITORY, wait_until
from support.certificates import make_pair
from support.farm_cluster import farm_bundle
from support.servers import is_open

DEPLOY = REPOSITORY / "examples" / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def test_every_file_is_looked_at_here() -> None:
    known = {"nginx.conf", "nginx-rack.conf", "redis.conf", "kubernetes-cache.yaml", "kubernetes-farm.yaml"}
    known |= {"slurm_farm.py", "slurm_farm.sh"}
    known |= {"prometheus-rules.yaml", "grafana-lazyck.json"}  # tests/cache/test_cache_metrics.py tests these
    assert {p.name for p in DEPLOY.iterdir() if p.is_file()} == known


def moved(text: str, directory: Path) -> Path:
    """Write a configuration whose directories are in `directory`, and return its path."""
    for place in ("/srv/lazyck-rack", "/srv/lazyck", "/var/log/nginx", "/run"):
        text = text.replace(f"{place} ", f"{directory}/rack ").replace(f"{place}/", f"{directory}/")
    for name in ("cache", "uploads", "rack"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "moved.conf").write_text(text)
    return directory / "moved.conf"


def check_nginx(text: str, directory: Path) -> None:
    argv = [str(NGINX), "-t", "-c", str(moved(text, directory)), "-e", str(directory / "log")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextmanager
def serving(text: str, directory: Path) -> Iterator[int]:
    """Run nginx with a configuration, and yield its port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = int(s.getsockname()[1])
    user = "user root;\n" if os.getuid() == 0 else ""
    text = f"daemon off;\n{user}{text}".replace("listen 8080", f"listen 127.0.0.1:{port}")
    text = text.replace("access_log off;", f"access_log {directory}/access;")
    argv = [str(NGINX), "-c", str(moved(text, directory)), "-e", str(directory / "log")]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_open(port), process=process, said=(directory / "log").read_text)
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(not NGINX, reason="needs nginx")
def test_a_racks_nginx_fetches_contents_once_and_asks_for_records_each_time(tmp_path: Path) -> None:
    common = (DEPLOY / "nginx.conf").read_text()
    rack = (DEPLOY / "nginx-rack.conf").read_text()
    contents, record = f"cas/{'a' * 64}", f"ac/{'b' * 64}"
    with (
        serving(common, tmp_path / "common") as far,
        serving(rack.replace("cache:8080", f"127.0.0.1:{far}"), tmp_path / "rack") as near,
    ):
        base = f"http://127.0.0.1:{near}"
        assert requests.get(f"{base}/{contents}").status_code == 404
        assert requests.put(f"{base}/{contents}", data=b"x" * 200_000).status_code == 201
        with ThreadPoolExecutor(8) as pool:
            sizes = list(pool.map(lambda _: len(requests.get(f"{base}/{contents}").content), range(8)))
        assert sizes == [200_000] * 8
        for text in (b"one", b"other"):
            assert requests.put(f"{base}/{record}", data=text).status_code in (201, 204)
            assert requests.get(f"{base}/{record}").content == text
        assert requests.put(f"{base}/elsewhere", data=b"x").status_code == 404
    asked = (tmp_path / "common" / "access").read_text()
    assert asked.count(f'"GET /{contents}') == 2  # once for the miss, and once since
    assert asked.count(f'"GET /{record}') == 2


@pytest.mark.skipif(not NGINX, reason="needs nginx")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    check_nginx((DEPLOY / "nginx.conf").read_text(), tmp_path)
    check_nginx((DEPLOY / "nginx-rack.conf").read_text().replace("cache:8080", "127.0.0.1:1"), tmp_path)


@pytest.mark.skipif(not NGINX, reason="needs nginx")
def test_nginx_takes_what_kubernetes_gives_it(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    texts = list(yaml.safe_load_all((DEPLOY / "kubernetes-cache.yaml").read_text()))
    conf = texts[0]["data"]["default.conf"]
    check_nginx(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{conf}\n}}\n", tmp_path)


def test_kubernetes_objects_refer_to_each_other() -> None:
    yaml = pytest.importorskip("yaml")
    objects = {o["kind"]: o for o in yaml.safe_load_all((DEPLOY / "kubernetes-cache.yaml").read_text())}
    assert set(objects) == {"ConfigMap", "PersistentVolumeClaim", "Deployment", "Service"}
    pod = objects["Deployment"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert objects["Service"]["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert {p["targetPort"] for p in objects["Service"]["spec"]["ports"]} == {p["name"] for p in container["ports"]}
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    assert {m["name"] for m in container["volumeMounts"]} <= set(volumes)
    assert volumes["conf"]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    name = objects["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["disk"]["persistentVolumeClaim"]["claimName"] == name
    (farm,) = yaml.safe_load_all((DEPLOY / "kubernetes-farm.yaml").read_text())
    service = objects["Service"]
    (worker,) = farm["spec"]["worker"]["spec"]["containers"]
    env = {e["name"]: e["value"] for e in worker["env"]}
    assert env["LAZYCK_REMOTE"] == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


def test_the_job_script_of_dask_jobqueue_is_a_shell_script_with_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    argv = [sys.executable, str(DEPLOY / "slurm_farm.py"), "--show", "--queue", "cpu", "--cores", "32"]
    env = {**os.environ, "LAZYCK_REMOTE": "http://cache:8080", "PYTHONPATH": str(REPOSITORY)}
    shown = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "export LAZYCK_REMOTE=http://cache:8080\n" in shown
    assert "--nthreads 32" in shown
    assert subprocess.run(["bash", "-n"], input=shown, text=True).returncode == 0


def test_a_job_script_has_no_password_and_uses_tls_where_dask_has_certificates(tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    argv = [sys.executable, str(DEPLOY / "slurm_farm.py"), "--show"]
    remote = {"LAZYCK_REMOTE": "http://builder:sesame@cache:8080", "LAZYCK_SIGN_KEY": "/a key"}
    env = {**os.environ, **remote, "PYTHONPATH": str(REPOSITORY)}
    shown = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "sesame" not in shown
    assert "export LAZYCK_SIGN_KEY='/a key'\n" in shown
    assert "tcp://" in shown
    files = make_pair(tmp_path / "pair").settings()
    shown = subprocess.run(argv, env=env | files, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert " tls://" in shown and "--tls-ca-file" in shown


@pytest.mark.slow
def test_the_batch_job_builds_with_a_worker_on_each_node(tmp_path: Path) -> None:
    """A shell script stands in for Slurm: it runs two tasks on this machine."""
    pytest.importorskip("distributed")
    bundle = farm_bundle(tmp_path / "b", ["one", "two", "three", "four"])
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text('#!/bin/sh\nfor task in 1 2; do LAZYCK_CACHE_DIR=$HOME/node$task "$@" & done; wait\n')
    (tools / "lazyck").write_text(f'#!/bin/sh\nexec {sys.executable} -m lazyck "$@"\n')
    (tools / "dask").write_text(f'#!/bin/sh\nexec {sys.executable} -m dask "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "remote").mkdir(mode=0o700)
    env = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or f"{os.environ['HOME']}/.cache",
        "LAZYCK_REMOTE": f"{tmp_path}/remote|trusted", "SLURM_CPUS_PER_TASK": "1", "FARM_PORT": "38787",
    }  # fmt: skip
    argv = [str(DEPLOY / "slurm_farm.sh"), "--manifest", str(bundle.file), "--all"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lazyck: 4 entries: 4 compiled" in done.stderr
    assert len(bundle.compiled()) == 4
