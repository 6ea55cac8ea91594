"""FlashAttention's CUDA extension: right results, its own tests as ahead of time, and what a first call takes."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gpu import parcel
from gpu.place import EXAMPLES, Place, StageError
from gpu.report import Report
from gpu.stage import Stage

sys.path.insert(0, str(EXAMPLES / "torch_cuda"))

import extension as ext

EXAMPLE = EXAMPLES / "flash_attn"
MODULE = "flash_attn_2_cuda"
# fp16, forward and backward: what the tests of the sample call, all of whose shapes fill the device, so that no kernels
# that split the keys (other files) are chosen
CALLED = tuple(
    f"flash_{direction}_{variant}_sm80"
    for variant in ("hdim64_fp16", "hdim64_fp16_causal", "hdim128_fp16")
    for direction in ("fwd", "bwd")
)
FIRST = CALLED[0]
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


def extension(place: Place, how: str) -> ext.Place:
    """The extension's sources below `how`, in an environment to build and call it. Of `ahead` the sample's files are no
    blobs, and so compiled by its build; all others, which nobody calls, are."""
    source = parcel.unpack(place, "flash_attn", how)
    names = sorted(p.stem for p in (source / "csrc" / "flash_attn" / "src").glob("flash_*_sm80.cu"))
    blobs = tuple(f"*/csrc/flash_attn/src/{name}.cu" for name in names if how == "lazy" or name not in CALLED)
    variables = {"FLASH_ATTENTION_FORCE_BUILD": "TRUE", "FLASH_ATTN_CUDA_ARCHS": place.machine.arch}
    project = ext.Extension(parcel.PROJECTS["flash_attn"].source, MODULE, blobs, variables)
    found = ext.prepare(project, place.work / how, place.machine.arch, source)
    environment = {**found.environment, "MAX_JOBS": str(place.jobs), "LAZYCK_CACHE_DIR": str(place.work / "cache")}
    if place.machine.gpu:
        del environment["LAZYCK_ARCHS"]
    return replace(found, environment=environment)


def build(place: Place, report: Report) -> None:
    """Its own setup.py, lazily; then side by side, since each file takes minutes: a first call, the other files of the
    sample, and the same files ahead of time."""
    lazy = extension(place, "lazy")
    wall, cpu = ext.build(lazy, checked=0)
    ext.check_symbols(lazy, 72, 72, "void flash::run_mha_")
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
        tasks: list[Future[object]] = [
            pool.submit(first_call, place, lazy, report),
            pool.submit(prebuild, place, lazy),
            pool.submit(lambda: ext.build(extension(place, "ahead"), checked=0, more=("--kernels", ""))),
        ]
    for task in tasks:
        task.result()


DRIVER_INCLUDES = ("flash_attn", "flash_attn/src", "cutlass/include")


def first_call(place: Place, lazy: ext.Place, report: Report) -> None:
    """Seconds from a call to its result, of an empty cache."""
    done = place.run([sys.executable, "-c", _FIRST_CALL], env=lazy.environment)
    compiled = re.findall(r"^\[lazyck\] compiled (\S+) .*$", done.stderr, re.M)
    # the file as a whole, or its host code and its kernel
    is_one = {name.partition(".")[0] for name in compiled} == {FIRST}
    text = "first call of hdim 64, fp16, while other files are compiled: of one file, what it needs"
    said = "; ".join(line for line in done.stderr.splitlines() if "] compiled " in line)
    report.check(text, is_one, f"{float(done.stdout):.0f} s: {said}")


def prebuild(place: Place, lazy: ext.Place) -> None:
    """The other files of the sample."""
    place.prebuild(lazy.library, *(n for n in CALLED if n != FIRST), env=lazy.environment)


def prove(place: Place, report: Report) -> None:
    """Against torch's own attention; then its own tests, both ways."""
    for text in ("forward and backward, hdim 64 and 128, agree with torch's own attention", "its own tests, both ways"):
        if why := place.machine.blind(torch=True):
            report.blind(text, why)
    if place.machine.blind(torch=True):
        return
    lazy, ahead = (extension(place, how) for how in ("lazy", "ahead"))
    done = place.run([sys.executable, EXAMPLE / "gpu_check.py", "64", "128"], env=lazy.environment, fails=True)
    lines = " ".join(done.stdout.split("\n"))
    text = "forward and backward, hdim 64 and 128, fp16: within flash-attn's own tolerance of torch's attention"
    report.check(text, done.returncode == 0, lines or done.stderr[-300:])
    results = {}
    for how, where in (("ahead", ahead), ("lazy", lazy)):
        results[how] = run_tests(place, where, place.work / f"{how}.xml")
    counts = {state: list(results["lazy"].values()).count(state) for state in sorted(set(results["lazy"].values()))}
    differ = [
        n for n in results["lazy"].keys() | results["ahead"].keys() if results["lazy"].get(n) != results["ahead"].get(n)
    ]
    report.check(
        f"its own tests, {len(results['lazy'])} of tests/test_flash_attn.py: the same results as ahead of time",
        not differ and counts.get("passed", 0) > 0,
        f"lazily {counts}; {len(differ)} differ {sorted(differ)[:3]}",
    )


def run_tests(place: Place, where: ext.Place, results: Path) -> dict[str, str]:
    """How each test of the sample (`flash_sample.py`) ended, by its name."""
    side_by_side = ["-n", "4"] if importlib.util.find_spec("xdist") else []
    argv: list[str | Path] = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flash_sample"]
    paths = os.pathsep.join([str(Path(__file__).parent), where.environment["PYTHONPATH"]])
    words = [*argv, *side_by_side, f"--junitxml={results}", "tests/test_flash_attn.py"]
    done = place.run(words, cwd=where.source, env={**where.environment, "PYTHONPATH": paths}, fails=True)
    if not results.is_file():
        raise StageError(f"pytest wrote no results: {(done.stdout + done.stderr)[-500:]}")
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        states = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[case.get("name", "")] = states[0] if states else "passed"
    return found


STAGE = Stage(
    "flash_attn",
    "flash-attn, forward and backward, hdim 64 and 128: agrees with torch's attention; its own tests end as ahead of "
    "time; seconds of a first call",
    build_seconds=480,
    seconds=150,
    build=build,
    prove=prove,
)
