"""Build FlashAttention's CUDA extension lazily with its own setup.py; call it and measure it.

    python examples/flash_attn/flash_attention.py --work DIR [--samples N] [--row FILE]

This needs nvcc and, in this Python, torch, ninja, packaging, psutil, setuptools and wheel. A torch
without CUDA will do: examples/torch_cuda says what replaces what it lacks. No GPU is needed to
build and to reach a kernel's launcher. With a GPU, and a torch with CUDA, results are compared with
torch's own.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch_cuda")]

import extension as ext  # noqa: E402
from sources import FLASH_ATTN  # noqa: E402

BLOBS = "*/csrc/flash_attn/src/flash_*_sm80.cu"
KINDS = {"fwd": "flash_fwd_hdim", "split": "flash_fwd_split_hdim", "bwd": "flash_bwd_hdim"}  # 24 of each
CALLED = "flash_fwd_hdim64_fp16_sm80"
SAMPLES = ("flash_bwd_hdim64_fp16_sm80", "flash_fwd_split_hdim64_fp16_sm80", "flash_bwd_hdim128_bf16_causal_sm80")


def extrapolate(samples: dict[str, list[float]]) -> float:
    """Return the core-hours of all 72 blobs: each kind by its own samples, else by all."""
    everything = [s for values in samples.values() for s in values]
    means = [sum(v) / len(v) for v in (samples.get(kind, everything) for kind in KINDS)]
    return 24 * sum(means) / 3600


def main() -> None:
    """Build, check, call, compare and sample, in this order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (some 300 MB)")
    parser.add_argument("--arch", default="80", help="the one arch to build for [80]")
    parser.add_argument("--samples", type=int, default=1, help="blobs to compile besides the first call [1]")
    parser.add_argument("--no-call", action="store_true", help="build and check only")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    options = parser.parse_args()
    variables = {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": options.arch}
    project = ext.Extension(FLASH_ATTN, "flash_attn_2_cuda", (BLOBS,), variables)
    place = ext.prepare(project, options.work.resolve(), options.arch)
    wall, cpu = ext.build(place)
    summary = ext.check_symbols(place, 72, 72, "void flash::run_mha_")
    if options.no_call:
        return
    includes = [f"csrc/{d}" for d in ("flash_attn", "flash_attn/src", "cutlass/include")]
    driver = ext.compile_driver(place, HERE / "driver.cpp", includes)
    first, again, compile_cpu = ext.call_twice(place, driver, CALLED, "flash_fwd_launch_template.h")
    compared = ext.compare_on_gpu(place, HERE / "gpu_check.py", ("einops",))
    ext.say(f"forward and backward against torch's reference: {compared}")
    samples = {"fwd": [compile_cpu]}  # the first call compiles one blob for one arch, as the build would
    for stem in SAMPLES[: options.samples]:
        kind = next(kind for kind, lead in KINDS.items() if stem.startswith(lead))
        samples.setdefault(kind, []).append(ext.sample(place, stem))
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
        "first_call": f"{first['seconds']:.0f} s ({compile_cpu:.0f} CPU)",
        "hit": f"{again['seconds'] * 1000:.0f} ms",
        "command": "`python examples/flash_attn/flash_attention.py --work DIR`",
    }
    print(json.dumps({**row, "samples": {k: [round(s) for s in v] for k, v in samples.items()}}))
    if options.row:
        options.row.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
