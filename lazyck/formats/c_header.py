"""Writes `lazyck_abi.h`, from which C and C++ have names, numbers and the rows of GPU runtimes."""

from collections.abc import Sequence
from dataclasses import fields

from lazyck import abi
from lazyck.toolchains import gpu_runtimes
from lazyck.toolchains.gpu_runtimes import GpuRuntime, Process


def render_header() -> str:
    return abi.render_constants() + "\n".join(_render_gpu_runtimes(gpu_runtimes.GPU_RUNTIMES)) + "\n"


def _render_gpu_runtimes(rows: Sequence[GpuRuntime]) -> list[str]:
    """Return two macros: the members of a row, and the rows. A null pointer ends a list."""
    values = [[row.toolchain, row.name, *(getattr(row.process, f.name) for f in fields(Process))] for row in rows]
    longest = max(len(v) for row in values for v in row if isinstance(v, tuple))
    types = {int: "int {};", str: "const char* {};", tuple[str, ...]: f"const char* {{}}[{longest + 1}];"}
    members = (types[f.type].format(f.name) for f in fields(Process))  # type: ignore[index]
    return [
        f"#define LAZYCK_GPU_RUNTIME const char *toolchain, *name; {' '.join(members)}",
        "#define LAZYCK_GPU_RUNTIMES " + ", ".join(abi.c_literal(tuple(row)) for row in values),
    ]
