"""Reduce flash-attn's half a million tests to a sample, as a pytest plugin: `pytest -p flash_sample
tests/test_flash_attn.py`. The plugin acts before the tests are collected, because collecting all of
them takes a minute."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

# For each test, this names the parameter values to keep; all values are kept of a parameter that is
# not named. The shapes fill the device: for smaller ones flash-attn chooses kernels that split the
# keys, which lie in other files.
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
    """Drop tests that are not in the sample, and reduce the parameters of the others."""
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
    """Drop causal tests with head dim 128, because the sample has no file for them."""
    items[:] = [i for i in items if not (i.callspec.params.get("d") == 128 and i.callspec.params.get("causal"))]
