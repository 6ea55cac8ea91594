"""Emit graphs as LLVM IR, by llvmlite: one module per function.

Each operation is a function `void op_SHAPES(float *out, float *in...)` for exactly these shapes. A
graph is a function `void graph(float **arguments, float *out, float *workspace)` that calls its
operations in order. The IR is what a simple front end writes (every counter lives in memory); the
optimiser makes it fast.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graph import Graph, Node
from llvmlite import ir

F32, I64, VOID, POINTER = ir.FloatType(), ir.IntType(64), ir.VoidType(), ir.PointerType()
# Sums may be reordered, so that they can be vectorised.
_SUMS = ("reassoc", "contract")


def function_name(node: Node, graph: Graph) -> str:
    """Return the name of the function that computes `node`: the operation and everything that it is
    compiled for."""
    shapes = ["x".join(map(str, graph.node(i).shape)) for i in node.inputs]
    number = "" if node.op != "scale" else f"_{node.number:.6g}".replace(".", "p").replace("-", "m")
    return f"{node.op}_{'_'.join(shapes[:1] if len(set(shapes)) == 1 else shapes)}{number}"


def modules(graphs: Sequence[Graph]) -> dict[str, str]:
    """Return the IR of everything that `graphs` need: the text of each function's module by the
    function's name."""
    found: dict[str, str] = {}
    for graph in graphs:
        found[graph.name] = _graph_module(graph)
        for node in graph.operations:
            name = function_name(node, graph)
            if name not in found:
                found[name] = _operation_module(name, node, [graph.node(i).shape for i in node.inputs])
    return found


def workspace_size(graph: Graph) -> int:
    """Return how many floats lie between a graph's arguments and its result."""
    return sum(math.prod(n.shape) for n in graph.operations[:-1])


def _module(name: str) -> ir.Module:
    """Return an empty module that names no machine."""
    module = ir.Module(name=name)
    module.triple = ""
    return module


def _graph_module(graph: Graph) -> str:
    module = _module(graph.name)
    f = ir.Function(module, ir.FunctionType(VOID, [POINTER] * 3), graph.name)
    arguments, out, workspace = f.args
    for value, name in zip(f.args, ("arguments", "out", "workspace"), strict=True):
        value.name = name
    b = ir.IRBuilder(f.append_basic_block("entry"))
    places: dict[str, ir.Value] = {}
    for i, node in enumerate(graph.arguments):
        slot = b.gep(arguments, [I64(i)], source_etype=POINTER)
        places[node.name] = b.load(slot, name=node.name, typ=POINTER)
    at = 0
    for node in graph.operations:
        is_last = node is graph.nodes[-1]
        places[node.name] = out if is_last else b.gep(workspace, [I64(at)], name=node.name, source_etype=F32)
        at += math.prod(node.shape)
        name = function_name(node, graph)
        callee = module.globals.get(name)
        if callee is None:
            callee = ir.Function(module, ir.FunctionType(VOID, [POINTER] * (1 + len(node.inputs))), name)
        b.call(callee, [places[node.name], *(places[i] for i in node.inputs)])
    b.ret_void()
    return str(module)


# -- one operation ---------------------------------------------------------------------------------


class Body:
    """Builds the body of a function."""

    def __init__(self, module: ir.Module, f: ir.Function) -> None:
        self.module, self.f = module, f
        self.entry = f.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)

    def variable(self, type_: ir.Type, value: ir.Value, name: str) -> ir.Value:
        """Make a variable in memory, and set it to `value`."""
        with self.b.goto_entry_block():
            place = self.b.alloca(type_, name=name)
        place.type = POINTER  # llvmlite gives it a type of its own, which LLVM's text does not have any more
        self.b.store(value, place)
        return place

    def get(self, place: ir.Value, type_: ir.Type = F32) -> ir.Value:
        return self.b.load(place, typ=type_)

    @contextmanager
    def loop(self, count: int, name: str) -> Iterator[ir.Value]:
        """Emit `for name in range(count)`; give the counter's value."""
        counter = self.variable(I64, I64(0), name)
        head, inner, after = (self.f.append_basic_block(f"{name}.{part}") for part in ("head", "body", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.b.icmp_signed("<", self.get(counter, I64), I64(count)), inner, after)
        self.b.position_at_end(inner)
        yield self.get(counter, I64)
        self.b.store(self.b.add(self.get(counter, I64), I64(1)), counter)
        self.b.branch(head)
        self.b.position_at_end(after)

    def at(self, pointer: ir.Value, row: ir.Value, width: int, column: ir.Value) -> ir.Value:
        """Return the address of an element of a matrix in rows of `width`."""
        index = self.b.add(self.b.mul(row, I64(width)), column)
        return self.b.gep(pointer, [index], source_etype=F32)

    def element(self, pointer: ir.Value, index: ir.Value) -> ir.Value:
        return self.b.gep(pointer, [index], source_etype=F32)

    def intrinsic(self, name: str, *values: ir.Value) -> ir.Value:
        """Emit a call of `llvm.name.f32`."""
        full = f"llvm.{name}.f32"
        callee = self.module.globals.get(full)
        if callee is None:
            callee = ir.Function(self.module, ir.FunctionType(F32, [F32] * len(values)), full)
        return self.b.call(callee, values)

    def accumulate(self, total: ir.Value, value: ir.Value) -> None:
        self.b.store(self.b.fadd(self.get(total), value, flags=_SUMS), total)


def number(value: float) -> ir.Constant:
    """Return a float32 constant."""
    return ir.Constant(F32, value)


def _operation_module(name: str, node: Node, shapes: Sequence[tuple[int, ...]]) -> str:
    module = _module(name)
    f = ir.Function(module, ir.FunctionType(VOID, [POINTER] * (1 + len(shapes))), name)
    for value, text in zip(f.args, ("out", "a", "b", "c"), strict=False):
        value.name = text
    f.args[0].add_attribute("noalias")
    body = Body(module, f)
    _EMIT[node.op](body, node, shapes)
    body.b.ret_void()
    return str(module)


def _elementwise(compute: Callable[..., ir.Value]) -> Callable[[Body, Node, Any], None]:
    """Return an operation on single elements of inputs of one shape."""

    def emit(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
        out, *inputs = body.f.args
        with body.loop(math.prod(node.shape), "i") as i:
            values = [body.get(body.element(p, i)) for p in inputs]
            body.b.store(compute(body, node, *values), body.element(out, i))

    return emit


def _sigmoid(body: Body, node: Node, x: ir.Value) -> ir.Value:
    b = body.b
    return b.fdiv(number(1), b.fadd(number(1), body.intrinsic("exp", b.fneg(x))))


def _tanh(body: Body, node: Node, x: ir.Value) -> ir.Value:
    # This is 2 sigmoid(2x) - 1, which overflows at neither end.
    b = body.b
    return b.fsub(b.fmul(number(2), _sigmoid(body, node, b.fmul(number(2), x))), number(1))


def _gelu(body: Body, node: Node, x: ir.Value) -> ir.Value:
    b = body.b
    cube = b.fmul(b.fmul(x, x), x)
    inner = b.fmul(number(math.sqrt(2 / math.pi)), b.fadd(x, b.fmul(number(0.044715), cube)))
    return b.fmul(b.fmul(number(0.5), x), b.fadd(number(1), _tanh(body, node, inner)))


def _product(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    """Emit `matmul`, or `linear`, whose second matrix is transposed and which adds a third
    input."""
    out, left, right, *bias = body.f.args
    rows, columns = node.shape
    inner = shapes[0][1]
    with body.loop(rows, "row") as row, body.loop(columns, "column") as column:
        begin = body.get(body.element(bias[0], column)) if bias else number(0)
        total = body.variable(F32, begin, "total")
        with body.loop(inner, "k") as k:
            x = body.get(body.at(left, row, inner, k))
            y = body.get(body.at(right, column, inner, k) if bias else body.at(right, k, columns, column))
            body.accumulate(total, body.b.fmul(x, y, flags=_SUMS))
        body.b.store(body.get(total), body.at(out, row, columns, column))


def _transpose(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    out, x = body.f.args
    rows, columns = node.shape
    with body.loop(rows, "row") as row, body.loop(columns, "column") as column:
        body.b.store(body.get(body.at(x, column, rows, row)), body.at(out, row, columns, column))


def _row_sum(body: Body, x: ir.Value, row: ir.Value, width: int, name: str) -> ir.Value:
    total = body.variable(F32, number(0), name)
    with body.loop(width, f"{name}.i") as i:
        body.accumulate(total, body.get(body.at(x, row, width, i)))
    return body.get(total)


def _reduce(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    out, x = body.f.args
    rows, width = shapes[0]
    with body.loop(rows, "row") as row:
        total = _row_sum(body, x, row, width, "total")
        if node.op == "mean":
            total = body.b.fdiv(total, number(width))
        body.b.store(total, body.element(out, row))


def _softmax(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    out, x = body.f.args
    rows, width = shapes[0]
    with body.loop(rows, "row") as row:
        most = body.variable(F32, number(-math.inf), "most")
        with body.loop(width, "i") as i:
            body.b.store(body.intrinsic("maxnum", body.get(most), body.get(body.at(x, row, width, i))), most)
        total = body.variable(F32, number(0), "total")
        with body.loop(width, "j") as j:
            e = body.intrinsic("exp", body.b.fsub(body.get(body.at(x, row, width, j)), body.get(most)))
            body.b.store(e, body.at(out, row, width, j))
            body.accumulate(total, e)
        with body.loop(width, "k") as k:
            place = body.at(out, row, width, k)
            body.b.store(body.b.fdiv(body.get(place), body.get(total)), place)


def _layer_norm(body: Body, node: Node, shapes: Sequence[tuple[int, ...]]) -> None:
    out, x, weight, bias = body.f.args
    rows, width = shapes[0]
    b = body.b
    with body.loop(rows, "row") as row:
        mean = b.fdiv(_row_sum(body, x, row, width, "sum"), number(width))
        squares = body.variable(F32, number(0), "squares")
        with body.loop(width, "i") as i:
            away = b.fsub(body.get(body.at(x, row, width, i)), mean)
            body.accumulate(squares, b.fmul(away, away, flags=_SUMS))
        variance = b.fdiv(body.get(squares), number(width))
        scale = b.fdiv(number(1), body.intrinsic("sqrt", b.fadd(variance, number(node.number))))
        with body.loop(width, "j") as j:
            away = b.fsub(body.get(body.at(x, row, width, j)), mean)
            scaled = b.fmul(b.fmul(away, scale), body.get(body.element(weight, j)))
            b.store(b.fadd(scaled, body.get(body.element(bias, j))), body.at(out, row, width, j))


_EMIT: dict[str, Callable[[Body, Node, Any], None]] = {
    "add": _elementwise(lambda body, _, x, y: body.b.fadd(x, y)),
    "mul": _elementwise(lambda body, _, x, y: body.b.fmul(x, y)),
    "scale": _elementwise(lambda body, node, x: body.b.fmul(x, number(node.number))),
    "relu": _elementwise(lambda body, _, x: body.intrinsic("maxnum", x, number(0))),
    "sigmoid": _elementwise(_sigmoid),
    "tanh": _elementwise(_tanh),
    "gelu": _elementwise(_gelu),
    "linear": _product,
    "matmul": _product,
    "transpose": _transpose,
    "sum": _reduce,
    "mean": _reduce,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}
