"""Build other people's torch extensions lazily and test them against their references."""

import json
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu import parcel
from gpu.place import EXAMPLES, Place
from gpu.report import Report
from gpu.stage import Stage

sys.path.insert(0, str(EXAMPLES / "torch_cuda"))

import extension as ext
from cuda_headers import headers

REFERENCES = Path(__file__).with_name("references.py")


@dataclass(frozen=True)
class Build:
    """Describes a build of a setup.py: the module, the blobs for lazyck, and environment
    variables."""

    module: str
    blobs: str
    variables: Mapping[str, str] = field(default_factory=dict)


BUILDS = {
    "mamba": Build(
        "selective_scan_cuda",
        "*/csrc/selective_scan/selective_scan_[fb]wd_*.cu",
        {"MAMBA_FORCE_BUILD": "TRUE"},
    ),
    "gsplat": Build("gsplat/csrc.so", "*/gsplat/cuda/csrc/*.cu"),
    "exllamav2": Build("exllamav2_ext", "*/exllamav2_ext/cuda/*.cu"),
}


def extension(place: Place, name: str) -> ext.Place:
    """Prepare an extension's sources in an environment to build and call it."""
    wanted, arch = BUILDS[name], place.machine.arch
    variables = {"TORCH_CUDA_ARCH_LIST": f"{arch[:-1]}.{arch[-1]}", **wanted.variables}
    project = ext.Extension(parcel.PROJECTS[name].source, wanted.module, (wanted.blobs,), variables)
    found = ext.prepare(project, place.work / f"{name}-work", arch, parcel.unpack(place, name))
    environment = {**found.environment, "MAX_JOBS": str(place.jobs), "LAZYCK_CACHE_DIR": str(place.work / "cache")}
    environment["CPATH"] = os.pathsep.join([str(headers(place.work, place.machine.home)), os.environ.get("CPATH", "")])
    if place.machine.gpu:
        del environment["LAZYCK_ARCHS"]
    return replace(found, environment=environment)


def build(place: Place, report: Report) -> None:
    """Build each extension with its own setup.py and make its first calls, all in parallel."""
    with ThreadPoolExecutor(max(1, place.jobs // 4)) as pool:
        tasks = [pool.submit(build_one, place, report, name) for name in BUILDS]
    for task in tasks:
        task.result()


def build_one(place: Place, report: Report, name: str) -> None:
    """Build one project and make its first calls."""
    begun = time.monotonic()
    made = extension(place, name)
    ext.build(made, checked=0)
    lazy, eager = place.blobs(made.library)
    detail = f"{lazy} lazy, {eager} eager; {time.monotonic() - begun:.0f} s, beside the others"
    report.check(f"{name}: all of its blobs are lazy", lazy > 0 and eager == 0, detail)
    if not place.machine.blind(torch=True):
        call(place, report, name, is_cold=True)


def call(place: Place, report: Report, name: str, is_cold: bool) -> None:
    """Compare an extension's results with its reference. If `is_cold`, the cache is empty;
    otherwise nothing may be compiled."""
    begun = time.monotonic()
    made = extension(place, name)
    text = f"{name}: forward and backward agree with its reference, {'cold' if is_cold else 'cached'}"
    done = place.run([sys.executable, REFERENCES, name], cwd=made.source, env=made.environment, fails=True)
    if done.returncode != 0:
        report.missed(text, (done.stdout + done.stderr)[-400:])
        return
    errors: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    compiled = done.stderr.count("] compiled ")
    worst = max(errors, key=lambda k: errors[k])
    figures = f"worst: {worst}, {errors[worst]:.2f} of what is allowed"
    detail = f"{len(errors)} results; {figures}; {compiled} compiles; {time.monotonic() - begun:.0f} s in all"
    report.check(text, errors[worst] <= 1 and bool(compiled) == is_cold, detail)


def prove(place: Place, report: Report) -> None:
    """Compare the kernels of each extension with its reference once more, out of the cache."""
    for name in BUILDS:
        if why := place.machine.blind(torch=True):
            report.blind(f"{name}: forward and backward agree with its reference", why)
            continue
        call(place, report, name, is_cold=False)


STAGE = Stage(
    "extensions",
    "Mamba's selective scan, gsplat and exllamav2 agree with their references",
    build_seconds=300,
    seconds=200,
    build=build,
    prove=prove,
)
