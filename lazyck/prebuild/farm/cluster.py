"""The cluster that `--executor` names: `dask://HOST:PORT`, a scheduler of dask.distributed; `dask+tls://`: by TLS."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from lazyck.errors import BuildError, UsageError

_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}
_CONNECT_SECONDS = 20


def scheduler_address(executor: str) -> str:
    """What dask calls it. Raises `UsageError`."""
    scheme, separator, rest = executor.partition("://")
    host, _, port = rest.rstrip("/").rpartition(":")
    if not separator or scheme not in _SCHEMES or not host or not port.isdigit():
        raise UsageError(f"--executor {executor!r}: not a cluster", "write dask://HOST:8786, or dask+tls://HOST:8786")
    return f"{_SCHEMES[scheme]}://{host}:{port}"


@contextmanager
def connected(executor: str) -> Iterator[Any]:
    """A client of the cluster. Raises `UsageError`, `BuildError`."""
    address = scheduler_address(executor)
    try:
        distributed = import_module("distributed")
    except ModuleNotFoundError as e:
        raise UsageError(f"--executor {executor}: {e.name} is not installed", "pip install 'lazyck[farm]'") from e
    _check_that_somebody_listens(executor, address)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is told here
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as e:
        raise _no_scheduler(executor, e) from e
    try:
        yield client
    finally:
        with suppress(TimeoutError):
            client.close(timeout=5)


def _check_that_somebody_listens(executor: str, address: str) -> None:
    """Dask tries again and again."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as e:
        raise _no_scheduler(executor, e) from e


def _no_scheduler(executor: str, e: Exception) -> BuildError:
    return BuildError(
        f"--executor {executor}: no scheduler answers there: {e}",
        "start one by `dask scheduler`, and workers by `dask worker HOST:8786` (docs/scale.md)",
    )
