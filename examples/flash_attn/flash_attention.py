"""FlashAttention's CUDA extension, lazily: built by its own setup.py, called, measured.

    python examples/flash_attn/flash_attention.py --work DIR [--samples N] [--row FILE]

Needs nvcc and, in this Python, torch, ninja, packaging, psutil, setuptools and wheel. A torch without CUDA will do: see
the README for what stands in for what it lacks. No GPU is needed to build and to reach a kernel's launcher; where there
is one, and a torch with CUDA, results are compared with torch's own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

import stand_ins  # noqa: E402
from sources import Source, cpu_of_children, fetch, lazyck, summaries  # noqa: E402

from lazyck.postbuild import elf  # noqa: E402
from lazyck.postbuild.eager import writing_to  # noqa: E402
from lazyck.toolchains import by_name  # noqa: E402

SOURCE = Source(
    "flash-attn==2.8.3.post2",
    "flash_attn-2.8.3.post2.tar.gz",
    "d0f9f0b08a986cdeadbffcf5ec8b3a8f514366c68ad1853d3ab061bc83cc340b",
)
MODULE = "flash_attn_2_cuda"
BLOBS = "*/csrc/flash_attn/src/flash_*_sm80.cu"
KINDS = {"fwd": "flash_fwd_hdim", "split": "flash_fwd_split_hdim", "bwd": "flash_bwd_hdim"}
SAMPLES = ("flash_bwd_hdim64_fp16_sm80", "flash_fwd_split_hdim64_fp16_sm80", "flash_bwd_hdim128_bf16_causal_sm80")
REQUIREMENTS = ("torch", "ninja", "packaging", "psutil", "setuptools", "wheel")


@dataclass
class Place:
    """Where things are, and what this torch is like."""

    work: Path
    source: Path
    arch: str
    cuda_home: str
    has_cuda_torch: bool
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def tmp(self) -> Path:
        return self.work / "lazyck"

    @property
    def stand_ins(self) -> Path:
        return self.work / "stand-ins"

    @property
    def extension(self) -> Path:
        return self.source / (MODULE + sysconfig.get_config_var("EXT_SUFFIX"))


def say(text: str) -> None:
    print(f"flash_attention: {text}", flush=True)


def prepare(work: Path, arch: str) -> Place:
    """Fetch and unpack; find out about torch and CUDA. Ends the program where something is missing."""
    missing = [name for name in REQUIREMENTS if find_spec(name) is None]
    if missing:
        sys.exit(f"this Python lacks {', '.join(missing)}: {sys.executable} -m pip install {' '.join(missing)}")
    import torch

    found = by_name("cuda").find(dict(os.environ))
    if found is None:
        sys.exit(f"no nvcc found (looked at {by_name('cuda').searched()})")
    place = Place(work, fetch(SOURCE, work), arch, found.home, torch.version.cuda is not None)
    libraries = [str(Path(torch.__file__).parent / "lib"), *(f"{found.home}/{d}" for d in ("lib64", "lib"))]
    if not place.has_cuda_torch:
        libraries.insert(0, str(place.stand_ins))
    place.environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]),
        "PYTHONPATH": str(place.source),
        "CUDA_HOME": found.home,
        "LAZYCK_CACHE_DIR": str(work / "cache"),
        "LAZYCK_ARCHS": arch,
        # what its setup.py reads
        "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
        "FLASH_ATTN_CUDA_ARCHS": arch,
        "MAX_JOBS": os.environ.get("MAX_JOBS", "2"),
    }
    return place


# -- building ----------------------------------------------------------------------------------------


def build(place: Place) -> tuple[float, float]:
    """`lazyck build full` around setup.py; wall and CPU seconds."""
    for old in (place.source / "build", place.tmp):
        shutil.rmtree(old, ignore_errors=True)
    place.extension.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "as_cuda_torch.py"), "setup.py", "-q", "build_ext", "--inplace"]
    if not place.has_cuda_torch:
        stand_ins.make(place.stand_ins)
        command += ["-I", str(HERE / "include"), "-L", str(place.stand_ins)]
    begun, cpu = time.monotonic(), cpu_of_children()
    options = ["--toolchain", "cuda", "--blobs", BLOBS, "--tmp-dir", place.tmp]
    lazyck("build", "full", *options, "--", *command, cwd=place.source, env=place.environment)
    wall, cpu = time.monotonic() - begun, cpu_of_children() - cpu
    if not place.has_cuda_torch:
        lacking = stand_ins.undefined(place.extension, place.environment)
        say(f"stand-ins for {len(lacking)} functions of libc10_cuda and libtorch_cuda, which this torch lacks")
        stand_ins.make(place.stand_ins, [*lacking])
    return wall, cpu


def check_symbols(place: Place) -> dict[str, Any]:
    """Every instance has its stub, and nothing is left undefined. Ends the program if not; lazyck's summary."""
    (summary,) = summaries(place.tmp).values()
    exported = elf.read_shared(place.extension).defined
    readable = stand_ins.demangle([s for s in exported if "run_mha_" in s])
    dispatched = [s for s in readable if s.startswith("void flash::run_mha_")]
    left = stand_ins.undefined(place.extension, place.environment)
    say(f"{len(dispatched)} functions of FlashAttention's instances are exported, {len(left)} symbols are undefined")
    if len(dispatched) != 72 or left or (summary["lazy"], summary["symbols"]) != (72, 72):
        sys.exit(f"expected 72 lazy blobs with 72 symbols and nothing undefined: {summary}, {left[:5]}")
    return dict(summary)


# -- calling -----------------------------------------------------------------------------------------

CALL = """
import ctypes, json, sys
import torch, flash_attn_2_cuda
driver = ctypes.CDLL(sys.argv[1])
driver.call_forward.restype = ctypes.c_double
said = ctypes.create_string_buffer(4096)
seconds = driver.call_forward(said, ctypes.c_size_t(len(said)))
print(json.dumps({"seconds": seconds, "said": said.value.decode(), "functions": len(dir(flash_attn_2_cuda))}))
"""


def compile_driver(place: Place) -> Path:
    """The small library that calls one forward variant."""
    import torch.utils.cpp_extension as cpp_extension

    driver = place.work / "driver.so"
    includes = [f"csrc/{d}" for d in ("flash_attn", "flash_attn/src", "cutlass/include")]
    directories = [*(str(place.source / i) for i in includes), *cpp_extension.include_paths()]
    directories += [f"{place.cuda_home}/include", str(HERE / "include")]
    argv = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", *(f"-I{d}" for d in directories)]
    subprocess.run([*argv, str(HERE / "driver.cpp"), "-o", str(driver), str(place.extension)], check=True)
    return driver


def call(place: Place, driver: Path) -> tuple[dict[str, Any], float, str]:
    """Call the variant in a process of its own: its answer, CPU seconds, what lazyck said."""
    cpu = cpu_of_children()
    argv = [sys.executable, "-c", CALL, str(driver)]
    done = subprocess.run(argv, env=place.environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the call failed: {done.stdout}{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    said = "".join(f"{line}\n" for line in done.stderr.splitlines() if line.startswith("lazyck"))
    say(f"call of hdim 64, fp16: {answer['seconds']:.2f} s; {answer['said'] or 'launched'}")
    return answer, cpu_of_children() - cpu, said


def call_twice(place: Place) -> tuple[dict[str, Any], dict[str, Any], float]:
    """First call and hit. Ends the program if the second process compiles, or the launcher was not reached."""
    driver = compile_driver(place)
    shutil.rmtree(place.work / "cache", ignore_errors=True)
    first, cpu, compiled = call(place, driver)
    again, _, silent = call(place, driver)
    if "compiled flash_fwd_hdim64_fp16_sm80" not in compiled or silent:
        sys.exit(f"expected one compile in the first process and none in the second: {compiled}\n{silent}")
    if not has_gpu() and "flash_fwd_launch_template.h" not in first["said"] + str(place.has_cuda_torch):
        sys.exit(f"expected a CUDA error out of the compiled launcher: {first['said']}")
    return first, again, cpu


def has_gpu() -> bool:
    """Whether the CUDA driver is there and has a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def compare_on_gpu(place: Place) -> str:
    """Forward and backward against torch's reference, or why not."""
    if not has_gpu():
        return "skipped: no GPU"
    if not place.has_cuda_torch:
        return "skipped: this torch has no CUDA"
    if find_spec("einops") is None:
        return "skipped: einops, which flash_attn imports, is not installed"
    environment = {k: v for k, v in place.environment.items() if k != "LAZYCK_ARCHS"}
    if subprocess.run([sys.executable, str(HERE / "gpu_check.py")], env=environment).returncode != 0:
        sys.exit("the comparison with torch's reference failed")
    return "agrees"


# -- measuring ---------------------------------------------------------------------------------------


def kind_of(stem: str) -> str:
    return next(kind for kind, lead in KINDS.items() if stem.startswith(lead))


def sample(place: Place, stem: str) -> float:
    """CPU seconds of one blob compiled as setup.py would have had it compiled."""
    (recorded,) = (place.source / "build").glob(f"temp.*/**/{stem}.o")
    (blob,) = elf.deferred_records(str(recorded))
    cpu = cpu_of_children()
    subprocess.run(writing_to(blob, place.work / "sample.o"), cwd=blob.call.cwd, env=place.environment, check=True)
    seconds = cpu_of_children() - cpu
    say(f"ahead of time: {stem}: {seconds:.0f} s CPU")
    return seconds


def extrapolate(samples: dict[str, list[float]]) -> float:
    """Core-hours of all 72: each kind by its own samples, else by all."""
    everything = [s for values in samples.values() for s in values]
    means = [sum(v) / len(v) for v in (samples.get(kind, everything) for kind in KINDS)]
    return 24 * sum(means) / 3600


def main() -> None:
    """All of it, in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (some 300 MB)")
    parser.add_argument("--arch", default="80", help="the one arch to build for [80]")
    parser.add_argument("--samples", type=int, default=1, help="blobs to compile besides the first call [1]")
    parser.add_argument("--no-call", action="store_true", help="build and check only: seconds, not minutes")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    options = parser.parse_args()
    place = prepare(options.work.resolve(), options.arch)
    wall, cpu = build(place)
    summary = check_symbols(place)
    if options.no_call:
        return
    first, again, compile_cpu = call_twice(place)
    say(f"forward and backward against torch's reference: {compare_on_gpu(place)}")
    samples = {"fwd": [compile_cpu]}  # the first call compiles one blob for one arch, as the build would
    for stem in SAMPLES[: options.samples]:
        samples.setdefault(kind_of(stem), []).append(sample(place, stem))
    taken = sum(map(len, samples.values()))
    row = {
        "project": "flash-attn 2.8.3.post2, CUDA",
        "build": "its setup.py: torch's BuildExtension, ninja",
        "toolchain": "cuda (nvcc)",
        "files": summary["deferred"],
        "symbols": summary["symbols"],
        "lazy": summary["lazy"],
        "eager": len(summary["eager"]),
        "lazy_seconds": f"{wall:.0f} ({cpu:.0f} CPU)",
        "ahead": f"{extrapolate(samples):.1f} core-hours for one arch ({taken} of 72 blobs sampled)",
        "first_call": f"{first['seconds']:.0f} s",
        "hit": f"{again['seconds'] * 1000:.0f} ms",
        "command": "`python examples/flash_attn/flash_attention.py --work DIR`",
    }
    say(json.dumps({**row, "samples": {k: [round(s) for s in v] for k, v in samples.items()}}))
    if options.row:
        options.row.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
