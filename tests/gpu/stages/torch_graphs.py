"""Test operators of torch out of blobs, in CUDA graphs and under torch.compile."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from gpu.place import EXAMPLES, Place
from gpu.report import Report
from gpu.stage import Stage
from gpu.stages import launches

sys.path.insert(0, str(EXAMPLES / "torch_cuda"))

import extension as ext
from sources import Source

CALLS = Path(__file__).with_name("torch_graphs_calls.py")
OURS = Source("", "torch_ops", "")  # there is no archive: the project lies in tests/gpu/programs


def extension(place: Place) -> ext.Place:
    """Copy the project and prepare an environment to build and call it."""
    source = place.work / "torch_ops"
    shutil.copytree(launches.PROGRAMS / "torch_ops", source, dirs_exist_ok=True)
    arch = place.machine.arch
    project = ext.Extension(OURS, "lazy_ops.so", ("*/blob/*.cu",), {"TORCH_CUDA_ARCH_LIST": f"{arch[:-1]}.{arch[-1]}"})
    found = ext.prepare(project, place.work, arch, source)
    environment = {**found.environment, "MAX_JOBS": str(place.jobs)}
    if place.machine.gpu:
        del environment["LAZYCK_ARCHS"]
    return replace(found, environment=environment)


def build(place: Place, report: Report) -> None:
    """Build the project with its own setup.py."""
    made = extension(place)
    ext.build(made, checked=0)
    report.check("both blobs are lazy", place.blobs(made.library) == (2, 0))


def prove(place: Place, report: Report) -> None:
    """Run the calls in a process of their own."""
    if why := place.machine.blind(torch=True):
        report.blind("torch.cuda.graph, torch.compile", why)
        return
    made = extension(place)
    done = place.run([sys.executable, CALLS, made.library], env=made.environment, fails=True)
    if done.returncode != 0:
        report.missed("the calls run to their end", (done.stdout + done.stderr)[-400:])
        return
    for text, (is_so, detail) in json.loads(done.stdout.splitlines()[-1]).items():
        report.check(text, is_so, detail)


STAGE = Stage(
    "torch_graphs",
    "`torch.cuda.graph` and `torch.compile` with operators out of blobs",
    build_seconds=240,
    seconds=120,
    build=build,
    prove=prove,
)
