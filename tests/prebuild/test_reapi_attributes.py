"""Tests what the address of a compile service may say: TLS, a token, the compiler and the program
for its workers."""

import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import Lazyck
from support.buildgrid_server import BuildGrid
from support.bundles import Bundle, build, entries
from support.certificates import Pair, make_pair
from support.farm_cluster import farm_bundle

from lazyck import abi
from lazyck.formats.manifest import encode

pytest.importorskip("grpc", reason="needs lazyck[reapi]")

from support.reapi_proxy import Proxy, proxied

pytestmark = pytest.mark.xdist_group("reapi")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return farm_bundle(tmp_path / "b", {"one": f'extern "C" int one() {{ return 1; }}  // of {tmp_path.name}\n'})


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path / "certificates")


@pytest.fixture
def proxy(buildgrid: BuildGrid, pair: Pair) -> Iterator[Proxy]:
    with proxied(buildgrid.port, (pair.key.read_bytes(), pair.certificate.read_bytes())) as found:
        yield found


def test_a_service_behind_tls_is_used_if_its_certificate_is_believed(
    lazyck: Lazyck, proxy: Proxy, bundle: Bundle, pair: Pair, tmp_path: Path
) -> None:
    refused = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", proxy.url)
    assert refused.returncode == 1
    assert f"grpcs://127.0.0.1:{proxy.port}" in refused.stderr
    assert not proxy.calls
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(pair.certificate)}
    done = build(lazyck, bundle, "--all", "--executor", proxy.url, env=roots)
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]
    assert len(entries(tmp_path / "lazyck-cache")) == 1


def test_a_token_is_read_from_a_private_file_and_sent_with_each_call(
    lazyck: Lazyck, proxy: Proxy, bundle: Bundle, pair: Pair, tmp_path: Path
) -> None:
    roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(pair.certificate)}
    proxy.token = "secret-7"
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor")
    refused = lazyck(*words, proxy.url, env=roots)
    assert refused.returncode == 1
    assert "UNAUTHENTICATED" in refused.stderr
    file = tmp_path / "token"
    file.write_text("secret-7 a comment\n")
    file.chmod(0o644)
    public = lazyck(*words, f"{proxy.url}|token-file={file}", env=roots)
    assert public.returncode == 2
    assert str(file) in public.stderr and "secret-7" not in public.stderr
    file.chmod(0o600)
    done = build(lazyck, bundle, "--all", "--executor", f"{proxy.url}|token-file={file}", env=roots)
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]


def test_a_toolchain_travels_to_workers_that_lack_it(
    lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle, tmp_path: Path
) -> None:
    home = tmp_path / "compilers"
    (home / "bin").mkdir(parents=True)
    shutil.move(bundle.directory / "cxx", home / "bin" / "cxx-1")
    (home / "bin" / "cxx").symlink_to("cxx-1")
    (recipe,) = bundle.manifest.recipes
    compiler = f"{abi.PH_TOOLCHAIN}/bin/cxx"
    words = (compiler, *recipe.compile[1:]), (compiler, *recipe.link[1:])
    recipe = replace(recipe, home="/nonexistent-home", home_env=("ROCM_PATH",), compile=words[0], link=words[1])
    bundle.file.write_bytes(encode(replace(bundle.manifest, recipes=(recipe,))))
    without = build(lazyck, bundle, "--all", "--executor", buildgrid.url)
    assert (without["status"], without["compiled"]) == (1, 0)
    assert "/nonexistent-home" in without["failed"][0]["error"]
    url = f"{buildgrid.url}|toolchain={home}"
    done = build(lazyck, bundle, "--all", "--executor", url)
    assert (done["status"], done["compiled"], done["failed"]) == (0, 1, []), done["stderr"]
    assert bundle.compiled() == ["one"]
    (home / "bin" / "out").symlink_to("/bin/sh")
    empty = {"LAZYCK_CACHE_DIR": str(tmp_path / "empty")}
    out = lazyck("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", url, env=empty)
    assert out.returncode == 1
    assert "this link leads out of the toolchain" in out.stderr


def test_workers_run_the_tool_that_the_address_names(
    lazyck: Lazyck, buildgrid: BuildGrid, bundle: Bundle, tmp_path: Path, rt_tool: Path
) -> None:
    own, ran = tmp_path / "other-rt", tmp_path / "ran"
    own.write_text(f'#!/bin/sh\necho "$1" >> {shlex.quote(str(ran))}\nexec {shlex.quote(str(rt_tool))} "$@"\n')
    own.chmod(0o755)
    done = build(lazyck, bundle, "--all", "--executor", f"{buildgrid.url}|tool={own}")
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]
    assert ran.read_text().split() == ["make"]
