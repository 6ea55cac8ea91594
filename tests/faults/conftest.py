from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))

from faultlib import Patient, make_patient, public_directory
from lazylib import runtime_tool


@pytest.fixture(scope="session")
def objects_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runtime's objects are compiled: the place that tests/runtime uses too."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "runtime-objects"


@pytest.fixture(scope="session")
def one_patient(objects_dir: Path) -> Iterator[Patient]:
    with public_directory() as directory:
        yield make_patient(directory, objects_dir)


@pytest.fixture
def patient(one_patient: Patient) -> Patient:
    """A library whose cache is empty."""
    one_patient.clear()
    one_patient.injected()
    return one_patient


@pytest.fixture(scope="session")
def rt_tool(objects_dir: Path) -> Path:
    """The executable `lazyck-rt`."""
    return runtime_tool(objects_dir / "tool")
