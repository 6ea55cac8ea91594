"""Build Mamba's CUDA extension lazily with its own setup.py; call it and measure it.

    python examples/mamba/mamba_ssm_cuda.py --work DIR [--row FILE]

Its setup.py compiles each of 9 files for up to 9 archs; a first call compiles one file for one
arch. The requirements are those of examples/flash_attn and examples/torch_cuda.
"""

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch_cuda")]

import extension as ext  # noqa: E402
from sources import MAMBA  # noqa: E402

from lazyck.postbuild.objects.embedded import read_manifest  # noqa: E402

BLOBS = "*/csrc/selective_scan/selective_scan_[fb]wd_*.cu"
CALLED = "selective_scan_fwd_fp32"


def main() -> None:
    """Build, check and call, in this order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="directory for everything (some 200 MB)")
    parser.add_argument("--arch", default="80", help="the arch of the call, where no GPU answers [80]")
    parser.add_argument("--no-call", action="store_true", help="build and check only")
    parser.add_argument("--row", type=Path, help="write the row of docs/projects.md here, as JSON")
    options = parser.parse_args()
    project = ext.Extension(MAMBA, "selective_scan_cuda", (BLOBS,), {"MAMBA_FORCE_BUILD": "TRUE"})
    place = ext.prepare(project, options.work.resolve(), options.arch)
    wall, cpu = ext.build(place)
    summary = ext.check_symbols(place, 9, 12, "void selective_scan_")
    archs = len(read_manifest(place.library).archs)
    if options.no_call:
        return
    driver = ext.compile_driver(place, HERE / "driver.cpp", ["csrc/selective_scan"])
    first, again, compile_cpu = ext.call_twice(place, driver, CALLED, "selective_scan_fwd_kernel.cuh")
    hours = 9 * archs * compile_cpu / 3600
    row = {
        "project": "mamba-ssm 2.3.2.post1, CUDA",
        "build": "its setup.py: torch's BuildExtension, ninja",
        "toolchain": "cuda (nvcc)",
        "files": summary["deferred"],
        "symbols": summary["symbols"],
        "lazy": summary["lazy"],
        "eager": len(summary["eager"]),
        "lazy_seconds": f"{wall:.0f} ({cpu:.0f} CPU)",
        "ahead": f"{hours:.1f} core-hours for its {archs} archs (1 of 9 blobs sampled, for 1 arch)",
        "first_call": f"{first['seconds']:.0f} s ({compile_cpu:.0f} CPU)",
        "hit": f"{again['seconds'] * 1000:.0f} ms",
        "command": "`python examples/mamba/mamba_ssm_cuda.py --work DIR`",
    }
    print(json.dumps({**row, "sample": round(compile_cpu)}))
    if options.row:
        options.row.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()
