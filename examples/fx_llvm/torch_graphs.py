"""Define the networks of graph.py as torch modules, and trace them with torch.fx."""

import math
import operator
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from graph import BATCHES, Graph, Writer
from torch import nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional


class Mlp(nn.Module):
    """Computes a residual block and a classifier."""

    width = 64

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(64, 10)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = functional.gelu(self.up(x), approximate="tanh")
        h = x + self.down(h)
        return torch.softmax(self.head(self.norm(h)), dim=-1)


class Attention(nn.Module):
    """Computes one head of self-attention, then the mean of each row."""

    width = 32

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(self.query(x), self.key(x).transpose(-2, -1))
        weights = torch.softmax(scores * (1 / math.sqrt(32)), dim=-1)
        return (x + self.out(torch.matmul(weights, self.value(x)))).mean(dim=-1)


class Gate(nn.Module):
    """Computes a gated unit, summed over each row."""

    width = 48

    def __init__(self) -> None:
        super().__init__()
        self.door, self.value = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        opened = torch.sigmoid(self.door(x))
        return (opened * torch.tanh(self.value(torch.relu(x)))).sum(dim=-1)


MODULES: dict[str, type[nn.Module]] = {"mlp": Mlp, "attention": Attention, "gate": Gate}
_FUNCTIONS = {
    torch.softmax: "softmax",
    torch.matmul: "matmul",
    torch.sigmoid: "sigmoid",
    torch.tanh: "tanh",
    torch.relu: "relu",
    functional.gelu: "gelu",
    operator.add: "add",
    operator.mul: "mul",
}
_METHODS = ("mean", "sum", "transpose")


def traced() -> list[Graph]:
    """Return every network at every batch size, as torch.fx sees it."""
    return [trace(name, module(), batch) for name, module in MODULES.items() for batch in BATCHES]


def trace(name: str, module: nn.Module, batch: int) -> Graph:
    """Return the graph of `module` for inputs of `batch` rows."""
    gm = torch.fx.symbolic_trace(module)
    ShapeProp(gm).propagate(torch.zeros(batch, module.width))  # type: ignore[arg-type]
    w = Writer()
    for node in gm.graph.nodes:
        if node.op != "output":
            _write(w, gm, node)
    return w.graph(f"{name}_{batch}")


def _write(w: Writer, gm: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """Write one node of torch.fx as one of ours, with two more for the parameters of a module.
    Raises `TypeError`."""
    shape = tuple(node.meta["tensor_meta"].shape)
    inputs = [a.name for a in node.args if isinstance(a, torch.fx.Node)]
    numbers = [a for a in node.args if isinstance(a, float)]
    if node.op == "placeholder":
        w.add("input", shape=shape, name=node.name)
    elif node.op == "call_module":
        module = gm.get_submodule(str(node.target))
        if isinstance(module, nn.Linear):
            w.linear(node.name, inputs[0], module.out_features)
        elif isinstance(module, nn.LayerNorm):
            w.layer_norm(node.name, inputs[0], module.eps)
        else:
            raise TypeError(f"{node.name}: a {type(module).__name__} has no IR here")
    elif node.op == "call_function" and node.target is operator.mul and numbers:
        w.add("scale", *inputs, shape=shape, name=node.name, number=numbers[0])
    elif node.op == "call_function" and node.target in _FUNCTIONS:
        w.add(_FUNCTIONS[node.target], *inputs, shape=shape, name=node.name)
    elif node.op == "call_method" and node.target in _METHODS:
        w.add(str(node.target), *inputs, shape=shape, name=node.name)
    else:
        raise TypeError(f"{node.name}: {node.op} of {node.target} has no IR here")


def evaluate(graph: Graph, given: Mapping[str, Any]) -> Any:
    """Return what torch itself computes for `graph`, as a NumPy array."""
    module = MODULES[graph.name.rpartition("_")[0]]()
    module.load_state_dict({n: torch.from_numpy(v) for n, v in given.items() if n != "x"})
    with torch.no_grad():
        return module(torch.from_numpy(given["x"])).numpy()
