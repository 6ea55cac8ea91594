"""Check a CUDA toolkit for `lazyck doctor`. Each part is tried: packages split toolkits."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lazyck import proc
from lazyck.errors import ToolchainError
from lazyck.toolchains import lookup
from lazyck.toolchains.requirement import Requirement, RequirementState, error_line, fault_of, install_line, output_of

_KERNEL = "__global__ void fill(int* p) { *p = 1; }\nvoid launch(int* p) { fill<<<1, 1>>>(p); }\n"
_CCCL = "#include <cuda/std/cstdint>\n#include <cub/version.cuh>\n"
_DRIVER = Path("/proc/driver/nvidia/version")

# part → package manager → line that installs it
_PARTS = {
    "headers": {"any": "pip install nvidia-cuda-runtime nvidia-cuda-crt"},
    "device compiler": {"any": "pip install nvidia-nvvm nvidia-cuda-nvcc"},
    "runtime library": {"any": "pip install nvidia-cuda-runtime"},
    "cccl": {"any": "pip install nvidia-cuda-cccl"},
}


def parts(compiler: Sequence[str], env: Mapping[str, str]) -> Iterator[Requirement]:
    """Check headers, device compiler, runtime library and CCCL, by compiling a kernel in steps."""
    with tempfile.TemporaryDirectory(prefix="lazyck-doctor-") as work:
        kernel, cccl = Path(work, "kernel.cu"), Path(work, "cccl.cu")
        kernel.write_text(_KERNEL)
        cccl.write_text(_CCCL)

        def fault(*words: str) -> str:
            return error_line(fault_of([*compiler, *words], env, work))

        headers = fault("-E", "-o", "kernel.ii", "kernel.cu")
        yield _check("headers", headers)
        if headers:
            return  # nothing else can be tried without them
        yield _check("device compiler", fault("-cubin", "-o", "kernel.cubin", "kernel.cu"))
        made = fault("-c", "-Xcompiler", "-fPIC", "-o", "kernel.o", "kernel.cu")
        link = ("-shared", "kernel.o", "-o", "kernel.so", "-cudart")
        faults = {kind: made or fault(*link, kind) for kind in ("static", "shared")}
        good = [kind for kind, why in faults.items() if not why]
        yield _check("runtime library", "" if good else faults["static"], "libcudart: " + " and ".join(good))
        yield _check("cccl", fault("-E", "-o", "cccl.ii", "cccl.cu"), needed=False)


def _check(name: str, fault: str, detail: str = "", *, needed: bool = True) -> Requirement:
    if not fault:
        return Requirement(name, RequirementState.OK, detail)
    return Requirement(
        name, RequirementState.MISSING if needed else RequirementState.NOTE, fault, install_line(_PARTS[name])
    )


def driver(env: Mapping[str, str]) -> Requirement:
    """Check NVIDIA's kernel driver, which only launching needs."""
    if _DRIVER.is_file():
        match = re.search(r"\d+\.\d+(?:\.\d+)?", _DRIVER.read_text(errors="replace"))
        return Requirement("driver", RequirementState.OK, match[0] if match else str(_DRIVER))
    smi = _query(env, "driver_version")
    if smi:
        return Requirement("driver", RequirementState.OK, smi[0])
    return Requirement("driver", RequirementState.NOTE, "no NVIDIA driver here: kernels are compiled but cannot run")


def capabilities(compiler: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the archs of the GPUs here, by nvcc's `native`, or else by nvidia-smi."""
    try:
        shown = proc.run([*compiler, "-arch=native", "--dryrun", "-c", "x.cu", "-o", "x.o"], env=env).stderr
    except ToolchainError:
        return ()
    if "Cannot find valid GPU" not in shown:
        found = re.findall(r"\bkind=elf,sm=(\d+[a-f]?)", shown)
        if found:
            return tuple(dict.fromkeys(found))
    return tuple(dict.fromkeys(c.replace(".", "") for c in _query(env, "compute_cap") if re.fullmatch(r"\d+\.\d", c)))


def _query(env: Mapping[str, str], field: str) -> list[str]:
    program = lookup.which("nvidia-smi", {"PATH": env.get("PATH", os.defpath)})
    said = output_of([program, f"--query-gpu={field}", "--format=csv,noheader"], env) if program else ""
    return [line.strip() for line in said.splitlines() if line.strip()]
