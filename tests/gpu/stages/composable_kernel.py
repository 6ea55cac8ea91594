"""Test Composable Kernel's fused attention on an AMD GPU, forward and backward, against NumPy."""

import os
import sys
from pathlib import Path

from gpu.place import EXAMPLES, Place
from gpu.report import Report
from gpu.stage import Stage

sys.path[:0] = [str(EXAMPLES / "ck_fmha"), str(EXAMPLES / "attention")]

import calls  # noqa: E402
import ck_fmha  # noqa: E402
import numpy as np  # noqa: E402
import problems  # noqa: E402
import reference  # noqa: E402
from sources import FLASH_ATTN, fetch  # noqa: E402

HEAD_DIMS = ("64", "128")
SEQUENCE, HEADS, SCALE = 256, 2, 0.125  # the values that driver.hpp has
TOLERANCE = {"o": 1e-2, "lse": 1e-3, "dq": 3e-2, "dk": 3e-2, "dv": 3e-2}
DIRECTIONS = {"fwd": ("o", "lse"), "bwd": ("dq", "dk", "dv")}


def is_stand_in(place: Place) -> bool:
    """Return whether the home is scripts/fake_rocm_home, whose compiler is the host's."""
    return "fake" in place.machine.compiler


def build(place: Place, report: Report) -> None:
    """Run CK's own generator as flash-attn calls it, and build both libraries."""
    if is_stand_in(place):
        return
    home, made = Path(place.machine.home), place.work / "build"
    ck = fetch(FLASH_ATTN, place.work) / "csrc" / "composable_kernel"
    made.mkdir(exist_ok=True)
    ck_fmha.ARCH = place.machine.arch
    directions = [d for names in ck_fmha.DIRECTIONS.values() for d in names]
    files = ck_fmha.generate(ck, made, directions, all_dims=False)
    ck_fmha.write_ninja(made, ck, files, list(ck_fmha.DIRECTIONS))
    words: list[str | Path] = ["--gpu-archs", place.machine.arch, "--toolchain", "rocm", "--blobs", ck_fmha.BLOBS]
    words += ["--tmp-dir", made / "lazyck", "--install-dir", made / "install"]
    place.lazyck("build", "full", *words, "--", sys.executable, "-m", "ninja", "-C", made, "--quiet")
    for library in ck_fmha.DIRECTIONS:
        lazy, eager = place.blobs(made / "install" / f"libfmha_{library}.so")
        report.check(
            f"libfmha_{library}: all of its blobs are lazy", lazy > 0 and eager == 0, f"{lazy} lazy, {eager} eager"
        )
        ck_fmha.compile_driver(made, ck, home, library)


def write_tensors(directory: Path, head_dim: int) -> dict[str, np.ndarray]:
    """Write the tensors that the drivers read, in half precision except `lse`. Return NumPy's
    results."""
    random = np.random.default_rng(head_dim)
    shape = (SEQUENCE, HEADS, head_dim)
    halves = {name: random.standard_normal(shape).astype(np.float16) for name in ("q", "k", "v", "do")}
    q, k, v, do = (halves[name].astype(np.float64) for name in ("q", "k", "v", "do"))
    rule = reference.Rule(SCALE, right=0)
    o, lse = reference.forward(q, k, v, rule)
    expected = {"o": o, "lse": lse, **dict(zip(("dq", "dk", "dv"), reference.backward(q, k, v, do, rule), strict=True))}
    directory.mkdir(exist_ok=True)
    for name, value in {**halves, "o": o.astype(np.float16), "lse": lse.astype(np.float32)}.items():
        (directory / name).write_bytes(np.ascontiguousarray(value).tobytes())
    return expected


def prove(place: Place, report: Report) -> None:
    """Run one problem for each head dim and direction, in a process of its own."""
    text = "forward and backward of head dims 64 and 128 agree with NumPy"
    if is_stand_in(place):
        report.blind(text, "the stand-in's compiler is the host's, which CK is not for")
        return
    made = place.work / "build"
    for head_dim in HEAD_DIMS:
        expected = write_tensors(made / f"d{head_dim}", int(head_dim))
        for direction, names in DIRECTIONS.items():
            driver, tensors = made / f"driver_{direction}", made / f"d{head_dim}"
            if not place.machine.gpu:
                argv, name = [str(driver), head_dim, str(tensors)], f"{direction}{head_dim}"
                done = calls.call(made, Path(place.machine.home), argv, name, place.machine.arch)
                is_right = done.status == 0 and done.kernels == ck_fmha.KERNELS[direction]
                report.check(f"{direction} d{head_dim} reaches the launch of its kernels", is_right, done.kernels)
                report.blind(f"{direction} d{head_dim} agrees with NumPy", "no GPU: a stand-in records the launch")
                continue
            if direction == "fwd":
                for name in names:
                    (tensors / name).unlink()  # input of the backward call, and result of this one
            run = place.run([driver, head_dim, tensors], env=place.environment(ROCM_PATH=os.fspath(place.machine.home)))
            errors = {}
            for name in names:
                kind = np.float32 if name == "lse" else np.float16
                found = np.frombuffer((tensors / name).read_bytes(), dtype=kind).reshape(expected[name].shape)
                errors[name] = problems.Answer(name, found, expected[name], TOLERANCE[name]).error()
            detail = f"{', '.join(f'{n} {e:.2f}' for n, e in errors.items())} of what is allowed"
            is_right = max(errors.values()) <= 1 and "compiled" in run.stderr
            report.check(f"{direction} d{head_dim} agrees with NumPy", is_right, detail)


STAGE = Stage(
    "composable_kernel",
    "Composable Kernel's attention, forward and backward, agrees with NumPy",
    build_seconds=420,
    seconds=400,
    build=build,
    prove=prove,
)
