"""Run FlashAttention's own tests, lazily and ahead of time."""

import importlib.util
import os
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from gpu.place import EXAMPLES, Place, StageError
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import flash_attn

sys.path.insert(0, str(EXAMPLES / "torch_cuda"))

import extension as ext

# The tests of the sample call these files: fp16, forward and backward. All its shapes fill the
# device, so that flash-attn does not choose kernels that split the keys, which lie in other files.
CALLED = tuple(
    f"flash_{direction}_{variant}_sm80"
    for variant in ("hdim64_fp16", "hdim64_fp16_causal", "hdim128_fp16")
    for direction in ("fwd", "bwd")
)
TEXT = "a sample of its own tests"


def build(place: Place, report: Report) -> None:
    """Build lazily, with the files of the sample prebuilt. In parallel, build with those files
    compiled ahead of time; all others are blobs there, which nobody calls."""
    if why := place.machine.blind(torch=True):
        report.blind(TEXT, why)
        return
    with ThreadPoolExecutor() as pool:
        tasks: list[Future[object]] = [
            pool.submit(build_lazy, place),
            pool.submit(lambda: ext.build(ahead(place), checked=0, more=("--kernels", ""))),
        ]
    for task in tasks:
        task.result()


def ahead(place: Place) -> ext.Place:
    """Prepare the extension that has the sample's files compiled ahead of time."""
    return flash_attn.extension(place, "ahead", CALLED)


def build_lazy(place: Place) -> None:
    """Build with all files as blobs, and prebuild those of the sample."""
    lazy, _, _ = flash_attn.build_lazy(place)
    place.prebuild(lazy.library, *CALLED, env=lazy.environment)


def prove(place: Place, report: Report) -> None:
    """Run the tests both ways and compare the results."""
    if place.machine.blind(torch=True):
        return
    results = {}
    for how, where in (("ahead", ahead(place)), ("lazy", flash_attn.extension(place, "lazy"))):
        results[how] = run_tests(place, where, place.work / f"{how}.xml")
    counts = {state: list(results["lazy"].values()).count(state) for state in sorted(set(results["lazy"].values()))}
    differ = [
        n for n in results["lazy"].keys() | results["ahead"].keys() if results["lazy"].get(n) != results["ahead"].get(n)
    ]
    report.check(
        f"{len(results['lazy'])} of tests/test_flash_attn.py: the same results as ahead of time",
        not differ and counts.get("passed", 0) > 0,
        f"lazily {counts}; {len(differ)} differ {sorted(differ)[:3]}",
    )


def run_tests(place: Place, where: ext.Place, results: Path) -> dict[str, str]:
    """Return how each test of the sample (`flash_sample.py`) ended, by its name."""
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
    "flash_tests",
    "a sample of flash-attn's own tests, lazily: each ends as ahead of time",
    build_seconds=480,
    seconds=150,
    build=build,
    prove=prove,
)
