"""Describe small networks as graphs of operations, as torch.fx traces them (torch_graphs.py) or
written by hand.

All shapes are known, and all values are float32 in rows. `evaluate` computes a graph with NumPy, in
double precision.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

BATCHES = (1, 4, 16, 64)
Array = Any  # numpy.ndarray


@dataclass(frozen=True)
class Node:
    """Holds one value: a graph's `input` or `parameter`, or an operation on earlier values.
    `number` is the factor of `scale` and the epsilon of `layer_norm`."""

    name: str
    op: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    number: float = 0.0


@dataclass(frozen=True)
class Graph:
    """Holds nodes in the order of evaluation; the last one is the result."""

    name: str
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)

    @property
    def arguments(self) -> list[Node]:
        """Return inputs and parameters, in the order in which the compiled graph takes them."""
        return [n for n in self.nodes if not n.inputs]

    @property
    def operations(self) -> list[Node]:
        return [n for n in self.nodes if n.inputs]


class Writer:
    """Builds a graph node by node, and names nodes as torch.fx does."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    def add(self, op: str, *inputs: str, shape: tuple[int, ...], name: str = "", number: float = 0.0) -> str:
        """Append a node and return its name: `name`, or else `op`, with a number if the name is
        taken."""
        base = name or op
        taken = sum(n == base or n.rpartition("_")[0] == base for n in self.nodes)
        name = f"{base}_{taken}" if base in self.nodes else base
        self.nodes[name] = Node(name, op, inputs, shape, number)
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.nodes[name].shape

    def same(self, op: str, *inputs: str, name: str = "", number: float = 0.0) -> str:
        """Append an operation whose result has the shape of its first input."""
        return self.add(op, *inputs, shape=self.shape(inputs[0]), name=name, number=number)

    def linear(self, name: str, x: str, width: int) -> str:
        rows, inner = self.shape(x)
        weight = self.add("parameter", shape=(width, inner), name=f"{name}.weight")
        bias = self.add("parameter", shape=(width,), name=f"{name}.bias")
        return self.add("linear", x, weight, bias, shape=(rows, width), name=name)

    def layer_norm(self, name: str, x: str, epsilon: float) -> str:
        width = self.shape(x)[-1]
        weight = self.add("parameter", shape=(width,), name=f"{name}.weight")
        bias = self.add("parameter", shape=(width,), name=f"{name}.bias")
        return self.same("layer_norm", x, weight, bias, name=name, number=epsilon)

    def matmul(self, a: str, b: str) -> str:
        return self.add("matmul", a, b, shape=(self.shape(a)[0], self.shape(b)[1]))

    def transpose(self, x: str) -> str:
        return self.add("transpose", x, shape=self.shape(x)[::-1])

    def reduce(self, op: str, x: str, name: str = "") -> str:
        """Append `sum` or `mean` over the last axis."""
        return self.add(op, x, shape=self.shape(x)[:-1], name=name)

    def graph(self, name: str) -> Graph:
        return Graph(name, tuple(self.nodes.values()))


def mlp(batch: int) -> Graph:
    """Return a residual block and a classifier."""
    w = Writer()
    x = w.add("input", shape=(batch, 64), name="x")
    h = w.same("gelu", w.linear("up", x, 128))
    h = w.same("add", x, w.linear("down", h, 64))
    h = w.layer_norm("norm", h, 1e-5)
    w.same("softmax", w.linear("head", h, 10))
    return w.graph(f"mlp_{batch}")


def attention(batch: int) -> Graph:
    """Return one head of self-attention over `batch` positions, then the mean of each row."""
    w = Writer()
    x = w.add("input", shape=(batch, 32), name="x")
    scores = w.matmul(w.linear("query", x, 32), w.transpose(w.linear("key", x, 32)))
    weights = w.same("softmax", w.same("scale", scores, name="mul", number=1 / math.sqrt(32)))
    mixed = w.linear("out", w.matmul(weights, w.linear("value", x, 32)), 32)
    w.reduce("mean", w.same("add", x, mixed))
    return w.graph(f"attention_{batch}")


def gate(batch: int) -> Graph:
    """Return a gated unit, summed over each row."""
    w = Writer()
    x = w.add("input", shape=(batch, 48), name="x")
    opened = w.same("sigmoid", w.linear("door", x, 48))
    value = w.same("tanh", w.linear("value", w.same("relu", x), 48))
    w.reduce("sum", w.same("mul", opened, value), name="sum_1")
    return w.graph(f"gate_{batch}")


def by_hand() -> list[Graph]:
    """Return every network at every batch size."""
    return [network(batch) for network in (mlp, attention, gate) for batch in BATCHES]


# -- reference -------------------------------------------------------------------------------------


def values(graph: Graph, seed: int = 7) -> dict[str, Array]:
    """Return random values for a graph's inputs and parameters."""
    rng = np.random.default_rng(seed)
    return {n.name: (rng.standard_normal(n.shape) / 3).astype(np.float32) for n in graph.arguments}


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * weight + bias


_COMPUTE: dict[str, Callable[..., Array]] = {
    "linear": lambda x, w, b, _: x @ w.T + b,
    "matmul": lambda a, b, _: a @ b,
    "transpose": lambda x, _: x.T,
    "add": lambda a, b, _: a + b,
    "mul": lambda a, b, _: a * b,
    "scale": lambda x, factor: x * factor,
    "relu": lambda x, _: np.maximum(x, 0),
    "gelu": lambda x, _: _gelu(x),
    "tanh": lambda x, _: np.tanh(x),
    "sigmoid": lambda x, _: 1 / (1 + np.exp(-x)),
    "softmax": lambda x, _: _softmax(x),
    "layer_norm": _layer_norm,
    "sum": lambda x, _: x.sum(-1),
    "mean": lambda x, _: x.mean(-1),
}


def evaluate(graph: Graph, given: Mapping[str, Array]) -> Array:
    """Return the result of `graph`."""
    known = {name: np.asarray(value, np.float64) for name, value in given.items()}
    for n in graph.operations:
        known[n.name] = _COMPUTE[n.op](*(known[i] for i in n.inputs), n.number)
    return known[graph.nodes[-1].name]
