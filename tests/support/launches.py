"""Names the place of the fake ROCm home, and reads its launch log as records."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support import REPOSITORY

HOME = REPOSITORY / "scripts" / "fake_rocm_home"
PROGRAMS = REPOSITORY / "tests" / "fake_rocm" / "programs"

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


@dataclass(frozen=True)
class Launch:
    """One line of the launch log."""

    pid: int
    role: str
    arch: str
    grid: str
    block: str
    shared: int
    kernel: str


def read_launches(log: Path) -> list[Launch]:
    if not log.exists():
        return []
    fields = [dict(word.split("=", 1) for word in line.split(" ")) for line in log.read_text().splitlines()]
    return [
        Launch(int(f["pid"]), f["role"], f["arch"], f["grid"], f["block"], int(f["shared"]), f["kernel"])
        for f in fields
    ]
