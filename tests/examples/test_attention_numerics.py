"""The attention example, built ahead of time for the fake GPU, agrees with NumPy."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

np = pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "attention"
FAKE_ROCM = ROOT / "scripts" / "fake_rocm_home"

pytestmark = [
    pytest.mark.xdist_group("attention-numerics"),  # one worker, so that the library is built once
    pytest.mark.skipif(not (FAKE_ROCM / "bin" / "hipcc").is_file(), reason="no fake ROCm home"),
]


def load_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"attention_example_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


attention = load_module("attention")
reference = load_module("reference")


@dataclass(frozen=True)
class Case:
    """One variant, and the shapes to call it with; a sequence is (rows, keys)."""

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


CASES = [
    Case(32, "fp32", "batch", "nomask", "nobias", ((67, 93), (67, 93))),
    Case(64, "fp16", "batch", "causal", "alibi", ((70, 101), (70, 101)), heads=(4, 2)),
    # more rows than keys: the first rows see no key at all
    Case(96, "fp32", "batch", "causal", "nobias", ((75, 50), (75, 50))),
    # the window's edges fall one past a tile's, where a skipped tile would be missed
    Case(32, "bf16", "group", "window", "nobias", ((100, 100), (33, 40), (1, 17)), window=(33, 1)),
    Case(128, "bf16", "group", "nomask", "alibi", ((21, 52), (45, 13)), heads=(2, 1)),
    Case(256, "fp16", "batch", "window", "alibi", ((50, 50),), window=(-1, 5)),
]

# Rounding of the inputs is in the reference too: what is left is that of the outputs.
TOLERANCE = {"fp32": 2e-5, "fp16": 4e-3, "bf16": 3e-2}


@dataclass(frozen=True)
class Problem:
    """The inputs of a case: as the library takes them, and their exact values, one sequence each."""

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
    """The sequences of a tensor in the library's layout."""
    return np.split(array, offsets(lengths)[1:-1]) if case.mode == "group" else list(array)


def make_problem(case: Case) -> Problem:
    random = np.random.default_rng(1)
    rows, keys = [list(lengths) for lengths in zip(*case.sequences, strict=True)]
    arrays = {}
    exact: list[dict[str, Any]] = [{} for _ in case.sequences]
    for name, lengths, heads in (("q", rows, 0), ("k", keys, 1), ("v", keys, 1), ("dout", rows, 0)):
        parts = [random.standard_normal((length, case.heads[heads], case.head_dim)) for length in lengths]
        values = np.concatenate(parts) if case.mode == "group" else np.stack(parts)
        arrays[name] = to_storage(values, case.data_type)
        for one, part in zip(exact, split(case, to_exact(arrays[name], case.data_type), lengths), strict=True):
            one[name] = part
    options: dict[str, Any] = {"mask": case.mask.replace("nomask", "none"), "window": case.window}
    slopes = None
    if case.bias == "alibi":
        slopes = 0.5 ** np.arange(1, case.heads[0] + 1)
        options["alibi_slopes"] = slopes
    if case.mode == "group":
        options |= {"seqstart_q": offsets(rows), "seqstart_k": offsets(keys)}
    left, right = (None if size < 0 else size for size in ((-1, 0) if case.mask == "causal" else case.window))
    rule = reference.Rule(case.head_dim**-0.5, left, right, slopes)
    return Problem(arrays, exact, options, rule)


def build_library(build_dir: Path, variants: list[str], after_configure: Callable[[], None] = lambda: None) -> Path:
    filters = [argument for variant in variants for argument in ("--filter", variant)]
    configure = [sys.executable, str(EXAMPLE / "configure.py"), "--build-dir", str(build_dir), "--optimize", "1"]
    subprocess.run([*configure, "--gpu-archs", "gfx90a,gfx942", *filters], check=True)
    after_configure()
    environment = os.environ | {"ROCM_PATH": str(FAKE_ROCM)}
    command = ["ninja", "-C", str(build_dir), "-j2"]
    ninja = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ninja.returncode == 0, ninja.stdout[-4000:]
    assert "warning" not in ninja.stdout
    return build_dir / "libattention.so"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    build_dir = tmp_path_factory.mktemp("attention") / "a build"  # a path with a space
    return attention.load(build_library(build_dir, [f"*_{case.variant}" for case in CASES]))


def assert_close(actual: Any, expected: Any, data_type: str, name: str) -> None:
    tolerance = TOLERANCE[data_type]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_agrees_with_numpy(library: Any, case: Case) -> None:
    problem = make_problem(case)
    out, lse = library.forward(*(problem.arrays[name] for name in "qkv"), **problem.options)
    rows = [one["q"].shape[0] for one in problem.exact]
    outs = split(case, to_exact(out, case.data_type), rows)
    lses = np.split(lse, offsets(rows)[1:-1], axis=1) if case.mode == "group" else list(lse)
    for one, out_part, lse_part in zip(problem.exact, outs, lses, strict=True):
        expected_out, expected_lse = reference.forward(one["q"], one["k"], one["v"], problem.rule)
        assert_close(out_part, expected_out, case.data_type, "out")
        assert_close(lse_part, expected_lse, "fp32", "lse")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward_agrees_with_numpy(library: Any, case: Case) -> None:
    problem = make_problem(case)
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
            assert_close(left, right, case.data_type, name)


def test_rows_that_see_no_key_are_zero_and_have_infinite_lse(library: Any) -> None:
    problem = make_problem(CASES[2])
    out, lse = library.forward(*(problem.arrays[name] for name in "qkv"), **problem.options)
    assert np.all(out[:, :25] == 0)
    assert np.all(lse[:, :, :25] == -np.inf)
    assert np.all(np.isfinite(lse[:, :, 25:]))


def test_backward_is_the_same_bit_for_bit_every_time(library: Any) -> None:
    problem = make_problem(CASES[1])
    inputs = [problem.arrays[name] for name in "qkv"]
    out, lse = library.forward(*inputs, **problem.options)
    first, second = (library.backward(*inputs, out, lse, problem.arrays["dout"], **problem.options) for _ in range(2))
    assert all(left.tobytes() == right.tobytes() for left, right in zip(first, second, strict=True))


def test_backward_names_the_variant_it_would_run(library: Any) -> None:
    name = library.backward_name(64, "fp16", mask="causal", alibi_slopes=[1.0])
    assert name == "attn_bwd_d64_fp16_batch_causal_alibi"


def test_variant_that_was_not_built_is_named_in_the_error(library: Any) -> None:
    q = np.zeros((1, 8, 1, 32), np.float16)
    with pytest.raises(attention.VariantNotBuiltError, match="not built: attn_fwd_d32_fp16_batch_causal_nobias"):
        library.forward(q, q, q, mask="causal")
    with pytest.raises(attention.VariantNotBuiltError, match="attn_bwd_d40_fp32_batch_nomask_nobias"):
        library.backward_name(40, "fp32")


def test_arguments_that_make_no_sense_are_refused_with_a_reason(library: Any) -> None:
    q, k = np.zeros((1, 8, 3, 32), np.float32), np.zeros((1, 8, 2, 32), np.float32)
    with pytest.raises(attention.InvalidArgumentError, match="nhead_k must divide nhead_q"):
        library.forward(q, k, k)


def test_exception_thrown_by_a_variant_becomes_an_error_code_and_message(tmp_path: Path) -> None:
    variant = "attn_fwd_d32_fp32_batch_nomask_nobias"

    def break_variant() -> None:
        (tmp_path / "blob" / f"{variant}.cpp").write_text(
            '#include "attn/attn_fwd.hpp"\n'
            "template <> float attn_fwd_<attn_fwd_traits<32, Fp32, false, attn_mask::none, attn_bias::none>>(\n"
            '    const stream_config&, attn_fwd_args) { throw std::runtime_error("this variant is broken"); }\n'
        )

    library = attention.load(build_library(tmp_path, [variant], break_variant))
    q = np.zeros((1, 8, 1, 32), np.float32)
    with pytest.raises(attention.AttentionError, match="this variant is broken") as caught:
        library.forward(q, q, q)
    assert caught.value.status == 3
