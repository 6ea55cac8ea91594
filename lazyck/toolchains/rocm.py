"""ROCm: hipcc, and clang compiling HIP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.toolchains import lookup
from lazyck.toolchains.base import Found
from lazyck.toolchains.gnu import GnuToolchain, home_of

_GFX = re.compile(r"gfx(?:[0-9a-f]{3,5}|[0-9]+(?:-[0-9]+)*-generic)(?::(?:sramecc|xnack)[+-])*")
_ARCH_OPTIONS = frozenset({"--offload-arch", "--cuda-gpu-arch", "--amdgpu-target"})
_DEFAULT_HOME = "/opt/rocm"


class RocmToolchain(GnuToolchain):
    """hipcc; options are clang's."""

    name = "rocm"
    tools = ("hipcc",)
    home_env = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH")
    compiler_env = ("HIPCC", "HIPCXX")
    flag_env = (
        *GnuToolchain.flag_env,
        "HIPCC_COMPILE_FLAGS_APPEND",
        "HIPCC_LINK_FLAGS_APPEND",
        "HIP_PLATFORM",
        "HIP_CLANG_FLAGS",
        "HIP_DEVICE_LIB_PATH",
        "DEVICE_LIB_PATH",
    )
    option_env = ("HIPCC_COMPILE_FLAGS_APPEND",)
    arch_env = ("GPU_ARCHS", "PYTORCH_ROCM_ARCH", "AMDGPU_TARGETS", "HCC_AMDGPU_TARGET")
    path_options = GnuToolchain.path_options | {"--rocm-path", "--hip-path", "--rocm-device-lib-path"}
    languages: ClassVar[Mapping[str, str]] = {**GnuToolchain.languages, "hip": "rocm", "cu": "rocm", "cuda": "rocm"}
    arch_flags = (f"--offload-arch={abi.PH_ARCH}",)
    _dropped = GnuToolchain._dropped | _ARCH_OPTIONS | {"--no-offload-arch", "--no-cuda-gpu-arch"}

    def find(self, env: Mapping[str, str]) -> Found | None:
        named = lookup.without_launchers(lookup.resolve("HIPCC", env))
        for home in (env.get(v, "") for v in self.home_env):
            for candidate in (home, str(Path(home).parent)) if home else ():  # HIP_PATH may be <rocm>/hip
                found = self._at(candidate, named)
                if found:
                    return found
        path = named[0] if named else lookup.which("hipcc", env)
        if path:
            home = _home_with_headers(path)
            return Found(self, home, named or (path,))
        return self._at(_DEFAULT_HOME, ())

    def _at(self, home: str, named: tuple[str, ...]) -> Found | None:
        path = str(Path(home, "bin", "hipcc").absolute())
        if not lookup.is_program(path) or lookup.is_shim(path):
            return None
        return Found(self, str(Path(home).absolute()), named or (path,))

    def searched(self) -> str:
        return f"HIPCC, {', '.join(self.home_env)}, hipcc on PATH, {_DEFAULT_HOME}"

    def parse_archs(self, text: str) -> tuple[str, ...]:
        archs = [a for a in re.split(r"[;,\s]+", text) if a]
        for arch in archs:
            if arch in ("native", "all"):
                raise UsageError(
                    f"--gpu-archs {arch!r} is not supported", "name the archs, for example --gpu-archs 'gfx942;gfx950'"
                )
            if not _GFX.fullmatch(arch):
                raise UsageError(
                    f"{arch!r} is not an AMD GPU arch", "write for example gfx942 or gfx90a:sramecc+:xnack-"
                )
        return tuple(dict.fromkeys(archs))

    def archs_in(self, words: Sequence[str]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for item in self.table.split(words):
            if item.name in _ARCH_OPTIONS and item.value:
                found.update(dict.fromkeys(a for a in item.value.split(",") if _GFX.fullmatch(a)))
            elif item.name in ("--no-offload-arch", "--no-cuda-gpu-arch"):
                gone = found if item.value == "all" else [item.value]
                found = {a: None for a in found if a not in gone}
        return tuple(found)

    def _host_only(self, base: Sequence[str]) -> tuple[str, ...]:
        return ("--cuda-host-only",)

    def device_dependencies(
        self, base: Sequence[str], source: str, output: str, archs: Sequence[str]
    ) -> list[tuple[str, ...]]:
        common = (*base, "--cuda-device-only", "-w", "-M", "-MF", output, source)
        return [(*common, f"--offload-arch={arch}") for arch in archs] or [common]

    def _link_flags(self, base: Sequence[str]) -> tuple[str, ...]:
        # hipcc says this by itself; clang needs it to add HIP's runtime library
        return () if Path(base[0]).name.startswith("hipcc") else ("--hip-link",)


def _home_with_headers(hipcc: str) -> str:
    """The home of a hipcc found by its name: as PATH says it, unless only its real place has HIP's headers."""
    plain = str(Path(hipcc).parent.parent)
    real = home_of(hipcc)
    if not Path(plain, "include", "hip").is_dir() and Path(real, "include", "hip").is_dir():
        return real
    return plain


ROCM = RocmToolchain()
