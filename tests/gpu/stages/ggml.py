"""Run llama.cpp's own test of its backends over ggml-cuda. It compares the results with those of
llama.cpp's CPU backend."""

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from gpu import parcel
from gpu.place import EXAMPLES, Place, StageError, complaint
from gpu.report import Report
from gpu.stage import Stage

sys.path.insert(0, str(EXAMPLES / "ggml_cuda"))

import ggml_cuda

# These operations run both ways. Each has a pattern of the cases to run. The files in `SOURCES`
# have their kernels.
OPERATIONS = {
    "ADD": "", "SOFT_MAX": "", "ROPE": "", "RMS_NORM": "", "GET_ROWS": "type=(f32|f16|q4_0)",
    "CPY": "type_src=f(32|16)", "ARGSORT": "", "SUM_ROWS": "", "SCALE": "", "CONCAT": "", "PAD": "", "IM2COL": "",
    "POOL_2D": "", "SSM_CONV": "", "MUL_MAT": "type_a=q4_0.*,n=(1|2|16),",
}  # fmt: skip
# These operations run only lazily, each with a pattern. Those in one key run in one process.
MORE = {
    "SUB,MUL,DIV": "", "REPEAT,REPEAT_BACK,ADD1,ACC,ADD_ID,SET": "", "DUP,CONT,SET_ROWS": "", "GET_ROWS_BACK": "",
    "ARANGE,CLAMP,TIMESTEP_EMBEDDING,UPSCALE,PAD_REFLECT_1D,ROLL": "", "ARGMAX,COUNT_EQUAL,MEAN,SUM": "",
    "CONV_2D,CONV_2D_DW,CONV_TRANSPOSE_1D,CONV_TRANSPOSE_2D": "", "OUT_PROD,DIAG_MASK_INF": "",
    "CROSS_ENTROPY_LOSS,CROSS_ENTROPY_LOSS_BACK,SOFT_MAX_BACK,SOFTCAP": "", "OPT_STEP_ADAMW,OPT_STEP_SGD": "",
    "NORM,GROUP_NORM,L2_NORM,RMS_NORM_BACK,RMS_NORM_MUL_ADD": "", "SSM_SCAN,ROPE_BACK": "",
    "RWKV_WKV6,RWKV_WKV7,GATED_LINEAR_ATTN": "", "COS,SIN,SQR,SQRT,LOG,LEAKY_RELU,SILU_BACK": "",
    "ABS,SGN,NEG,STEP,TANH,ELU,RELU,SIGMOID,GELU,GELU_QUICK,SILU,HARDSWISH,HARDSIGMOID,EXP,GELU_ERF": "",
    "REGLU,GEGLU,SWIGLU,SWIGLU_OAI,GEGLU_ERF,GEGLU_QUICK": "",
    "MUL_MAT": "type_a=(f16|bf16|q8_0|q4_K|iq2_xs),.*,n=(1|16),", "MUL_MAT_ID": "type_a=(f16|q4_0|q6_K),",
    "FLASH_ATTN_EXT": "hsk=64,hsv=64,.*type_KV=f16",
}  # fmt: skip
SOURCES = (
    "binbcast", "softmax", "rope", "norm", "getrows", "cpy", "argsort", "sumrows", "scale", "concat", "pad", "im2col",
    "pool2d", "ssm-conv", "mmvq", "mmq", "quantize", "convert", "mmq-instance-q4_0",
)  # fmt: skip
BY_KERNEL = ("rope", "norm", "scale", "sumrows", "pad")  # those of SOURCES that the lazy build compiles by kernel
BLOBS = 168  # all other sources; ggml-cuda.cu is compiled by kernel, too
FIRST = "binbcast"
_LIMIT = 100  # seconds for one process
_AGAIN = 8  # additional runs ahead of time, to see how a case can end
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_COMPILED = re.compile(r"^\[lazyck\] compiled (\S+) ", re.M)
_CASE = re.compile(r"^\s*([A-Z0-9_]+\(.*\)): (.*)$")


def library(place: Place, how: str) -> Path:
    """Return the path of the backend's library that was built `how`."""
    return place.work / how / "bin" / "libggml-cuda.so"


def build_one(place: Place, how: str) -> None:
    """Build with the project's own CMake and ninja. The lazy build also makes the test program. For
    `ahead`, the project's build compiles the sample's files, which are then neither blobs nor
    compiled by kernel."""
    source = parcel.unpack(place, "llama.cpp") / "vendor" / "llama.cpp"
    backend = ggml_cuda.BACKENDS["cuda"]
    home: Path | None = None
    if not Path(place.machine.home, "lib64", "libcublas.so").exists():
        home = place.work / "cublas"
        home = home if home.is_dir() else ggml_cuda.cublas(place.work)
    off = [f"-DLLAMA_BUILD_{what}=OFF" for what in ("TOOLS", "EXAMPLES", "SERVER")]
    target = "test-backend-ops" if how == "lazy" else ""
    arch = f"-DCMAKE_CUDA_ARCHITECTURES={place.machine.arch}-real"
    words = ggml_cuda.configure_and_build(
        source, place.work / how, backend, "Ninja", home, target, arch, "-DLLAMA_BUILD_TESTS=ON", *off
    )
    blobs = sorted(str(p.relative_to(source)) for p in (source / "ggml" / "src" / "ggml-cuda").rglob("*.cu"))
    others = {"ggml-cuda", *(BY_KERNEL if how == "lazy" else SOURCES)}
    options = [word for blob in blobs if Path(blob).stem not in others for word in ("--blobs", f"*/{blob}")]
    options += [] if how == "lazy" else ["--kernels", ""]
    tmp = ["--tmp-dir", str(place.work / f"tmp-{how}")]
    logs = place.work / f"logs-{how}"
    logs.mkdir(exist_ok=True)
    try:
        place.lazyck("build", "full", "--toolchain", "cuda", *options, *tmp, "--", *words, cwd=logs)
    except StageError as e:
        said = "".join(log.read_text(errors="replace")[-1500:] for log in sorted(logs.glob("*.log")))
        raise StageError(f"{e}\n{said}") from e


def environment(place: Place, how: str, cache: str) -> dict[str, str]:
    """Return the environment for a run, with cuBLAS on the library path if it was taken from a
    wheel. For `ahead`, preload the library that was built ahead of time in place of the one with
    which the test program was linked."""
    found = place.environment(cache)
    preloaded = {"LD_PRELOAD": str(library(place, how))} if how == "ahead" else {}
    return {**found, **preloaded, "LD_LIBRARY_PATH": f"{place.work / 'cublas' / 'lib'}:{found['LD_LIBRARY_PATH']}"}


def build(place: Place, report: Report) -> None:
    """Build lazily and run the operations with an empty cache. In parallel, build the sample ahead
    of time."""
    begun = time.monotonic()
    build_one(place, "lazy")
    lazy = library(place, "lazy")
    seconds = f"built in {time.monotonic() - begun:.0f} s, with the program of tests"
    count = len(BY_KERNEL) + 1
    is_so = place.blobs(lazy) == (BLOBS, 0) and f"of {count} sources," in place.lazyck("inspect", lazy).stdout
    report.check(f"of {BLOBS + count} sources {BLOBS} are blobs, {count} compiled by kernel", is_so, seconds)
    if place.machine.blind():
        error = ggml_cuda.call(lazy, ggml_cuda.BACKENDS["cuda"], place.work / "cublas", place.work / "cache-call")
        report.check("a first call reaches its launch", error[1] == 35, f"{error[0]:.1f} s, ends in {error[1]}")
        return
    with ThreadPoolExecutor(max(1, place.jobs // 4)) as pool:
        ahead = pool.submit(build_one, place, "ahead")
        cold = list(pool.map(lambda one: run(place, "lazy", "cache", *one), OPERATIONS.items()))
    ahead.result()
    compiled = [name for one in cold for name in one.compiled]
    parts = {name.partition(".")[0] for name in compiled}
    kernels = [name for name in compiled if name.partition(".")[0] in BY_KERNEL]
    detail = f"{len(compiled)} compiles, {len(kernels)} of them kernels of files that are no blobs"
    report.check("first calls compile what they need of the sample", {FIRST, *BY_KERNEL} <= parts, detail)
    (place.work / "cold.json").write_text(json.dumps({o: one.cases for o, one in zip(OPERATIONS, cold, strict=True)}))


@dataclass(frozen=True)
class Ran:
    """Describes a run: how each case ended, what was compiled for it, and the end of the other
    output."""

    cases: dict[str, str]
    compiled: list[str]
    said: str


def run(place: Place, how: str, cache: str, operation: str, pattern: str) -> Ran:
    """Run one operation, or several separated by commas, in a process of its own with a time
    limit."""
    program = place.work / "lazy" / "bin" / "test-backend-ops"
    argv: list[str | Path] = ["timeout", str(_LIMIT), program, "test", "-b", "CUDA0", "-o", operation]
    argv += ["-p", pattern] if pattern else []
    done = place.run(argv, env=environment(place, how, cache), fails=True)
    lines = (_CASE.match(_COLOURS.sub("", line)) for line in done.stdout.splitlines())
    # Only the last word of a failure counts, because figures of the error may precede it.
    states = {found[1]: found[2].strip() for found in lines if found}
    ended = {name: "FAIL" if state.endswith("FAIL") else state for name, state in states.items()}
    said = "" if done.returncode == 0 else f"status {done.returncode}: {complaint(done.stderr)}"
    return Ran(ended, _COMPILED.findall(done.stderr), said)


def differing(place: Place, operation: str, lazily: dict[str, str], ahead: dict[str, str]) -> list[str]:
    """Return the cases that end lazily as they never do ahead of time. llama.cpp's test draws new
    random numbers each time, and some cases are at the edge of the allowed error. If a case
    differs, repeated runs ahead of time show how else it can end."""
    if lazily == ahead and ahead:
        return []
    ends = [ahead] + [run(place, "ahead", "cache-ahead", operation, OPERATIONS[operation]).cases for _ in range(_AGAIN)]
    names = sorted({name for cases in (lazily, *ends) for name in cases})
    return [n for n in names if lazily.get(n) not in [cases.get(n) for cases in ends]] or (["no case"] * (not ahead))


def prove(place: Place, report: Report) -> None:
    """Compare how each case ends lazily, cold and cached, with how it ends ahead of time."""
    text = f"test-backend-ops, {len(OPERATIONS)} operations, cold and cached: the same passes as ahead of time"
    if why := place.machine.blind():
        report.blind(text, why)
        return
    with ThreadPoolExecutor(max(1, place.jobs // 4)) as pool:
        lazy = pool.map(lambda one: run(place, "lazy", "cache", *one), OPERATIONS.items())
        ahead = pool.map(lambda one: run(place, "ahead", "cache-ahead", *one), OPERATIONS.items())
    cold: dict[str, dict[str, str]] = json.loads((place.work / "cold.json").read_text())
    total = passed = compiled = 0
    for operation, lazily, expected in zip(OPERATIONS, lazy, ahead, strict=True):
        total += len(lazily.cases)
        passed += sum(state.startswith("OK") for state in lazily.cases.values())
        compiled += len(lazily.compiled)
        for how, cases in (("cached", lazily.cases), ("cold", cold[operation])):
            if differ := differing(place, operation, cases, expected.cases):
                detail = f"{len(cases)} cases, {len(differ)} differ: {differ[:2]} {lazily.said}"
                report.missed(f"{operation}, {how}: the same cases pass", detail)
    report.check("a second process compiles nothing", compiled == 0, f"{compiled} compiles")
    entries = (place.work / "cache-ahead").rglob("*.so")
    lazily_made = sorted(p.name for p in entries if p.name.rpartition("-")[0].partition(".")[0] in SOURCES)
    report.check("none of the sample is lazy in what was built ahead of time", not lazily_made, ", ".join(lazily_made))
    report.check(text, total > 0 and passed > total / 2, f"{passed} of {total} cases pass in each")
    prove_more(place, report)


def prove_more(place: Place, report: Report) -> None:
    """Compare more operations, compiled at their first calls, with llama.cpp's own CPU backend.
    Each result is reported as soon as it is known, because there may not be time for all."""
    with ThreadPoolExecutor(max(1, place.jobs // 2)) as pool:
        tasks = {pool.submit(run, place, "lazy", "cache", operation, MORE[operation]): operation for operation in MORE}
        for task in as_completed(tasks):
            one = task.result()
            passed = sum(state.startswith("OK") for state in one.cases.values())
            unsupported = sum(state.startswith("not supported") for state in one.cases.values())
            others = [name for name, state in one.cases.items() if not state.startswith(("OK", "not supported"))]
            detail = (
                f"{passed} cases pass, {unsupported} are not supported by the backend, {len(one.compiled)} compiles"
            )
            is_so = passed > 0 and not others and not one.said
            text = f"test-backend-ops, {tasks[task].replace(',', ', ')}: none fails, cold"
            report.check(text, is_so, detail if is_so else f"{detail}; {others[:2]} {one.said}")


STAGE = Stage(
    "ggml",
    "llama.cpp's own `test-backend-ops` over ggml-cuda, a sample of operations: the same passes as ahead of time",
    build_seconds=420,
    seconds=400,
    build=build,
    prove=prove,
)
