from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundles import archive_sources
from support.faultlib import Patient, make_patient, public_directory


@pytest.fixture(scope="session")
def one_patient(objects_dir: Path) -> Iterator[Patient]:
    with public_directory() as directory:
        yield make_patient(directory, objects_dir)


@pytest.fixture(scope="session")
def one_packed(objects_dir: Path) -> Iterator[Patient]:
    with public_directory() as directory:
        made = make_patient(directory, objects_dir)
        archive_sources(made.lib.directory / "lazyck", made.lib.manifest.library)
        yield made


@pytest.fixture
def packed(one_packed: Patient) -> Patient:
    """Return a library whose cache is empty. The sources of its bundle are one archive."""
    one_packed.clear()
    one_packed.injected()
    return one_packed


@pytest.fixture
def patient(one_patient: Patient) -> Patient:
    """Return a library whose cache is empty."""
    one_patient.clear()
    one_patient.injected()
    return one_patient
