"""Where things are, and the type of the `lazyck` fixture: what test modules import by name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FAKE_ROCM = REPOSITORY / "scripts" / "fake_rocm_home"

Lazyck = Callable[..., "subprocess.CompletedProcess[str]"]
