"""Finds this home, and reads what its environment variables say."""

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

HIP_VERSION = "6.0.0"
VERSION_LABEL = f"{HIP_VERSION}-fake"

# The tools find their home through their own real path, never through ROCM_PATH, which may name a
# mirror of it.
HOME = Path(os.path.realpath(__file__)).parents[2]


class FakeRocmError(Exception):
    """Tells that something the user asked for cannot be done; the message says what to do
    instead."""


@dataclass(frozen=True)
class HostCompiler:
    argv: tuple[str, ...]
    is_clang: bool


def find_host_compiler() -> HostCompiler:
    argv = shlex.split(os.environ.get("FAKE_ROCM_CXX") or "c++")
    found = shutil.which(argv[0])
    if found is None:
        raise FakeRocmError(f"no host C++ compiler '{argv[0]}': set FAKE_ROCM_CXX to one")
    name = os.path.basename(os.path.realpath(found)) + os.path.basename(argv[0])
    return HostCompiler((found, *argv[1:]), "clang" in name)
