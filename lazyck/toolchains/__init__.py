"""Collect everything that names a compiler: one module per toolchain."""

import re
from collections.abc import Mapping, Sequence

from lazyck.errors import UsageError
from lazyck.toolchains.base import Found as Found
from lazyck.toolchains.base import Toolchain as Toolchain
from lazyck.toolchains.cuda import CUDA as CUDA
from lazyck.toolchains.host import HOST as HOST
from lazyck.toolchains.llvm import LLVM as LLVM
from lazyck.toolchains.rocm import ROCM as ROCM

ALL: tuple[Toolchain, ...] = (ROCM, CUDA, HOST, LLVM)
_BY_NAME = {t.name: t for t in ALL}


def by_name(name: str) -> Toolchain:
    """Return the toolchain called `name`. Raises KeyError for any other name."""
    return _BY_NAME[name]


def parse_archs(text: str, toolchains: Sequence[Toolchain]) -> tuple[Toolchain, tuple[str, ...]]:
    """Return the first of `toolchains` that knows every arch of the list `text`, and those archs,
    normalised.

    Raises `UsageError` if none does: the error of the first toolchain that has archs.
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


def resolve_native(text: str, found: Sequence[Found], env: Mapping[str, str]) -> str:
    """Return the arch list `text` with `native` replaced by the GPUs here, as the first toolchain
    that sees any names them.

    Raises `UsageError` if none does.
    """
    words = [w for w in re.split(r"[;,\s]+", text) if w]
    if "native" not in words:
        return text
    present = next((archs for f in found if (archs := f.toolchain.present_archs(f, env))), ())
    if not present:
        raise UsageError(
            "archs `native`: no GPU answers here", "name the archs, for example --gpu-archs 'gfx942;gfx950' or '80;90a'"
        )
    return ";".join(a for w in words for a in (present if w == "native" else (w,)))


def archs_of_environment(found: Sequence[Found], env: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return each toolchain's name with the archs that the environment asks builds for
    (`GPU_ARCHS`…). A list that makes no sense is ignored, since it is the build's to report."""
    asked = []
    for f in found:
        text = next((env[v] for v in f.toolchain.arch_env if env.get(v)), "")
        try:
            archs = f.toolchain.parse_archs(resolve_native(text, [f], env)) if text else ()
        except UsageError:
            archs = ()
        if archs:
            asked.append((f.toolchain.name, archs))
    return tuple(asked)
