"""Connect to the cluster that `--executor` names: `dask://HOST:PORT`, a scheduler of
dask.distributed, or `dask+tls://` for TLS.

Certificates and keys are those of dask's own configuration (distributed.comm.tls).
"""

import ipaddress
import logging
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from lazyck.errors import BuildError, LazyckError, UsageError
from lazyck.prebuild.farm.guard import Guard, refusing_pickles
from lazyck.visible import visible, without_secrets

_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}
_CONNECT_SECONDS = 20
# Results are requested in forms that cannot run code. dask obeys that for answers only; guard.py
# covers the rest.
_DESERIALIZERS = ("msgpack", "error")
_TLS_HINT = "set dask's distributed.comm.tls: ca-file, client.cert and client.key (`lazyck help scale`)"


def scheduler_address(executor: str) -> str:
    """Return dask's own form of the address. Raises `UsageError`."""
    scheme, separator, rest = executor.partition("://")
    host, _, port = rest.rstrip("/").rpartition(":")
    if not separator or scheme not in _SCHEMES or not host or set(host) & set("@?#") or not port.isdigit():
        raise UsageError(
            f"{without_secrets(executor)!r}: not a cluster", "write dask://HOST:8786, or dask+tls://HOST:8786"
        )
    return f"{_SCHEMES[scheme]}://{host}:{port}"


def is_in_the_open(address: str, peer: str) -> bool:
    """Return whether others can read and change what passes between here and the scheduler at IP
    address `peer`."""
    return not address.startswith("tls://") and not ipaddress.ip_address(peer.partition("%")[0]).is_loopback


@contextmanager
def connected(executor: str, say: Callable[[str], None]) -> Iterator[tuple[Any, Guard]]:
    """Yield a client that runs no code of the cluster. Raises `UsageError` and `BuildError`."""
    address = scheduler_address(executor)
    try:
        distributed = import_module("distributed")
    except ModuleNotFoundError as e:
        raise UsageError(f"{executor}: {e.name} is not installed", "pip install 'lazyck[farm]'") from e
    if is_in_the_open(address, _find_peer(executor, address)):
        say(
            f"{executor} is not encrypted: anyone on the network path can read and change orders and "
            "answers, and run code on the workers; use TLS and dask+tls:// (`lazyck help scale`)"
        )
    # No message may name a module to import.
    no_imports = import_module("dask").config.set({"distributed.scheduler.allowed-imports": []})
    with _quiet(say), no_imports, refusing_pickles() as guard:
        client = _open(distributed, executor, address, guard)
        try:
            yield client, guard
        finally:
            with suppress(Exception):  # the connection may be gone
                client.close(timeout=5)


def _open(distributed: Any, executor: str, address: str, guard: Guard) -> Any:
    security = _security(distributed, executor, address)
    # Output of workers is not shown, and their warnings would be unpickled.
    getattr(distributed.Client, "_default_event_handlers", {}).clear()
    try:
        return distributed.Client(
            address, timeout=_CONNECT_SECONDS, set_as_default=False, security=security, deserializers=_DESERIALIZERS
        )
    except Exception as e:
        guard.check()
        if isinstance(e, OSError | TimeoutError | ValueError):
            raise _no_scheduler(executor, address, e) from e
        raise BuildError(f"{executor}: {e!r}"[:400], "is a scheduler of dask there?") from e


def _security(distributed: Any, executor: str, address: str) -> Any:
    """Return the security settings of dask's configuration. Raises `UsageError` if they do not fit
    the address."""
    try:
        security = distributed.Security()
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError, TypeError) as e:  # an `ssl.SSLError` is an OSError
        where = f"{e.filename}: " if isinstance(e, OSError) and e.filename else ""
        raise UsageError(f"{executor}: dask's TLS settings: {where}{e}", _TLS_HINT) from e
    if address.startswith("tls://") and context is None:
        raise UsageError(f"{executor}: dask's configuration names no certificates", _TLS_HINT)
    if not address.startswith("tls://") and security.require_encryption:
        hint = f"write {executor.replace('dask://', 'dask+tls://')}"
        raise UsageError(f"{executor}: dask's configuration requires encryption", hint)
    return security


@contextmanager
def _quiet(say: Callable[[str], None]) -> Iterator[None]:
    """Keep raw output of the cluster from the terminal. Warnings are shown here instead."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: say(visible(str(message)))
            yield
    finally:
        logging.disable(before)


def _find_peer(executor: str, address: str) -> str:
    """Return the IP address at which the scheduler listens. This is tried here first, since dask
    would retry for a long time."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS) as connection:
            return str(connection.getpeername()[0])
    except OSError as e:
        raise _no_scheduler(executor, address, e) from e


def _no_scheduler(executor: str, address: str, e: BaseException) -> LazyckError:
    is_refused = address.startswith("tls://") and not isinstance(e, ConnectionRefusedError)
    why = f"{e}: {e.__cause__}" if e.__cause__ else str(e)
    return BuildError(
        f"{executor}: no scheduler answers there: {visible(why)}",
        "is it one with TLS, and are its certificates signed by your ca-file? (`lazyck help scale`)"
        if is_refused
        else "start one with `dask scheduler`, and workers with `dask worker HOST:8786` (`lazyck help scale`)",
    )
