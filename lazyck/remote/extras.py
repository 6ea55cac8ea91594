"""Imports libraries that only some remotes need, when one is used. The error for a missing one has
the line that installs it."""

from importlib import import_module
from typing import Any

from lazyck.errors import RemoteError


def need(module: str, extra: str, why: str) -> Any:
    """Return the module. Raises `RemoteError` if it is not installed."""
    try:
        return import_module(module)
    except ImportError as e:
        raise RemoteError(
            f"{why} needs {module.split('.')[0]}, which is not installed", f"pip install 'lazyck[{extra}]'"
        ) from e
