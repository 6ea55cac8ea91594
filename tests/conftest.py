"""Provides what all tests share: a clean environment, and the `lazyck` command as a real
process."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support import HERE, NINJA, REPOSITORY, Lazyck, Once, oracle, running
from support.buildgrid_server import BuildGrid, buildgrid_home
from support.command_server import CommandServer

from lazyck.files import private_directory
from lazyck.runtime.builder import build_tool
from lazyck.settings.environment import tools_dir


def pytest_configure() -> None:
    """Append the directory of the tests' own `ninja` to PATH. An interpreter that was started by
    its path may find no other."""
    os.environ["PATH"] += f"{os.pathsep}{NINJA.parent}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one xdist worker run all tests of a file that share a fixture of the module, so that
    what the fixture makes is made once."""
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            fixtures = (f for named in item._fixtureinfo.name2fixturedefs.values() for f in named)
            if any(f.scope == "module" for f in fixtures):
                item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}-{item.path.stem}"))


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's variables and files out of the tests, and the tests out of the user's
    cache."""
    for name in list(os.environ):
        if name == "LAZYCK" or name.startswith(
            ("LAZYCK_", "FAKE_ROCM_", "HIP", "ROCM_", "CUDA", "NVCC_", "GPU_ARCHS", "CCACHE_")
        ):
            monkeypatch.delenv(name)
    for name in ("CXX", "CC", "CXXFLAGS", "CFLAGS", "LDFLAGS", "MAKEFLAGS", "NINJA_STATUS", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAZYCK_CACHE_DIR", str(tmp_path / "lazyck-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """Return the process from which most `lazyck` commands of this worker are started."""
    server = CommandServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def lazyck_shared(tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer) -> Lazyck:
    """Return the `lazyck` for fixtures that several tests share. What it builds counts for the
    first of these tests."""
    return command_line(tmp_path_factory, command_server, "", is_exempt=False)


@pytest.fixture
def lazyck(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer
) -> Lazyck:
    """Return the command line as a function: `lazyck("build", "full", ..., cwd=..., env=...)`.

    Each library that it builds is compared with an ahead-of-time build, unless the test is marked
    `differs`.
    """
    is_exempt = request.node.get_closest_marker("differs") is not None
    return command_line(tmp_path_factory, command_server, request.node.nodeid, is_exempt=is_exempt)


def command_line(
    tmp_path_factory: pytest.TempPathFactory, server: CommandServer, test: str, *, is_exempt: bool
) -> Lazyck:
    """Return a function that runs the command line for `test`. Unless `is_exempt`, it compares each
    library that it builds with an ahead-of-time build."""

    def run(
        *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        full_env = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
        done = server.run([*map(str, words)], cwd or REPOSITORY, full_env, stdin, timeout=600)
        tmp = oracle.tmp_dir_of(list(map(str, words)), cwd or REPOSITORY)
        if done.returncode == 0 and tmp is not None and oracle.ORACLE != "off" and not is_exempt:
            seen = shared_dir(tmp_path_factory) / "oracle"
            name = test or os.environ.get("PYTEST_CURRENT_TEST", "")
            oracle.report(list(oracle.check_build(tmp, seen, name.partition("[")[0], full_env)), name)
        return done

    return run


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Return the `Once` of this test run. The xdist worker that first needs an object builds it for
    all workers."""
    return Once(shared_dir(tmp_path_factory) / "once")


def compiled(once: Once, name: str) -> Path:
    """Compile tests/support/`name`.cpp to a library for LD_PRELOAD."""

    def make(where: Path) -> Path:
        made = where / f"{name}.so"
        source = REPOSITORY / "tests" / "support" / f"{name}.cpp"
        subprocess.run(["c++", "-std=c++17", "-fPIC", "-shared", source, "-o", made], check=True)
        return made

    return once(name, make)


@pytest.fixture(scope="session")
def spy(once: Once) -> Path:
    return compiled(once, "cuda_spy")


@pytest.fixture(scope="session")
def hip_spy(once: Once) -> Path:
    return compiled(once, "hip_spy")


@pytest.fixture(scope="session")
def objects_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory for objects and programs that only tests use. All tests of all xdist
    workers share it."""
    return shared_dir(tmp_path_factory) / "runtime-objects"


def shared_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that all xdist workers of a session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def rt_tool() -> Path:
    """Return the executable `lazyck-rt`. It lies where the user's own one lies, as it depends on
    nothing but its sources."""
    return build_tool(private_directory(tools_dir(os.environ)), [HERE.cxx])


@pytest.fixture(scope="session")
def buildgrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildGrid]:
    """Start BuildGrid with two workers."""
    pytest.importorskip("grpc", reason="needs lazyck[reapi]")
    home = buildgrid_home()
    if home is None:
        pytest.skip("BuildGrid cannot be installed: is PyPI reachable?")
    with running(BuildGrid(home, tmp_path_factory.mktemp("services")), "one", "two") as found:
        yield found
