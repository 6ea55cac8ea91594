"""Everything that names a compiler: one module per toolchain."""

from lazyck.toolchains.base import Found, Toolchain
from lazyck.toolchains.cuda import CUDA
from lazyck.toolchains.host import HOST
from lazyck.toolchains.rocm import ROCM

ALL: tuple[Toolchain, ...] = (ROCM, CUDA, HOST)

_BY_NAME = {t.name: t for t in ALL}

__all__ = ["ALL", "CUDA", "HOST", "ROCM", "Found", "Toolchain", "by_name"]


def by_name(name: str) -> Toolchain:
    """The toolchain called `name`; KeyError for any other."""
    return _BY_NAME[name]
