"""Fixtures of the tests of the package for programs."""

from pathlib import Path

import pytest
from support import REPOSITORY, Once
from support.demo_libraries import Python, build_demo, build_other
from support.lazylib import LazyLibrary


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory, objects_dir: Path) -> tuple[LazyLibrary, LazyLibrary]:
    make = tmp_path_factory.mktemp
    return build_demo(make("demo"), objects_dir), build_other(make("other"), objects_dir)


@pytest.fixture
def python(libraries: tuple[LazyLibrary, LazyLibrary]) -> Python:
    return Python(*libraries)


@pytest.fixture
def cuda_stand_ins(once: Once, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of stand-ins for the libraries that a torch without CUDA lacks."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples/torch_cuda"))
    import stand_ins

    def make(directory: Path) -> Path:
        stand_ins.make(directory)
        return directory

    return once("cuda-stand-ins", make)
