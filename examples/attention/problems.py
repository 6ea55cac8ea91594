"""Pose a problem for every variant of the attention example, with NumPy's answer.

The test on the stand-in for ROCm and the proof on a GPU (`scripts/gpu`) compare with this answer.
It needs NumPy.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import reference
from generate import DATA_TYPES, HEAD_DIMS, MODES


@dataclass(frozen=True)
class Case:
    """Describes one variant, and the shapes to call it with; a sequence is (rows, keys)."""

    head_dim: int
    data_type: str
    mode: str
    mask: str
    bias: str
    sequences: tuple[tuple[int, int], ...]
    heads: tuple[int, int] = (2, 2)
    window: tuple[int, int] = (-1, -1)

    @property
    def variant(self) -> str:
        return f"d{self.head_dim}_{self.data_type}_{self.mode}_{self.mask}_{self.bias}"

    def __str__(self) -> str:
        return self.variant


# The reference rounds its inputs too, so that only the rounding of the outputs remains.
TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}


@dataclass(frozen=True)
class Problem:
    """Holds the inputs of a case as the library takes them, and their exact values for each
    sequence."""

    arrays: dict[str, Any]
    exact: list[dict[str, Any]]
    options: dict[str, Any]
    rule: Any


def to_storage(values: Any, data_type: str) -> Any:
    if data_type == "bf16":
        return reference.to_bfloat16(values)
    return values.astype({"fp32": np.float32, "fp16": np.float16}[data_type])


def to_exact(array: Any, data_type: str) -> Any:
    return (reference.from_bfloat16(array) if data_type == "bf16" else array).astype(np.float64)


def offsets(lengths: list[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()]


def split(case: Case, array: Any, lengths: list[int]) -> list[Any]:
    """Split a tensor in the library's layout into its sequences."""
    return np.split(array, offsets(lengths)[1:-1]) if case.mode == "group" else list(array)


def make_problem(case: Case) -> Problem:
    random = np.random.default_rng(1)
    rows, keys = (list(lengths) for lengths in zip(*case.sequences, strict=True))
    arrays = {}
    exact: list[dict[str, Any]] = [{} for _ in case.sequences]
    for name, lengths, heads in (("q", rows, 0), ("k", keys, 1), ("v", keys, 1), ("dout", rows, 0)):
        parts = [random.standard_normal((length, case.heads[heads], case.head_dim)) for length in lengths]
        values = np.concatenate(parts) if case.mode == "group" else np.stack(parts)
        arrays[name] = to_storage(values, case.data_type)
        for one, part in zip(exact, split(case, to_exact(arrays[name], case.data_type), lengths), strict=True):
            one[name] = part
    options: dict[str, Any] = {"mask": case.mask.replace("nomask", "none"), "window": case.window}
    slopes: Any = None
    if case.bias == "alibi":
        slopes = 0.5 ** np.arange(1, case.heads[0] + 1)
        options["alibi_slopes"] = slopes
    if case.mode == "group":
        options |= {"seqstart_q": offsets(rows), "seqstart_k": offsets(keys)}
    left, right = (None if size < 0 else size for size in ((-1, 0) if case.mask == "causal" else case.window))
    rule = reference.Rule(case.head_dim**-0.5, left, right, slopes)
    return Problem(arrays, exact, options, rule)


@dataclass(frozen=True)
class Answer:
    """Holds one array that a call returned, beside the expected one."""

    name: str
    actual: Any
    expected: Any
    tolerance: float

    def error(self) -> float:
        """Return the largest difference in units of the allowed one: an answer is right if this is
        at most 1. It is infinite where a value is not finite and the other value differs."""
        actual, expected = np.asarray(self.actual, np.float64), np.asarray(self.expected, np.float64)
        if actual.shape != expected.shape:
            return math.inf
        is_finite = np.isfinite(expected)
        if not np.array_equal(actual[~is_finite], expected[~is_finite]) or not np.isfinite(actual[is_finite]).all():
            return math.inf
        allowed = self.tolerance * (1 + np.abs(expected[is_finite]))
        return float(np.max(np.abs(actual[is_finite] - expected[is_finite]) / allowed, initial=0))


def forward(library: Any, case: Case, problem: Problem) -> Iterator[Answer]:
    """Call the forward variant of `case`; yield outputs and logarithms of the sums, sequence by
    sequence."""
    out, lse = library.forward(*(problem.arrays[name] for name in "qkv"), **problem.options)
    rows = [one["q"].shape[0] for one in problem.exact]
    outs = split(case, to_exact(out, case.data_type), rows)
    lses = np.split(lse, offsets(rows)[1:-1], axis=1) if case.mode == "group" else list(lse)
    for one, out_part, lse_part in zip(problem.exact, outs, lses, strict=True):
        expected_out, expected_lse = reference.forward(one["q"], one["k"], one["v"], problem.rule)
        yield Answer("out", out_part, expected_out, TOLERANCE[case.data_type])
        yield Answer("lse", lse_part, expected_lse, TOLERANCE["fp32"])


def backward(library: Any, case: Case, problem: Problem) -> Iterator[Answer]:
    """Call the forward and the backward variant of `case`; yield the gradients, sequence by
    sequence."""
    inputs = [problem.arrays[name] for name in "qkv"]
    out, lse = library.forward(*inputs, **problem.options)
    gradients = library.backward(*inputs, out, lse, problem.arrays["dout"], **problem.options)
    lengths = [[one[name].shape[0] for one in problem.exact] for name in "qkv"]
    parts = [
        split(case, to_exact(gradient, case.data_type), length)
        for gradient, length in zip(gradients, lengths, strict=True)
    ]
    for one, *actual in zip(problem.exact, *parts, strict=True):
        expected = reference.backward(one["q"], one["k"], one["v"], one["dout"], problem.rule)
        for name, left, right in zip(("dq", "dk", "dv"), actual, expected, strict=True):
            yield Answer(name, left, right, TOLERANCE[case.data_type])


def every_case() -> Iterator[Case]:
    """Yield a case for each pair of variants, forward and backward, of the example. Shapes are
    small, with edges close to those of tiles."""
    for head_dim, data_type, mode, mask, bias in itertools.product(
        HEAD_DIMS, DATA_TYPES, MODES, ("nomask", "causal", "window"), ("nobias", "alibi")
    ):
        sequences = ((33, 49),) if mode == "batch" else ((33, 33), (1, 17))
        window = (16, 1) if mask == "window" else (-1, -1)
        yield Case(head_dim, data_type, mode, mask, bias, sequences, (2, 1), window)
