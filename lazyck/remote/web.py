"""HTTP by way of requests and urllib3, over bounded sockets. Errors become `BackendError`."""

import contextlib
from collections.abc import Iterator
from typing import Any

from lazyck.remote.backend import CHUNK, BackendError
from lazyck.remote.bounded_socket import BoundedSocket, hold
from lazyck.remote.exchange import current
from lazyck.remote.extras import need
from lazyck.remote.tiers import Times

_POOL = 32  # number of connections that are kept


def make_adapter(label: str) -> Any:
    """Return an adapter that sends requests over bounded sockets, to be mounted in a session or
    used by itself. Raises `RemoteError` if requests is not installed."""
    requests = need("requests", "remote", label)
    connections = need("urllib3.connection", "remote", label)
    pools = need("urllib3.connectionpool", "remote", label)
    scheme_pools = {
        "http": _bounded_pool(pools.HTTPConnectionPool, connections.HTTPConnection),
        "https": _bounded_pool(pools.HTTPSConnectionPool, connections.HTTPSConnection),
    }

    base: Any = requests.adapters.HTTPAdapter

    class Adapter(base):  # type: ignore[misc]
        def init_poolmanager(self, *words: Any, **how: Any) -> None:
            super().init_poolmanager(*words, **how)
            self.poolmanager.pool_classes_by_scheme = scheme_pools

        def proxy_manager_for(self, *words: Any, **how: Any) -> Any:
            manager = super().proxy_manager_for(*words, **how)
            manager.pool_classes_by_scheme = scheme_pools
            return manager

    return Adapter(pool_maxsize=_POOL)


def _bounded_pool(pool: Any, connection: Any) -> Any:
    class Connection(connection):  # type: ignore[misc]
        sock: Any

        def _new_conn(self) -> Any:
            current().check()
            return hold(super()._new_conn())

        def connect(self) -> None:
            super().connect()
            self.sock = BoundedSocket(self.sock)

    class Pool(pool):  # type: ignore[misc]
        ConnectionCls = Connection

    return Pool


@contextlib.contextmanager
def saying_what_failed(label: str, times: Times) -> Iterator[None]:
    """Turn exceptions of requests into a `BackendError`, whose message has no URL."""
    errors = need("requests", "remote", label).exceptions
    try:
        yield
    except errors.SSLError as e:
        raise BackendError("its certificate is not valid here") from e
    except errors.ConnectTimeout as e:
        raise BackendError(f"no connection within {times.connect:g} s") from e
    except errors.ReadTimeout as e:
        raise BackendError(f"no answer within {times.idle:g} s") from e
    except errors.ConnectionError as e:
        raise BackendError("cannot be connected to, or breaks connections") from e


def parts(response: Any, most: int) -> Iterator[bytes]:
    """Yield the first `most` bytes of the body of urllib3's response as they come. Nothing is
    unpacked, because it could unpack to more."""
    broken = need("urllib3.exceptions", "remote", "http").HTTPError
    try:
        while most > 0 and (part := response.read(min(most, CHUNK), decode_content=False)):
            most -= len(part)
            yield part
    except broken as e:
        raise BackendError("stalls or breaks off within an answer") from e
    finally:
        response.close()
