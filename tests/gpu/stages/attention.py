"""Test the attention example for CUDA and HIP: every variant computes cold, cached and without a
compiler."""

import json
import re
import sys
from pathlib import Path

from gpu.place import EXAMPLES, Place
from gpu.report import Report
from gpu.stage import Stage

CALLS = Path(__file__).with_name("attention_calls.py")
VARIANTS = 360
SHORT = "*_d64_fp16_group_window_alibi"
COLD = ("d64_fp16_batch_causal_nobias", "d128_bf16_group_window_alibi", "d32_fp32_batch_nomask_nobias")
NO_DRIVER = "CUDA driver version is insufficient"


def library(place: Place) -> Path:
    """Return the path of the lazy library that `build` makes."""
    return place.work / "install" / "libattention.so"


def build(place: Place, report: Report) -> None:
    """Run the example's own ninja under lazyck. Then prebuild every variant into a cache of its
    own."""
    is_hip = place.machine.platform == "hip"
    archs = place.machine.arch if is_hip else f"sm_{place.machine.arch}"
    words = ["--build-dir", str(place.work / "build"), "--gpu-archs", archs, *([] if is_hip else ["--backend", "cuda"])]
    words += ["--filter", SHORT] if place.is_short else []
    place.run([sys.executable, EXAMPLES / "attention" / "configure.py", *words])
    lazily = ["--gpu-archs", place.machine.arch, "--toolchain", "rocm" if is_hip else "cuda"]
    dirs: list[str | Path] = ["--tmp-dir", place.work / "tmp", "--install-dir", place.work / "install"]
    ninja: list[str | Path] = [sys.executable, "-m", "ninja", "-C", place.work / "build", "--quiet"]
    place.lazyck("build", "full", *lazily, *dirs, "--", *ninja)
    expected = 2 if place.is_short else VARIANTS
    report.check(f"{expected} variants are lazy", place.blobs(library(place)) == (expected, 0))
    place.prebuild(library(place), "--all", env=place.environment("cache-prebuilt"))
    made = len(list((place.work / "cache-prebuilt").rglob("*.so")))
    report.check(f"{expected} variants are prebuilt", made == expected, f"{made}")


def call(place: Place, cache: str, cases: tuple[str, ...], **more: str) -> tuple[dict[str, float], str, str]:
    """Call forward and backward of `cases` in a process of its own; no cases means all. Return the
    largest error of each as a share of what is allowed, what lazyck printed, and the CUDA or HIP
    error with which the process ended."""
    argv: list[str | Path] = [sys.executable, CALLS, library(place), *cases]
    done = place.run(argv, env=place.environment(cache, **more), fails=True)
    if done.returncode == 0:
        errors: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return errors, done.stderr, ""
    return {}, done.stderr, (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


def prove(place: Place, report: Report) -> None:
    """Call the variants cold, cached and frozen."""
    cases = (SHORT.removeprefix("*_"),) if place.is_short else COLD
    cold, said, error = call(place, "cache-cold", cases)
    compiled = re.findall(r"^\[lazyck\] compiled (\S+) ", said, re.M)
    if not place.machine.gpu:
        # Asking a blob for its name calls the blob without any device memory.
        asked = [place.run([sys.executable, CALLS, library(place), "--name"], fails=True) for _ in range(2)]
        has_reached = "attn_bwd_d64" in asked[0].stdout and "compiled attn_bwd" in asked[0].stderr
        report.check(
            "a first call compiles its variant, loads it, and runs its host code", has_reached, asked[0].stderr
        )
        is_cached = asked[1].stdout == asked[0].stdout and not asked[1].stderr
        report.check("a second process compiles nothing", is_cached, asked[1].stderr)
        report.check("a launch asks for the driver", NO_DRIVER in error, error)
        for what in ("forward and backward agree with NumPy, cold, cached and frozen", "all variants are called"):
            report.blind(what, "no GPU")
        return
    text = f"{len(cases)} variants, forward and backward"
    _check(report, f"{text}: cold, compiled at their first calls, they agree with NumPy", cold, len(cases), error)
    # A variant is compiled as a whole, or as its host code and its kernel.
    variants = {name.partition(".")[0] for name in compiled}
    is_once = len(variants) == 2 * len(cases) and len(set(compiled)) == len(compiled)
    report.check("each was compiled once", is_once, f"{len(compiled)} compiles of {len(variants)} variants")
    cached, said, error = call(place, "cache-cold", cases)
    report.check("a second process compiles nothing", "compiled" not in said, said[:200])
    _check(report, f"{text}: cached, they agree", cached, len(cases), error)
    everything = cases if place.is_short else ()
    count = len(cases) if place.is_short else VARIANTS // 2
    frozen, said, error = call(place, "cache-prebuilt", everything, LAZYCK_JIT="off")
    _check(report, f"all {2 * count} variants, prebuilt and with LAZYCK_JIT=off, agree", frozen, count, error)


def _check(report: Report, text: str, errors: dict[str, float], count: int, error: str) -> None:
    worst = max(errors.values(), default=float("inf"))
    is_right = len(errors) == count and worst <= 1
    report.check(text, is_right, error or f"largest error {worst:.2f} of what is allowed, {len(errors)} pairs")


STAGE = Stage(
    "attention",
    "the attention example agrees with NumPy, forward and backward: cold, cached, frozen; all 360 variants called",
    build_seconds=300,
    seconds=120,
    build=build,
    prove=prove,
)
