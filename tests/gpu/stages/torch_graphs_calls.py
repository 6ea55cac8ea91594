"""Run `python torch_graphs_calls.py LIBRARY`: call operators out of blobs in CUDA graphs and under
torch.compile. Print each check, whether it holds, and figures, as JSON."""

import json
import sys
from typing import Any

import torch

REPLAYS = 1000


def compiled() -> tuple[bool, str]:
    """Check a function that torch.compile has compiled and that calls one of our operators."""

    def fake(x: torch.Tensor, value: float) -> torch.Tensor:
        return torch.empty_like(x)

    torch.library.register_fake("lazy_ops::scale", fake)

    def function(x: torch.Tensor) -> Any:
        return torch.ops.lazy_ops.scale(torch.relu(x), 3.0) + 1

    x = torch.randn(1 << 16, device="cuda")
    worst = 0.0
    for mode in (None, "reduce-overhead"):  # the second mode captures graphs
        made = torch.compile(function, fullgraph=True, mode=mode)
        for _ in range(4):
            worst = max(worst, float((made(x) - function(x)).abs().max()))
    return worst < 1e-5, f"largest difference {worst:.1e}"


def replayed() -> tuple[bool, str]:
    """Capture after a warm-up, then replay many times."""
    x = torch.ones(1 << 12, device="cuda")
    torch.ops.lazy_ops.scale(x, 1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    total = torch.zeros_like(x)
    with torch.cuda.graph(graph):
        total += torch.ops.lazy_ops.scale(x, 2.0)
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    expected = 2.0 * REPLAYS
    return bool((total == expected).all()), f"{float(total[0])} after {REPLAYS} replays, expected {expected}"


def first_call_in_capture() -> tuple[bool, str]:
    """Check that a first call in a capture is refused, that the call works outside of a capture,
    and that a later capture of another operator succeeds."""
    x = torch.ones(1 << 12, device="cuda")
    said = "nothing"
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.ops.lazy_ops.shift(x, 1.0)
    except RuntimeError as e:
        said = str(e)
    after = torch.ops.lazy_ops.shift(x, 1.0)
    torch.cuda.synchronize()
    is_right, figures = replayed()
    return "captur" in said and bool((after == 2).all()) and is_right, f"{said[:150]}; afterwards: {figures}"


ops: Any = torch.ops
ops.load_library(sys.argv[1])
PROOFS = {
    "a first call under torch.cuda.graph is refused, and nothing is spoiled": first_call_in_capture,
    "torch.cuda.graph: right after 1,000 replays": replayed,
    "torch.compile, also with CUDA graphs: right": compiled,
}
found = {}
for text, proof in PROOFS.items():
    try:
        found[text] = proof()
    except Exception as e:
        found[text] = (False, f"{type(e).__name__}: {e}"[:300])
print(json.dumps(found))
