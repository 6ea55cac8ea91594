"""Finds the installed torch without importing it, which takes more than a second of CPU."""

import runpy
from importlib.util import find_spec
from pathlib import Path


def _torch() -> Path | None:
    spec = find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def torch_libraries() -> str:
    """Return the directory of torch's libraries, or an empty string if there is no torch. With it
    in LD_LIBRARY_PATH, an extension that needs nothing else of torch can be imported alone."""
    torch = _torch()
    return str(torch / "lib") if torch else ""


def has_cuda_torch() -> bool:
    """Return whether torch is there and was built with CUDA."""
    torch = _torch()
    return torch is not None and runpy.run_path(str(torch / "version.py"))["cuda"] is not None
