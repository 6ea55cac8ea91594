"""Tell what a ROCm can do and what it lacks, by asking its own programs and by trying a kernel of
three lines."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import proc
from _lazyck.errors import ToolchainError
from _lazyck.toolchains.base import Found
from _lazyck.toolchains.check import Check, State, install_line, output_of

_DOCS = "https://rocm.docs.amd.com/projects/install-on-linux"
INSTALL = {
    "apt": f"apt install hipcc libamdhip64-dev rocm-device-libs (newer: AMD's packages, {_DOCS})",
    "dnf": f"dnf install hipcc rocm-hip-devel rocm-device-libs (or AMD's packages, {_DOCS})",
    "pacman": "pacman -S rocm-hip-sdk",
    "any": f"AMD's packages: {_DOCS}, or its pip packages: pip install 'rocm[devel]' from AMD's index",
}
_HEADERS = {"apt": "apt install libamdhip64-dev", "dnf": "dnf install rocm-hip-devel", "any": INSTALL["any"]}
_DEVICE_LIBS = {"apt": "apt install rocm-device-libs", "dnf": "dnf install rocm-device-libs", "any": INSTALL["any"]}
_LINKER = {"apt": "apt install lld", "dnf": "dnf install lld", "any": INSTALL["any"]}
_GFX = re.compile(r"\bgfx[0-9a-f]{3,5}\b")
_SECONDS = 60.0
_USUAL = ("gfx942", "gfx90a", "gfx1100", "gfx1030")  # archs to try a kernel for, if no GPU says which
KERNEL = "#include <hip/hip_runtime.h>\n__global__ void k(float* p) { p[threadIdx.x] *= 2; }\n"
KERNEL += 'extern "C" int run(float* p) { k<<<1, 64>>>(p); return hipGetLastError(); }\n'

# what the compiler complains about → (name of the check, lines that install what is missing)
_COMPLAINTS = (
    ("hip/hip_runtime.h' file not found", "headers", _HEADERS),
    ("cannot find HIP runtime", "headers", _HEADERS),
    ("cannot find ROCm device library", "device libraries", _DEVICE_LIBS),
    ("cannot find -lamdhip64", "runtime library", _HEADERS),
    ("unable to find library -lamdhip64", "runtime library", _HEADERS),
    ("lld", "device linker", _LINKER),
)


def present_archs(found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the archs of the GPUs, as ROCm's own programs list them."""
    names = ("bin/rocm_agent_enumerator", "llvm/bin/amdgpu-arch", "lib/llvm/bin/amdgpu-arch", "llvm/bin/offload-arch")
    for program in names:
        path = Path(found.home, program)
        if not path.is_file():
            continue
        archs = tuple(dict.fromkeys(a for a in _GFX.findall(output_of([str(path)], env)) if a != "gfx000"))
        if archs:
            return archs
    return ()


def known_archs(found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the archs that the clang behind the compiler knows, as far as there is a device
    library for each."""
    # `-c` keeps hipcc from adding link options, which clang refuses for this target.
    argv = [*found.compiler, "--target=amdgcn-amd-amdhsa", "-nogpulib", "-c", "--print-supported-cpus"]
    try:
        said = proc.run(argv, env=_without_asking_gpus(env), timeout=_SECONDS)
    except ToolchainError:
        return ()
    known = dict.fromkeys(_GFX.findall(said.stdout + said.stderr))
    libraries = device_libraries(found, env)
    if libraries is None:
        return tuple(known)
    have = {p.stem.removeprefix("oclc_isa_version_") for p in libraries.glob("oclc_isa_version_*.bc")}
    return tuple(a for a in known if a.removeprefix("gfx") in have)


def device_libraries(found: Found, env: Mapping[str, str]) -> Path | None:
    """Return the directory of the device libraries (bitcode), in a home, a distribution or clang's
    own resources."""
    home = Path(found.home)
    places = [home / "amdgcn/bitcode", home / "lib/bitcode", *home.glob("lib/*/amdgcn/bitcode")]
    places += home.glob("lib/llvm/lib/clang/*/lib/amdgcn/bitcode")
    own = output_of([*found.compiler, "-print-resource-dir"], _without_asking_gpus(env)).strip()
    places += [Path(own, "amdgcn/bitcode"), Path(own, "lib/amdgcn/bitcode")] if own else []
    return next((p for p in places if (p / "ocml.bc").is_file()), None)


def _without_asking_gpus(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with an arch that keeps hipcc from asking for the GPUs present. hipcc ignores it
    otherwise."""
    return {**env, "HCC_AMDGPU_TARGET": "gfx000"}


def checks(found: Found, present: Sequence[str], env: Mapping[str, str]) -> list[Check]:
    """Compile and link a kernel, for the GPU present or the first known arch, and check the GPU
    itself."""
    known = present or known_archs(found, env)
    arch = next((a for a in (*present, *_USUAL) if a in known), known[0] if known else "")
    if present:
        gpu = Check("GPU", State.OK, " ".join(present))
    else:
        gpu = Check("GPU", State.NOTE, "none answers: name archs with --gpu-archs; blobs compile, kernels cannot run")
    return [_try(found, arch, env), gpu]


def _try(found: Found, arch: str, env: Mapping[str, str]) -> Check:
    with tempfile.TemporaryDirectory(prefix="lazyck-doctor-") as work:
        source, library = Path(work, "k.hip"), Path(work, "k.so")
        source.write_text(KERNEL)
        is_hipcc = Path(found.compiler[0]).name.startswith("hipcc")
        argv = [*found.compiler, *([f"--offload-arch={arch}"] if arch else []), *([] if is_hipcc else ["--hip-link"])]
        argv += ["-x", "hip", "-shared", "-fPIC", str(source), "-o", str(library)]
        try:
            done = proc.run(argv, cwd=work, env=env, timeout=_SECONDS)
        except ToolchainError as e:
            return Check("kernel", State.MISSING, e.message, install_line(INSTALL))
    if done.status == 0:
        return Check("kernel", State.OK, f"compiles and links{f' for {arch}' if arch else ''}")
    said = done.stdout + done.stderr
    for words, name, lines in _COMPLAINTS:
        if words in said:
            return Check(name, State.MISSING, _error_line(said), install_line(lines))
    return Check("kernel", State.MISSING, _error_line(said), install_line(INSTALL))


def _error_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return next(
        (line for line in lines if "error" in line), lines[-1] if lines else "the compiler failed without a message"
    )
