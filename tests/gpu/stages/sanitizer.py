"""Run compute-sanitizer's memory checker over kernels out of blobs."""

import sys
from pathlib import Path

from gpu.place import Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import attention

CASES = ("d64_fp16_batch_causal_nobias", "d32_fp32_batch_nomask_nobias")


def build(place: Place, report: Report) -> None:
    """Do nothing, because this stage uses the attention stage's library and its prebuilt cache."""


def prove(place: Place, report: Report) -> None:
    """Check that there is no error, forward and backward."""
    text = f"memcheck over {len(CASES)} variants of the attention example, forward and backward: clean"
    other = place.beside("attention")
    why = place.machine.blind() or ("" if place.machine.sanitizer else "no compute-sanitizer")
    if why:
        report.blind(text, why)
        return
    argv: list[str | Path] = [
        place.machine.sanitizer,
        "--tool",
        "memcheck",
        "--error-exitcode",
        "9",
        sys.executable,
        attention.CALLS,
    ]
    env = other.environment("cache-prebuilt", LAZYCK_JIT="off")
    done = place.run([*argv, attention.library(other), *CASES], env=env, fails=True)
    summary = [line for line in done.stdout.splitlines() if "ERROR SUMMARY" in line]
    is_clean = done.returncode == 0 and any("0 errors" in line for line in summary)
    report.check(text, is_clean, " ".join(summary) or (done.stdout + done.stderr)[-400:])


STAGE = Stage(
    "sanitizer",
    "compute-sanitizer's memcheck over the attention example: clean",
    build_seconds=10,
    seconds=90,
    build=build,
    prove=prove,
    is_alone=True,  # must run after the library that it uses was built
)
