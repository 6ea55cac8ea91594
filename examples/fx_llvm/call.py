"""Call graphs of the built library; compare with NumPy, and with torch where it is installed.

python call.py LIBRARY GRAPH...       prints one JSON line per graph: seconds of the first and of a
                                      later call, errors
"""

import ctypes
import importlib.util
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import graph
import numpy as np
from graph import Graph

FLOATS = ctypes.POINTER(ctypes.c_float)


def pointer(array: Any) -> Any:
    """Return the address of a float32 array."""
    return array.ctypes.data_as(FLOATS)


class Library:
    """Wraps the dispatcher's two functions."""

    def __init__(self, path: str) -> None:
        self._lib = ctypes.CDLL(path)
        self._lib.fx_workspace.restype = ctypes.c_long

    def call(self, g: Graph, given: Mapping[str, Any]) -> Any:
        """Return the result of graph `g` for the values of its inputs and parameters."""
        name = g.name.encode()
        size = self._lib.fx_workspace(name)
        if size < 0:
            raise KeyError(g.name)
        arguments = (FLOATS * len(g.arguments))(*(pointer(given[n.name]) for n in g.arguments))
        out = np.empty(g.nodes[-1].shape, np.float32)
        workspace = np.empty(max(size, 1), np.float32)
        self._lib.fx_call(name, arguments, pointer(out), pointer(workspace))
        return out


def main() -> None:
    """Call the graphs that the command line names."""
    library = Library(sys.argv[1])
    known = {g.name: g for g in graph.by_hand()}
    has_torch = importlib.util.find_spec("torch") is not None
    for name in sys.argv[2:]:
        g = known[name]
        given = graph.values(g)
        begun = time.perf_counter()
        out = library.call(g, given)
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        again = library.call(g, given)
        later = time.perf_counter() - begun
        row = {"graph": name, "first": first, "later": later, "same": bool((out == again).all())}
        row["numpy_error"] = float(np.abs(out - graph.evaluate(g, given)).max())
        if has_torch:
            import torch_graphs

            row["torch_error"] = float(np.abs(out - torch_graphs.evaluate(g, given)).max())
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
