"""Tests that the attention example, built ahead of time for the fake GPU, agrees with NumPy."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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


sys.path.insert(0, str(EXAMPLE))
import attention  # noqa: E402
import problems  # noqa: E402
from problems import Case  # noqa: E402

CASES = [
    Case(32, "fp32", "batch", "nomask", "nobias", ((67, 93), (67, 93))),
    Case(64, "fp16", "batch", "causal", "alibi", ((70, 101), (70, 101)), heads=(4, 2)),
    # There are more rows than keys, so the first rows see no key at all.
    Case(96, "fp32", "batch", "causal", "nobias", ((75, 50), (75, 50))),
    # The window's edges lie one element past a tile's, so a skipped tile would show.
    Case(32, "bf16", "group", "window", "nobias", ((100, 100), (33, 40), (1, 17)), window=(33, 1)),
    Case(128, "bf16", "group", "nomask", "alibi", ((21, 52), (45, 13)), heads=(2, 1)),
    Case(256, "fp16", "batch", "window", "alibi", ((50, 50),), window=(-1, 5)),
]


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


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("direction", [problems.forward, problems.backward])
def test_every_direction_agrees_with_numpy(library: Any, case: Case, direction: Any) -> None:
    for answer in direction(library, case, problems.make_problem(case)):
        np.testing.assert_allclose(
            answer.actual, answer.expected, rtol=answer.tolerance, atol=answer.tolerance, err_msg=answer.name
        )
        assert answer.error() <= 1


def test_rows_that_see_no_key_are_zero_and_have_infinite_lse(library: Any) -> None:
    problem = problems.make_problem(CASES[2])
    out, lse = library.forward(*(problem.arrays[name] for name in "qkv"), **problem.options)
    assert np.all(out[:, :25] == 0)
    assert np.all(lse[:, :, :25] == -np.inf)
    assert np.all(np.isfinite(lse[:, :, 25:]))


def test_backward_is_the_same_bit_for_bit_every_time(library: Any) -> None:
    problem = problems.make_problem(CASES[1])
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
