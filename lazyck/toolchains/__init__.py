"""Everything that names a compiler: one module per toolchain."""

from __future__ import annotations

from collections.abc import Sequence

from lazyck.errors import UsageError
from lazyck.toolchains.base import Found, Toolchain
from lazyck.toolchains.cuda import CUDA
from lazyck.toolchains.host import HOST
from lazyck.toolchains.rocm import ROCM

ALL: tuple[Toolchain, ...] = (ROCM, CUDA, HOST)

_BY_NAME = {t.name: t for t in ALL}

__all__ = ["ALL", "CUDA", "HOST", "ROCM", "Found", "Toolchain", "by_name", "parse_archs"]


def by_name(name: str) -> Toolchain:
    """The toolchain called `name`; KeyError for any other."""
    return _BY_NAME[name]


def parse_archs(text: str, toolchains: Sequence[Toolchain]) -> tuple[Toolchain, tuple[str, ...]]:
    """The first of `toolchains` that knows every arch of the list `text`, and those archs, normalised.

    Raises `UsageError`, that of the first toolchain with archs, when none does.
    """
    refusal: UsageError | None = None
    for toolchain in toolchains:
        if not toolchain.arch_flags:
            continue
        try:
            return toolchain, toolchain.parse_archs(text)
        except UsageError as e:
            refusal = refusal or e
    raise refusal or UsageError(f"archs {text!r}: no toolchain here compiles for GPUs", "leave out --gpu-archs")
