"""Headers that torch's and other projects' want beside nvcc's own, where the toolkit was installed without them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from sources import make_venv

WHEELS = ("cublas", "cusparse", "cusolver", "curand", "cufft", "nvjitlink", "nvtx")


def headers(work: Path, cuda_home: str) -> Path:
    """A directory of the headers that the toolkit at `cuda_home` lacks: empty, if it has them; that of NVIDIA's wheels
    that this Python has, as a torch with CUDA brings them along; or one below `work`, of wheels that are fetched."""
    into = work / "headers"
    if not into.is_dir() and not Path(cuda_home, "include", "cusparse.h").is_file():
        for directory in sys.path:
            own = Path(directory, "nvidia", "cu13", "include")
            if (own / "cusparse.h").is_file():
                return own
        pip = make_venv(work / "headers-venv", []) / "bin" / "pip"
        wheels = work / "wheels"
        names = [f"nvidia-{name}" for name in WHEELS]
        subprocess.run([pip, "download", "-q", "--no-deps", "-d", wheels, *names], check=True)
        fresh = work / "headers.new"
        shutil.rmtree(fresh, ignore_errors=True)
        for wheel in sorted(wheels.glob("*.whl")):
            with zipfile.ZipFile(wheel) as found:
                for name in found.namelist():
                    before, include, rest = name.partition("/include/")
                    if include and rest and not name.endswith("/") and before.startswith("nvidia/"):
                        target = fresh / rest
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(found.read(name))
        fresh.rename(into)
    into.mkdir(exist_ok=True)
    return into
