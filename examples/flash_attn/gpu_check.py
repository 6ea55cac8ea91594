"""Compare FlashAttention with torch's own attention, forward and backward, on the GPU at hand.

    python gpu_check.py [HEAD_DIM[:causal]...]

This needs a torch with CUDA, a GPU, einops, and flash_attn on PYTHONPATH. It prints one line per
case and ends with status 1 if one is wrong. As in FlashAttention's own tests, the error against
float32 may be at most twice that of plain torch in half precision.
"""

import itertools
import math
import sys
import time

import torch
from flash_attn import flash_attn_func


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Compute attention by plain matrix products; tensors are (batch, length, heads, dim)."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        rows, columns = scores.shape[-2:]
        hidden = torch.ones(rows, columns, dtype=torch.bool, device=q.device).triu(columns - rows + 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def outcome(attention, inputs, gradient, causal):  # type: ignore[no-untyped-def]
    """Return the output and the three gradients of an attention function."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    out = attention(*leaves, causal=causal)
    return [t.float() for t in (out.detach(), *torch.autograd.grad(out, leaves, gradient))]


def check(dim: int, dtype: torch.dtype, causal: bool) -> bool:
    """Check one case; print how far off output and gradients are, in units of the allowed error."""
    torch.manual_seed(dim)
    # This is enough for the whole device: with less, kernels that split the keys would run, from
    # other files.
    shape = (8, 193, 16, dim)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]
    gradient = torch.randn(shape, device="cuda", dtype=dtype)
    begun = time.monotonic()
    got = outcome(flash_attn_func, inputs, gradient, causal)
    torch.cuda.synchronize()
    seconds = time.monotonic() - begun
    plain = outcome(reference, inputs, gradient, causal)
    exact = outcome(reference, [t.float() for t in inputs], gradient.float(), causal)
    off = [
        float((a - c).abs().max() / (2 * (b - c).abs().max() + 1e-4)) for a, b, c in zip(got, plain, exact, strict=True)
    ]
    good = all(math.isfinite(x) and x <= 1 for x in off)
    shown = ", ".join(f"{name} {x:.2f}" for name, x in zip(("out", "dq", "dk", "dv"), off, strict=True))
    print(f"dim {dim} {dtype} causal={causal}: {shown} of the error allowed, {seconds:.1f} s", flush=True)
    return good


def main() -> None:
    """Check a few cases, each of two files, or those that the command line names, in fp16."""
    cases = [*itertools.product((64,), (torch.float16,), (False, True)), (32, torch.bfloat16, True)]
    if words := sys.argv[1:]:
        cases = [(int(word.partition(":")[0]), torch.float16, word.endswith(":causal")) for word in words]
    if not all([check(*case) for case in cases]):
        sys.exit("FlashAttention and torch's reference do not agree")


if __name__ == "__main__":
    main()
