"""Tests `--launcher` with real ccache and distcc in front of the compile step."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import HERE, Lazyck, wait_until
from support.bundles import Bundle, build, entries, make_bundle
from support.servers import is_open

from lazyck.formats.manifest import encode

NAMES = ["one", "two", "three"]


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Make a bundle that calls the real compiler, by the name by which ccache and distcc know
    compilers."""
    made = make_bundle(tmp_path / "b", NAMES)
    (recipe,) = made.manifest.recipes
    own = replace(recipe, compile=(HERE.cxx, *recipe.compile[1:]), link=(HERE.cxx, *recipe.link[1:]))
    made.file.write_bytes(encode(replace(made.manifest, recipes=(own,))))
    return made


@pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")
def test_ccache_serves_another_cache_and_the_key_stays(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    env = {"CCACHE_DIR": str(tmp_path / "ccache")}
    for cache in ("one", "other"):
        own = {**env, "LAZYCK_CACHE_DIR": str(tmp_path / cache)}
        assert build(lazyck, bundle, "--all", "--launcher", "ccache", env=own)["compiled"] == 3
    shown = subprocess.run(["ccache", "--print-stats"], env={**os.environ, **env}, capture_output=True, text=True)
    figures = dict(line.split("\t") for line in shown.stdout.splitlines())
    assert int(figures["direct_cache_hit"]) + int(figures["preprocessed_cache_hit"]) == 3
    # Without the launcher, the entries have the same keys.
    assert build(lazyck, bundle, "--all", env={"LAZYCK_CACHE_DIR": str(tmp_path / "one")})["cached"] == 3


@pytest.fixture
def distccd(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Run distccd on this machine, and yield its port and its log."""
    if not shutil.which("distccd"):
        pytest.skip("needs distcc")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tmp_path / "distccd.log"
    argv = ["distccd", "--no-detach", "--daemon", "--port", str(port), "--listen", "127.0.0.1", "--allow", "127.0.0.1"]
    argv += ["--enable-tcp-insecure", "--log-stderr", "--log-level", "info", "--jobs", "2"]
    argv += ["--user", "nobody"] if os.getuid() == 0 else []
    with log.open("wb") as f:  # distccd runs as nobody, so it is given no file name
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=f)
    wait_until(lambda: is_open(port), process=process, said=log.read_text)
    yield port, log
    process.terminate()
    process.wait()


def test_distcc_compiles_elsewhere(lazyck: Lazyck, bundle: Bundle, distccd: tuple[int, Path], tmp_path: Path) -> None:
    port, log = distccd
    (tmp_path / "distcc").mkdir()
    env = {"DISTCC_HOSTS": f"127.0.0.1:{port}", "DISTCC_FALLBACK": "0", "DISTCC_DIR": str(tmp_path / "distcc")}
    done = build(lazyck, bundle, "--all", "--launcher", "distcc", env=env)
    assert (done["status"], done["compiled"]) == (0, 3), done["stderr"]
    assert log.read_text(errors="replace").count("COMPILE_OK") == 3, log.read_text(errors="replace")
    assert len(entries(tmp_path / "lazyck-cache")) == 3


def test_a_launcher_that_is_not_there_is_named(lazyck: Lazyck, bundle: Bundle) -> None:
    done = build(lazyck, bundle, "one", "--launcher", "no-such-launcher")
    assert (done["status"], done["compiled"]) == (1, 0)
    assert "no-such-launcher" in done["failed"][0]["error"]
