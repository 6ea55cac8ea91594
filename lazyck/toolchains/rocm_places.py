"""Find ROCm in the layouts of its releases, of distributions, and of AMD's pip packages.

- ROCm 5: `bin/hipcc`, `llvm/bin/clang++`; also `hip/bin/hipcc`, with `HIP_PATH=<rocm>/hip`.
- ROCm 6 and 7: `bin/hipcc` (or a link to the one in `lib/llvm/bin`), `lib/llvm/bin/clang++`; `llvm`
  links to `lib/llvm`, `bin/amdclang++` to the one there.
- pip (`rocm[devel]`): `<venv>/bin/hipcc` is a console script for `_rocm_sdk_core/bin/hipcc` in
  site-packages; the whole tree is `_rocm_sdk_devel`, as `rocm-sdk path --root` says.
- Debian: `/usr/bin/hipcc`, over `/usr/bin/clang++-15` (12), `/usr/lib/llvm-21/bin/clang++` (HIP 6).
"""

from collections.abc import Mapping
from pathlib import Path

from lazyck.toolchains import lookup
from lazyck.toolchains.base import Found
from lazyck.toolchains.requirement import output_of

DEFAULT_HOME = "/opt/rocm"
CLANG_DIRS = ("llvm/bin", "lib/llvm/bin", "bin")
CLANGS = ("amdclang++", "clang++", "amdclang", "clang")


def whole_home(home: str) -> tuple[str, str]:
    """Return the ROCm of which `home` is a part, and that part's name: as in `<rocm>/hip`."""
    parent = str(Path(home).parent)
    if Path(home).name == "hip" and any(lookup.is_program(f"{parent}/{d}/{p}") for d, p in _SIGNS):
        return parent, "hip"
    return home, ""


_SIGNS = (("bin", "hipcc"), ("bin", "rocm_agent_enumerator"), ("llvm/bin", "clang++"), ("lib/llvm/bin", "clang++"))


def hipcc_in(home: str) -> str:
    path = str(Path(home, "bin", "hipcc").absolute())
    return path if lookup.is_program(path) and not lookup.is_shim(path) else ""


def clang_in(home: str) -> str:
    """Return the C++ compiler for HIP of a home without hipcc, or an empty string."""
    for directory in CLANG_DIRS:
        for name in CLANGS[:2]:
            path = str(Path(home, directory, name).absolute())
            # Any directory may have a `bin/clang++`. Only AMD's own name says that it is ROCm's.
            own = directory != "bin" or name == "amdclang++"
            if own and lookup.is_program(path) and not lookup.is_shim(path):
                return path
    return ""


def clang_of_hipconfig(home: str, env: Mapping[str, str]) -> str:
    """Return the C++ compiler that the hipconfig of a home names, or an empty string."""
    directory = output_of([f"{home}/bin/hipconfig", "--hipclangpath"], env).strip()
    path = f"{directory}/clang++"
    return path if directory.startswith("/") and lookup.is_program(path) else ""


def home_of_program(program: str, env: Mapping[str, str]) -> str:
    """Return the home of a hipcc or clang that was found by its name. The path on PATH decides,
    unless it has no headers: then AMD's pip package whose console script it is, or else its real
    path if that has headers."""
    plain = _above_bin(Path(program))
    if _has_headers(plain):
        return str(plain)
    sdk = pip_sdk(plain, env)
    if sdk:
        return sdk
    real = _above_bin(Path(program).resolve())
    return str(real if _has_headers(real) else plain)


def _above_bin(program: Path) -> Path:
    """Return the home of `<home>/bin/x`, `<home>/llvm/bin/x` or `<home>/lib/llvm/bin/x`."""
    home = program.parent.parent
    if home.name == "llvm":
        home = home.parent.parent if home.parent.name == "lib" else home.parent
    return home


def _has_headers(home: Path) -> bool:
    return Path(home, "include", "hip").is_dir()


def pip_sdk(prefix: Path, env: Mapping[str, str]) -> str:
    """Return the home in the pip packages of the Python environment `prefix`, or an empty string.
    The look-up may unpack `rocm[devel]`, as its own console scripts do at their first call."""
    asked = f"{prefix}/bin/rocm-sdk"
    if not lookup.is_program(asked):
        return ""
    root = output_of([asked, "path", "--root"], env).strip()
    if root and Path(root, "bin").is_dir():
        return root
    # Without rocm[devel], there are only the compilers.
    cores = sorted(prefix.glob("lib/python*/site-packages/_rocm_sdk_core*/bin/hipcc"))
    return str(cores[0].parent.parent) if cores else ""


def device_libraries(found: Found, env: Mapping[str, str]) -> Path | None:
    """Return the directory of the device libraries (bitcode) of a home, distribution or clang."""
    home = Path(found.home)
    places = [home / "amdgcn/bitcode", home / "lib/bitcode", *home.glob("lib/*/amdgcn/bitcode")]
    places += home.glob("lib/llvm/lib/clang/*/lib/amdgcn/bitcode")
    own = output_of([*found.compiler, "-print-resource-dir"], without_asking_gpus(env)).strip()
    places += [Path(own, "amdgcn/bitcode"), Path(own, "lib/amdgcn/bitcode")] if own else []
    return next((p for p in places if (p / "ocml.bc").is_file()), None)


def without_asking_gpus(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with an arch, otherwise unused, that keeps hipcc from asking for GPUs."""
    return {**env, "HCC_AMDGPU_TARGET": "gfx000"}
