"""Make a ROCm home of Debian's packages: its `bin/hipcc` is clang 19 with the options that CK
needs.

Debian spreads ROCm over its ordinary directories, and has no `hipcc` for clang 19 and no device
library for gfx942. This module puts links and the missing file (one constant) into one directory
that looks like /opt/rocm.
"""

import shlex
import shutil
import subprocess
from pathlib import Path

CLANG = "clang++-19"
BITCODE = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
PACKAGES = "hipcc libamdhip64-dev rocm-device-libs clang-19 lld-19 clang-tools-19 llvm-19"
ISA = """
extern const __attribute__((address_space(4))) int __oclc_ISA_version;
const __attribute__((address_space(4))) int __oclc_ISA_version = {number};
"""
HIPCC = """#!/bin/sh
# hipcc over {clang}: a compile gets the HIP language and Debian's paths, a link the HIP runtime.
[ -z "$CK_HIPCC_LOG" ] || echo "$*" >> "$CK_HIPCC_LOG"
export HIP_PLATFORM=amd
for word in "$@"; do
    case $word in
    -c | -E | -S | -M | -MM | -fsyntax-only | -)
        exec {clang} -x hip --rocm-path=/usr --rocm-device-lib-path={bitcode} -D__HIP_PLATFORM_AMD__=1 "$@" ;;
    --version | -v | -dumpversion)
        exec {clang} "$@" ;;
    esac
done
exec {clang} "$@" -lamdhip64
"""


def missing_packages() -> str:
    """Return the apt command that installs what is missing, or an empty string if nothing is."""
    have = shutil.which(CLANG) and BITCODE.is_dir() and Path("/usr/include/hip/hip_runtime.h").is_file()
    return "" if have else f"apt-get install {PACKAGES}"


def make(home: Path, arch: str = "gfx942") -> Path:
    """Make the home at `home` and return it."""
    clang = shutil.which(CLANG)
    assert clang is not None
    bitcode = home / "amdgcn" / "bitcode"
    bitcode.mkdir(parents=True, exist_ok=True)
    for file in BITCODE.glob("*.bc"):
        link = bitcode / file.name
        if not link.exists():
            link.symlink_to(file)
    isa = arch.removeprefix("gfx")
    target = bitcode / f"oclc_isa_version_{isa}.bc"
    if not target.exists():
        number = int(isa[:-2]) * 1000 + int(isa[-2], 16) * 100 + int(isa[-1], 16)
        argv = [
            "clang-19",
            "-x",
            "c",
            "--target=amdgcn-amd-amdhsa",
            "-nogpulib",
            "-O0",
            "-Xclang",
            "-disable-O0-optnone",
        ]
        argv += ["-fvisibility=hidden", "-emit-llvm", "-c", "-", "-o", str(target)]
        subprocess.run(argv, input=ISA.format(number=number).encode(), check=True)
    hipcc = home / "bin" / "hipcc"
    hipcc.parent.mkdir(exist_ok=True)
    hipcc.write_text(HIPCC.format(clang=shlex.quote(clang), bitcode=shlex.quote(str(bitcode))))
    hipcc.chmod(0o755)
    for name, place in (("include", "/usr/include"), ("lib", "/usr/lib/x86_64-linux-gnu")):
        if not (home / name).exists():
            (home / name).symlink_to(place)
    return home
