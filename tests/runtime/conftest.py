from __future__ import annotations

import os
from pathlib import Path

import pytest
from lazylib import runtime_tool
from support import HERE, Machine


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    """What a test's libraries are for: this machine, unless the test is parametrised (`on_each_machine`)."""
    return getattr(request, "param", HERE)


@pytest.fixture(scope="session")
def objects_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runtime's objects are compiled: shared by all tests of all xdist workers."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runtime-objects"


@pytest.fixture(scope="session")
def rt_tool(objects_dir: Path) -> Path:
    """The executable `lazyck-rt`."""
    return runtime_tool(objects_dir / "tool")
