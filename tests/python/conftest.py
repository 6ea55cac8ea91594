"""Fixtures of the tests of the package for programs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))  # for lazylib

from demo_libraries import Python, build_demo, build_other
from lazylib import LazyLibrary


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> tuple[LazyLibrary, LazyLibrary]:
    make = tmp_path_factory.mktemp
    return build_demo(make("demo"), objects_dir), build_other(make("other"), objects_dir)


@pytest.fixture
def python(libraries: tuple[LazyLibrary, LazyLibrary]) -> Python:
    return Python(*libraries)
