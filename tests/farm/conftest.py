"""Provide a compile service that tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from buildgrid_server import BuildGrid, buildgrid_home


@pytest.fixture(scope="session")
def buildgrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildGrid]:
    """Start BuildGrid with two workers."""
    pytest.importorskip("grpc", reason="needs lazyck[reapi]")
    home = buildgrid_home()
    if home is None:
        pytest.skip("BuildGrid cannot be installed: is PyPI reachable?")
    found = BuildGrid(home, tmp_path_factory.mktemp("buildgrid"))
    try:
        found.start()
        found.add("one")
        found.add("two")
        yield found
    finally:
        found.stop()
