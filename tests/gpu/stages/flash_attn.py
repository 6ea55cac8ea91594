"""Test FlashAttention's CUDA extension: the results of first calls are right. Measure what these
calls cost."""

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from gpu import parcel
from gpu.place import EXAMPLES, Place, complaint
from gpu.report import Report
from gpu.stage import Stage

sys.path.insert(0, str(EXAMPLES / "torch_cuda"))

import extension as ext

EXAMPLE = EXAMPLES / "flash_attn"
MODULE = "flash_attn_2_cuda"
CASES = ("64", "64:causal", "128")  # for gpu_check.py: fp16, forward and backward
FIRST = "flash_fwd_hdim64_fp16_sm80"
DRIVER_INCLUDES = ("flash_attn", "flash_attn/src", "cutlass/include")
_COMPILED = re.compile(r"^\[lazyck\] compiled (\S+) .* in ([0-9.]+) s", re.M)
_FIRST_CALL = """
import time, torch
from flash_attn import flash_attn_func
q, k, v = (torch.randn(8, 193, 16, 64, device="cuda", dtype=torch.float16) for _ in range(3))
torch.cuda.synchronize()
begun = time.monotonic()
flash_attn_func(q, k, v)
torch.cuda.synchronize()
print(time.monotonic() - begun)
"""


def extension(place: Place, how: str, ahead: tuple[str, ...] = ()) -> ext.Place:
    """Prepare the extension's sources below `how`, in an environment to build and call it. All
    kernel files are blobs except those in `ahead`, which are compiled ahead of time."""
    source = parcel.unpack(place, "flash_attn", how)
    names = sorted(p.stem for p in (source / "csrc" / "flash_attn" / "src").glob("flash_*_sm80.cu"))
    blobs = tuple(f"*/csrc/flash_attn/src/{name}.cu" for name in names if name not in ahead)
    variables = {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": place.machine.arch}
    project = ext.Extension(parcel.PROJECTS["flash_attn"].source, MODULE, blobs, variables)
    found = ext.prepare(project, place.work / how, place.machine.arch, source)
    environment = {**found.environment, "MAX_JOBS": str(place.jobs), "LAZYCK_CACHE_DIR": str(place.work / "cache")}
    if place.machine.gpu:
        del environment["LAZYCK_ARCHS"]
    return replace(found, environment=environment)


def build_lazy(place: Place) -> tuple[ext.Place, float, float]:
    """Build with the extension's own setup.py, all 72 files lazily. Return wall-clock and CPU
    seconds."""
    lazy = extension(place, "lazy")
    wall, cpu = ext.build(lazy, checked=0)
    ext.check_symbols(lazy, 72, 72, "void flash::run_mha_")
    return lazy, wall, cpu


def build(place: Place, report: Report) -> None:
    """Build the extension. Then make first calls in parallel, each in a process of its own, because
    each compiles for half a minute."""
    lazy, wall, cpu = build_lazy(place)
    report.saw("72 files are lazy", f"built in {wall:.0f} s, {cpu:.0f} CPU")
    if place.machine.blind(torch=True):
        driver = ext.compile_driver(lazy, EXAMPLE / "driver.cpp", [f"csrc/{d}" for d in DRIVER_INCLUDES])
        first, again, spent = ext.call_twice(lazy, driver, FIRST, "flash_fwd_launch_template.h")
        report.saw(
            "a first call compiles one file and reaches its launch", f"{first['seconds']:.0f} s, {spent:.0f} CPU"
        )
        report.saw("a second process compiles nothing", f"{again['seconds'] * 1000:.0f} ms")
        return
    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(first_call, place, lazy, report)]
        tasks += [pool.submit(check, place, lazy, report, (case,), True) for case in CASES]
    for task in tasks:
        task.result()


def first_call(place: Place, lazy: ext.Place, report: Report) -> None:
    """Measure the seconds from a call to its result, with a cache of its own."""
    environment = {**lazy.environment, "LAZYCK_CACHE_DIR": str(place.work / "cache-first")}
    done = place.run([sys.executable, "-c", _FIRST_CALL], env=environment)
    compiled = _COMPILED.findall(done.stderr)
    # The file is compiled as a whole, or as its host code and its kernel.
    is_one = {name.partition(".")[0] for name, _ in compiled} == {FIRST}
    text = "first call of hdim 64, fp16, while others compile: of one file, what it needs"
    said = ", ".join(f"{name} {seconds} s" for name, seconds in compiled)
    report.check(text, is_one, f"{float(done.stdout):.0f} s: {said}")


def check(place: Place, lazy: ext.Place, report: Report, cases: tuple[str, ...], is_cold: bool) -> None:
    """Compare forward and backward with torch's own attention. If `is_cold`, the cache is empty;
    otherwise nothing may be compiled."""
    begun = time.monotonic()
    done = place.run([sys.executable, EXAMPLE / "gpu_check.py", *cases], env=lazy.environment, fails=True)
    compiled = _COMPILED.findall(done.stderr)
    how = "cold, beside the others" if is_cold else "cached"
    text = f"hdim {', '.join(cases)}, fp16, {how}: within flash-attn's own tolerance of torch's attention"
    is_right = done.returncode == 0 and bool(compiled) == is_cold
    seconds = f"{time.monotonic() - begun:.0f} s in all, {len(compiled)} compiles"
    report.check(
        text, is_right, f"{seconds}: {' '.join(done.stdout.split())}" if done.stdout else complaint(done.stderr)
    )


def prove(place: Place, report: Report) -> None:
    """Compare with torch's attention once more, out of the cache."""
    if why := place.machine.blind(torch=True):
        report.blind("forward and backward, hdim 64 and 128, agree with torch's own attention", why)
        return
    check(place, extension(place, "lazy"), report, CASES, False)


STAGE = Stage(
    "flash_attn",
    "flash-attn, forward and backward, hdim 64 and 128: agrees with torch's attention; seconds of a first call",
    build_seconds=300,
    seconds=60,
    build=build,
    prove=prove,
)
