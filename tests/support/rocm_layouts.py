"""Makes ROCm trees in AMD's layouts from Debian's parts: the real hipcc 5.2.3, clang 15 and 19,
headers, device libraries and libamdhip64. A few lines of shell replace AMD's own binaries."""

import re
import shutil
import sys
from pathlib import Path

import pytest

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
BITCODE = LIBRARIES / "amdgcn/bitcode"
HEADERS = Path("/usr/include/hip")
CLANG = {15: Path("/usr/bin/clang++-15"), 19: Path("/usr/bin/clang++-19")}
APT = "apt-get install hipcc libamdhip64-dev rocm-device-libs clang-15 clang-19 lld-15 lld-19"

# AMD's clang does this by itself: it looks for ROCm above the directory where it is installed.
CLANG_SCRIPT = """#!/bin/sh
exec {clang} --rocm-path="{home}" -Wno-unused-command-line-argument "$@"
"""
# In ROCm 6, hipcc is a program that starts the clang below ROCM_PATH, or below its own directory,
# with a few more options.
HIPCC_SCRIPT = """#!/bin/sh
[ "${{HIP_PLATFORM:-amd}}" = amd ] || {{ echo "hipcc: HIP_PLATFORM=$HIP_PLATFORM"; exit 1; }}
clang="${{HIP_CLANG_PATH:-${{ROCM_PATH:-{home}}}/lib/llvm/bin}}/clang++"
language=
runtime=-lamdhip64
for word; do
    case $word in
    -c | -E | -M) runtime= language="-x hip" ;;
    esac
done
exec "$clang" $language "$@" $runtime
"""


def need_real_hip() -> None:
    """Skip the test if Debian's HIP packages are missing."""
    there = (HEADERS / "hip_runtime.h", BITCODE, LIBRARIES / "libamdhip64.so", Path("/usr/bin/hipcc"), *CLANG.values())
    missing = [str(p) for p in there if not p.exists()]
    if missing:
        pytest.skip(f"needs a real HIP compiler ({', '.join(missing)}): {APT}")


def script(path: Path, text: str) -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _common(home: Path) -> None:
    (home / "include").mkdir(parents=True)
    (home / "include/hip").symlink_to(HEADERS)
    (home / "lib").mkdir()
    for library in LIBRARIES.glob("lib*hip*.so*"):
        (home / "lib" / library.name).symlink_to(library)
    (home / "amdgcn").mkdir()
    (home / "amdgcn/bitcode").symlink_to(BITCODE)
    (home / "share/hip").mkdir(parents=True)
    (home / "share/hip/version").symlink_to("/usr/share/hip/version")


def rocm5(home: Path) -> Path:
    """Make a ROCm 5 tree with Debian's hipcc itself, `hip/` and `llvm/`. hipcc is a copy, since it
    looks for everything else around its own place."""
    _common(home)
    (home / "bin").mkdir()
    (home / "hip/bin").mkdir(parents=True)
    for name in ("hipcc", "hipcc.pl", "hipconfig", "hipconfig.pl", "hipvars.pm"):
        shutil.copy(f"/usr/bin/{name}", home / "bin" / name)
        (home / "hip/bin" / name).symlink_to(f"../../bin/{name}")
    for name in ("include", "lib"):
        (home / "hip" / name).symlink_to(f"../{name}")
    shutil.copy("/usr/bin/rocm_agent_enumerator", home / "bin")
    clang = CLANG_SCRIPT.format(clang=CLANG[15], home=home)
    for name in ("clang++-15", "clang++", "clang"):
        script(home / "llvm/bin" / name, clang)
    (home / "llvm/lib").symlink_to("/usr/lib/llvm-15/lib")
    return home


def rocm6(home: Path) -> Path:
    """Make a ROCm 6 or 7 tree: all compilers are in `lib/llvm/bin`, and `bin` and `llvm` link
    there."""
    _common(home)
    llvm = home / "lib/llvm/bin"
    clang = CLANG_SCRIPT.format(clang=CLANG[19], home=home)
    for name in ("clang++", "clang", "amdclang++", "amdclang"):
        script(llvm / name, clang if name.endswith("++") else clang.replace("clang++", "clang"))
    (llvm.parent / "lib").symlink_to("/usr/lib/llvm-19/lib")
    script(llvm / "hipcc", HIPCC_SCRIPT.format(home=home))
    (home / "llvm").symlink_to("lib/llvm")
    (home / "bin").mkdir()
    for name in ("hipcc", "amdclang++", "amdclang"):
        (home / "bin" / name).symlink_to(f"../lib/llvm/bin/{name}")
    # This hipconfig prints the paths that the environment names, or its own.
    script(
        home / "bin/hipconfig",
        f'#!/bin/sh\nrocm=${{ROCM_PATH:-{home}}}\ncase $1 in\n--hipclangpath) printf %s "$rocm/lib/llvm/bin" ;;\n'
        '--rocmpath) printf %s "$rocm" ;;\n--platform) printf amd ;;\n*) printf 6.0.0 ;;\nesac\n',
    )
    _cmake_package(home)
    return home


def _cmake_package(home: Path) -> None:
    """Copy the package of CMake's HIP language to its place in ROCm. The package and the libraries
    lie one directory less deep there than in Debian."""
    package = home / "lib/cmake/hip-lang"
    shutil.copytree(LIBRARIES / "cmake/hip-lang", package)
    up = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
    for file in package.iterdir():
        text = file.read_text().replace("/../../../../", "/../../../").replace(f"lib/{LIBRARIES.name}/", "lib/")
        # Before a language is known, Debian's CMake does not look for these packages where Debian
        # puts them.
        text = re.sub(r"(?m)^find_dependency\((AMDDeviceLibs|amd_comgr)\)$", "", text)
        file.write_text(text.replace(up, "", 1))


def pip_sdk(venv: Path) -> Path:
    """Make AMD's pip packages in a Python environment: scripts in `bin`, and trees in
    site-packages. Return the tree's root."""
    site = venv / f"lib/python3.{sys.version_info.minor}/site-packages"
    core, devel = site / "_rocm_sdk_core", site / "_rocm_sdk_devel"
    rocm6(core)
    shutil.rmtree(core / "include")  # the headers come with the devel package
    (devel / "include").mkdir(parents=True)
    (devel / "include/hip").symlink_to(HEADERS)
    for entry in core.iterdir():
        if entry.name not in ("bin", "lib"):
            (devel / entry.name).symlink_to(f"../_rocm_sdk_core/{entry.name}")
    (devel / "bin").mkdir()
    (devel / "lib/llvm/bin").mkdir(parents=True)
    for part in ("bin", "lib", "lib/llvm/bin"):
        for entry in (core / part).iterdir():
            if not (devel / part / entry.name).exists():
                up = "../" * len(Path(part).parts)
                (devel / part / entry.name).symlink_to(f"{up}../_rocm_sdk_core/{part}/{entry.name}")
    clang = CLANG_SCRIPT.format(clang=CLANG[19], home=devel)
    # AMD has hard links here, so a clang that is called by this path looks for ROCm around it.
    for name in ("clang++", "amdclang++"):
        (devel / "lib/llvm/bin" / name).unlink()
        script(devel / "lib/llvm/bin" / name, clang)
    (devel / "bin/hipcc").unlink()
    script(devel / "bin/hipcc", HIPCC_SCRIPT.format(home=devel))
    start = "#!{python}\nimport os, sys\nos.execv({program!r}, [{program!r}, *sys.argv[1:]])\n"
    for name, program in (("hipcc", "bin/hipcc"), ("amdclang++", "lib/llvm/bin/amdclang++")):
        script(venv / "bin" / name, start.format(python=sys.executable, program=str(devel / program)))
    said = f'#!/bin/sh\n[ "$1 $2" = "path --root" ] && echo "{devel}"\n'
    script(venv / "bin/rocm-sdk", said)
    return devel
