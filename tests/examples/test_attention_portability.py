"""Tests that the attention example's sources compile unchanged with a real HIP compiler and with
nvcc."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "attention"
BITCODE = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")
VARIANT = "d64_bf16_group_window_alibi"

# Debian spreads a ROCm home over /usr. This is the hipcc of a home that is put together again.
HIPCC = """#!/bin/sh
export HIP_PLATFORM=amd
exec clang++-19 --rocm-path=/usr --rocm-device-lib-path='{device_libs}' -D__HIP_PLATFORM_AMD__=1 "$@"
"""


def build(build_dir: Path, targets: list[str], environment: dict[str, str], *options: str) -> None:
    configure = [
        sys.executable,
        str(EXAMPLE / "configure.py"),
        "--build-dir",
        str(build_dir),
        "--optimize",
        "1",
        *options,
    ]
    subprocess.run([*configure, "--filter", f"*_{VARIANT}"], check=True)
    command = ["ninja", "-C", str(build_dir), "-j2", *targets]
    ninja = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ninja.returncode == 0, ninja.stdout[-4000:]
    assert "warning" not in ninja.stdout


@pytest.mark.hip
@pytest.mark.skipif(shutil.which("clang++-19") is None, reason="clang 19 is not installed")
@pytest.mark.skipif(not Path("/usr/include/hip/hip_runtime.h").is_file(), reason="the HIP headers are not installed")
@pytest.mark.skipif(not BITCODE.is_dir(), reason="the ROCm device libraries are not installed")
def test_sources_compile_with_clang_for_an_amd_gpu(tmp_path: Path) -> None:
    device_libs = tmp_path / "bitcode"
    device_libs.mkdir()
    for library in BITCODE.glob("*.bc"):
        (device_libs / library.name).symlink_to(library)
    hipcc = tmp_path / "rocm" / "bin" / "hipcc"
    hipcc.parent.mkdir(parents=True)
    hipcc.write_text(HIPCC.format(device_libs=device_libs))
    hipcc.chmod(hipcc.stat().st_mode | stat.S_IXUSR)

    objects = [f"obj/attn_{direction}_{VARIANT}.o" for direction in ("fwd", "bwd")]
    objects += ["obj/attn_fwd_api.o", "obj/attn_bwd_api.o", "obj/attention.o"]
    build(tmp_path / "build", objects, {"ROCM_PATH": str(tmp_path / "rocm")}, "--gpu-archs", "gfx90a")
    # The object has the device code, not only the host code.
    assert b"amdgcn-amd-amdhsa--gfx90a" in (tmp_path / "build" / objects[0]).read_bytes()


@pytest.mark.slow
@pytest.mark.cuda
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_library_builds_with_nvcc(tmp_path: Path) -> None:
    build(tmp_path / "build", [], {}, "--backend", "cuda", "--gpu-archs", "sm_80")
    assert (tmp_path / "build" / "libattention.so").is_file()
