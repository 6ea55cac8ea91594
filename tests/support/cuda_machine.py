"""Provides what tests need of CUDA: this machine's toolkit, a copy of it in the layout of PyPI's
wheels, and the content of fat binaries.

The variable TEST_CUDA_HOME names another toolkit to test with (`scripts/debian_nvcc` makes one of
nvcc 12.4). TEST_CUDA_WHEELS names a site-packages directory that has the real wheels.
"""

import os
import shutil
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from lazyck.toolchains import CUDA, cuda_places
from support import REPOSITORY

_FOUND = CUDA.find({**os.environ, **({"CUDA_HOME": h} if (h := os.environ.get("TEST_CUDA_HOME")) else {})})
_FATBIN, _PTX, _ELF = 0xBA55ED50, 1, 2

needs_nvcc = pytest.mark.skipif(_FOUND is None, reason="nvcc is not installed (pip install 'lazyck[cuda]')")


def cuda_home() -> Path:
    """Return the toolkit to test with: a directory with `bin/nvcc`."""
    assert _FOUND is not None
    return Path(_FOUND.home)


def release() -> int:
    """Return the toolkit's major release."""
    return 13 if any(cuda_home().glob("lib*/libcudart.so.13")) else 12


# With these options, nvcc 13 lets other files of a link see kernels. nvcc 12 and older always do
# so.
_VISIBLE = "-device-entity-has-hidden-visibility=false -static-global-template-stub=false"
VISIBLE = _VISIBLE if _FOUND is not None and release() >= 13 else ""
needs_nvcc_13 = pytest.mark.skipif(not VISIBLE, reason="nvcc 12 has by itself what this tells nvcc 13 to do")


def is_one_tree() -> bool:
    """Return whether the toolkit lies in one directory. Distributions (Debian's
    nvidia-cuda-toolkit) spread it over /usr."""
    return (cuda_home() / "nvvm").is_dir()


def cuda_environment(work: Path) -> dict[str, str]:
    """Return an environment with a cache of its own, in which only `CUDA_HOME` leads to a CUDA
    compiler. For a distribution's toolkit, only PATH does."""
    if not is_one_tree():
        return {**bare_environment(work), "PATH": os.environ["PATH"]}
    return {**bare_environment(work), "CUDA_HOME": str(cuda_home()), "LD_LIBRARY_PATH": str(cuda_home() / "lib64")}


def bare_environment(work: Path) -> dict[str, str]:
    """Return an environment with a cache of its own, and without a CUDA compiler on PATH or
    elsewhere."""
    path = [d for d in os.environ["PATH"].split(os.pathsep) if not os.access(Path(d, "nvcc"), os.X_OK)]
    # lazyck keeps what it compiles for itself per user. Tests may share these files, as their names
    # have the digest of the sources.
    return {"PATH": os.pathsep.join(path), "LAZYCK_CACHE_DIR": str(work / "cache")}


def wheels(site: Path) -> Path:
    """Lay out this machine's toolkit below `site` as the wheels of CUDA 13 are, without `lib64` and
    `libcudart.so`. Return its root."""
    if (real := os.environ.get("TEST_CUDA_WHEELS")) is not None:
        return Path(cuda_places.find_wheels([real]))
    if not is_one_tree():
        pytest.skip(f"needs a CUDA toolkit that is one tree, or TEST_CUDA_WHEELS: nvcc is in {cuda_home()}/bin")
    home, made = cuda_home(), site / "nvidia" / f"cu{release()}"
    (made / "bin").mkdir(parents=True)
    (made / "lib").mkdir()
    for program in (home / "bin").iterdir():
        (made / "bin" / program.name).symlink_to(program)
    (made / "bin" / "nvcc.profile").unlink()
    (made / "bin" / "nvcc.profile").write_text(
        "TOP = $(_HERE_)/..\nCICC_PATH = $(TOP)/nvvm/bin\nNVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice\n"
        "PATH += $(CICC_PATH):$(_HERE_):\n"
        'INCLUDES += "-I$(TOP)/include" $(_SPACE_)\nSYSTEM_INCLUDES += "-isystem" "$(TOP)/include/cccl" $(_SPACE_)\n'
        'LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib"\n'
    )
    for library in (home / "lib64").iterdir():
        if library.name in (f"libcudart.so.{release()}", "libcudart_static.a", "libcudadevrt.a"):
            (made / "lib" / library.name).symlink_to(library)
    for name in ("include", "nvvm"):
        (made / name).symlink_to(home / name)
    return made


def device_code(file: Path) -> list[str]:
    """Return the content of the fat binaries of `file`, in order, as `elf 90` and `ptx 80`. Parts
    without code are left out."""
    with file.open("rb") as f:
        section = ELFFile(f).get_section_by_name(".nv_fatbin")
        data = section.data() if section is not None else b""
    found = []
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != _FATBIN:
            at += 8
            continue
        at, end = at + header, at + header + size
        while at < end:
            kind, _, header, size = struct.unpack_from("<HHIQ", data, at)
            (arch,) = struct.unpack_from("<I", data, at + 28)
            found.append(f"{ {_PTX: 'ptx', _ELF: 'elf'}.get(kind, str(kind)) } {arch}")
            at += header + size
    return found


def project(name: str, work: Path) -> Path:
    """Copy `tests/projects/<name>` into `work` and return the copy."""
    return Path(shutil.copytree(REPOSITORY / "tests/projects" / name, work / name))
