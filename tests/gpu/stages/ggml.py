"""llama.cpp's own test of its backends, over ggml-cuda: a peer's suite, which compares with its CPU backend."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path

from gpu import parcel
from gpu.place import EXAMPLES, Place
from gpu.report import Report
from gpu.stage import Stage

sys.path.insert(0, str(EXAMPLES / "ggml_cuda"))

import ggml_cuda

# operations, each with a pattern of the cases that are run, and the sources that have their kernels
OPERATIONS = {
    "ADD": "", "SOFT_MAX": "", "ROPE": "", "RMS_NORM": "", "GET_ROWS": "type=(f32|f16|q4_0)",
    "CPY": "type_src=f(32|16)", "ARGSORT": "", "SUM_ROWS": "", "SCALE": "", "CONCAT": "", "PAD": "", "IM2COL": "",
    "POOL_2D": "", "SSM_CONV": "", "MUL_MAT": "type_a=q4_0.*,n=(1|2|16),",
}  # fmt: skip
SOURCES = (
    "binbcast", "softmax", "rope", "norm", "getrows", "cpy", "argsort", "sumrows", "scale", "concat", "pad", "im2col",
    "pool2d", "ssm-conv", "mmvq", "mmq", "quantize", "convert", "mmq-instance-q4_0",
)  # fmt: skip
FIRST = "binbcast"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CASE = re.compile(r"^\s*([A-Z0-9_]+\(.*\)): (.*)$")


def library(place: Place, how: str) -> Path:
    """The backend's library, as it was built `how`."""
    return place.work / how / "bin" / "libggml-cuda.so"


def build_one(place: Place, how: str) -> None:
    """Its own CMake and ninja: lazily the program of tests, too. Of `ahead` the sample's files are no blobs, and so
    compiled by its build."""
    source = parcel.unpack(place, "llama.cpp") / "vendor" / "llama.cpp"
    backend = ggml_cuda.BACKENDS["cuda"]
    home = None if Path(place.machine.home, "lib64", "libcublas.so").exists() else ggml_cuda.cublas(place.work)
    off = [f"-DLLAMA_BUILD_{what}=OFF" for what in ("TOOLS", "EXAMPLES", "SERVER")]
    target = "test-backend-ops" if how == "lazy" else ""
    arch = f"-DCMAKE_CUDA_ARCHITECTURES={place.machine.arch}-real"
    words = ggml_cuda.configure_and_build(
        source, place.work / how, backend, "Ninja", home, target, arch, "-DLLAMA_BUILD_TESTS=ON", *off
    )
    blobs = sorted(str(p.relative_to(source)) for p in (source / "ggml" / "src" / "ggml-cuda").rglob("*.cu"))
    chosen = [b for b in blobs if Path(b).stem != "ggml-cuda" and (how == "lazy" or Path(b).stem not in SOURCES)]
    options = [word for blob in chosen for word in ("--blobs", f"*/{blob}")]
    tmp = ["--tmp-dir", str(place.work / f"tmp-{how}")]
    place.lazyck("build", "full", "--toolchain", "cuda", *options, *tmp, "--", *words)


def environment(place: Place, how: str, cache: str) -> dict[str, str]:
    """With cuBLAS, where it was taken out of a wheel, and with the library that was built ahead of time, if so, in the
    place of the one that the program of tests was linked with."""
    found = place.environment(cache)
    preloaded = {"LD_PRELOAD": str(library(place, how))} if how == "ahead" else {}
    return {**found, **preloaded, "LD_LIBRARY_PATH": f"{place.work / 'cublas' / 'lib'}:{found['LD_LIBRARY_PATH']}"}


def build(place: Place, report: Report) -> None:
    """Lazily, then the sample ahead of time, and the same files prebuilt."""
    begun = time.monotonic()
    build_one(place, "lazy")
    lazy = library(place, "lazy")
    seconds = f"built in {time.monotonic() - begun:.0f} s, with the program of tests"
    report.check("173 of 174 sources are lazy", place.blobs(lazy) == (173, 0), seconds)
    if place.machine.blind():
        error = ggml_cuda.call(lazy, ggml_cuda.BACKENDS["cuda"], place.work / "cublas", place.work / "cache-call")
        report.check("a first call reaches its launch", error[1] == 35, f"{error[0]:.1f} s, ends in {error[1]}")
        return
    place.prebuild(lazy, *SOURCES, env=place.environment())
    build_one(place, "ahead")


def run(place: Place, how: str, operation: str, cache: str) -> tuple[dict[str, str], str]:
    """How each case of an operation ended, and what else was said."""
    argv: list[str | Path] = [place.work / "lazy" / "bin" / "test-backend-ops", "test", "-b", "CUDA0", "-o", operation]
    argv += ["-p", OPERATIONS[operation]] if OPERATIONS[operation] else []
    done = place.run(argv, env=environment(place, how, cache), fails=True)
    lines = (_CASE.match(_COLOURS.sub("", line)) for line in done.stdout.splitlines())
    # of a failure the last word only: figures of the error may stand before it
    states = {found[1]: found[2].strip() for found in lines if found}
    ended = {name: "FAIL" if state.endswith("FAIL") else state for name, state in states.items()}
    return ended, done.stderr[-2000:]


def prove(place: Place, report: Report) -> None:
    """The same cases pass; and what a first call takes."""
    text = f"test-backend-ops, {len(OPERATIONS)} operations: the same passes as ahead of time"
    if why := place.machine.blind():
        report.blind(text, why)
        return
    shutil.rmtree(place.work / "cache-cold", ignore_errors=True)
    begun = time.monotonic()
    _, said = run(place, "lazy", "ADD", "cache-cold")
    seconds = f"{time.monotonic() - begun:.1f} s in all"
    report.check(f"first calls of ADD: {FIRST}.cu is compiled", f"compiled {FIRST} for" in said, seconds)
    total = passed = 0
    for operation in OPERATIONS:
        lazy, said = run(place, "lazy", operation, "cache")
        ahead, _ = run(place, "ahead", operation, "cache-ahead")
        total += len(lazy)
        passed += sum(state.startswith("OK") for state in lazy.values())
        if lazy != ahead or not lazy:
            differ = [name for name in lazy.keys() | ahead.keys() if lazy.get(name) != ahead.get(name)]
            detail = f"{len(lazy)} cases, {len(differ)} differ: {differ[:2]} {said[-300:]}"
            report.missed(f"{operation}: the same cases pass", detail)
    lazily = sorted(p.name for p in (place.work / "cache-ahead").rglob("*.so") if p.name.rpartition("-")[0] in SOURCES)
    report.check("none of the sample is lazy in what was built ahead of time", not lazily, ", ".join(lazily))
    report.check(text, total > 0 and passed > total / 2, f"{passed} of {total} cases pass in both")


STAGE = Stage(
    "ggml",
    "llama.cpp's own `test-backend-ops` over ggml-cuda, a sample of operations: the same passes as ahead of time",
    build_seconds=420,
    seconds=150,
    build=build,
    prove=prove,
)
