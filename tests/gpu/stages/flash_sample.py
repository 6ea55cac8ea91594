"""A plugin of pytest that cuts flash-attn's own half a million tests to a sample before they are collected, which alone
takes a minute: `pytest -p flash_sample tests/test_flash_attn.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

# Of each test the values that are kept; of an argument that is not named, all. Shapes that fill the device: for smaller
# ones flash-attn chooses kernels that split the keys, out of other files.
SAMPLE: Mapping[str, Mapping[str, Sequence[str]]] = {
    "test_flash_attn_qkvpacked": {"seqlen": ("1024", "1025"), "d": ("64", "128"), "dtype": ("torch.float16",)},
    "test_flash_attn_output": {
        "seqlen_q,seqlen_k": ("(1024, 1023)", "(1023, 1024)"),
        "d": ("64",),
        "dtype": ("torch.float16",),
        "mha_type": ("mqa", "gqa"),
        "alibi": ("False",),
        "deterministic": ("False",),
        "kvpacked": ("False",),
    },
}


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(name: str, obj: Any) -> list[pytest.Item] | None:
    """Leave other tests out, and cut the parameters of those of the sample."""
    if not name.startswith("test_"):
        return None
    if name not in SAMPLE:
        return []
    marks = []
    for mark in obj.pytestmark:
        kept = SAMPLE[name].get(mark.args[0]) if mark.name == "parametrize" else None
        values = [v for v in mark.args[1] if str(v) in kept] if kept else []
        marks.append(getattr(pytest.mark, mark.name)(mark.args[0], values).mark if kept else mark)
    obj.pytestmark = marks
    return None


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Of head dim 128 there is no causal file in the sample."""
    items[:] = [i for i in items if not (i.callspec.params.get("d") == 128 and i.callspec.params.get("causal"))]
