"""Fixtures for host units and kernel units."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def spy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("spy") / "spy.so"
    source = Path(__file__).parent.parent / "cuda_spy.cpp"
    subprocess.run(["c++", "-std=c++17", "-O1", "-fPIC", "-shared", source, "-o", made], check=True)
    return made


@pytest.fixture(scope="session")
def hip_spy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hip_spy") / "spy.so"
    source = Path(__file__).parent.parent / "hip_spy.cpp"
    subprocess.run(["c++", "-std=c++17", "-O1", "-fPIC", "-shared", source, "-o", made], check=True)
    return made
