"""Provide fixtures for host units and kernel units."""

import subprocess
from pathlib import Path

import pytest
from support import Once

TESTS = Path(__file__).parent.parent


def compiled(once: Once, name: str) -> Path:
    """Compile `name`.cpp to a library for LD_PRELOAD."""

    def make(where: Path) -> Path:
        made = where / f"{name}.so"
        words = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", f"{TESTS / name}.cpp", "-o", str(made)]
        subprocess.run(words, check=True)
        return made

    return once(name, make)


@pytest.fixture(scope="session")
def spy(once: Once) -> Path:
    return compiled(once, "cuda_spy")


@pytest.fixture(scope="session")
def hip_spy(once: Once) -> Path:
    return compiled(once, "hip_spy")
