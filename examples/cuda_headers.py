"""Find headers that torch's and other projects' headers need besides nvcc's own, where the toolkit
lacks them."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from sources import make_venv

WHEELS = ("cublas", "cusparse", "cusolver", "curand", "cufft", "nvjitlink", "nvtx")


def headers(work: Path, cuda_home: str) -> Path:
    """Return a directory of the headers that the toolkit at `cuda_home` lacks.

    It is empty if the toolkit has them. Else it is that of NVIDIA's wheels in this Python, as a
    torch with CUDA brings them along, or one below `work`, made from wheels that are fetched.
    """
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
