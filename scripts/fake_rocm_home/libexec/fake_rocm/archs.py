"""Reads GPU names from the table that the runtime library is built with."""

import os
import re

from fake_rocm.home import HOME, FakeRocmError

DEFAULT_ARCH = "gfx942"
_ROW = re.compile(r'^FAKE_ROCM_ARCH_ROW\("(\w+)", (\d+),.*"([\w-]*)"\)', re.M)
_FEATURE = re.compile(r"(xnack|sramecc)[+-]")


def known_archs() -> dict[str, int]:
    """Return the size of waves by arch name, generic targets included."""
    waves = {}
    for name, major, generic in _ROW.findall((HOME / "src" / "archs.inc").read_text()):
        waves[name] = 32 if int(major) >= 10 else 64
        if generic:
            waves[generic] = waves[name]
    return waves


def check_archs(archs: list[str]) -> None:
    known = known_archs()
    for arch in archs:
        name, *features = arch.split(":")
        if name not in known:
            raise FakeRocmError(f"invalid target ID '{arch}': known are {' '.join(known)}")
        if not all(_FEATURE.fullmatch(feature) for feature in features):
            raise FakeRocmError(f"invalid target ID '{arch}': features are xnack and sramecc, with + or - behind")


def common_wave_size(archs: list[str]) -> int | None:
    """Return the size of a wave if all archs agree on it."""
    known = known_archs()
    sizes = {known[arch.split(":")[0]] for arch in archs}
    return sizes.pop() if len(sizes) == 1 else None


def device_archs() -> list[str]:
    """Return the archs of the GPUs that the runtime pretends to have."""
    text = os.environ.get("FAKE_ROCM_ARCH") or DEFAULT_ARCH
    return [] if text == "none" else [arch for arch in text.split(",") if arch]
