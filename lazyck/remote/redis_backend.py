"""Stores objects in Redis, or a server that speaks its protocol, by way of redis-py. Files are
written in parts under another name, and renamed.

redis-py collects a whole answer in memory, however long the server says that it is, so it reads
from bounded sockets.
"""

import secrets
from collections.abc import Iterator
from typing import Any

from lazyck.remote.backend import CHUNK, Backend, read_token
from lazyck.remote.bounded_socket import BoundedSocket, hold
from lazyck.remote.exchange import current
from lazyck.remote.extras import need
from lazyck.remote.tiers import Tier, Times

_PREFIX = "lazyck/"
_PART_LIVES = 600  # seconds until the leftovers of a killed process expire
_REPLACE = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return 1"""


class RedisBackend(Backend):
    """One database of a Redis server. Leases there expire by themselves."""

    def __init__(self, tier: Tier, times: Times) -> None:
        redis = need("redis", "remote-redis", tier.label)
        connections = need("redis.connection", "remote-redis", tier.label)
        token = read_token(tier.token_file, tier.label)
        is_tls = tier.scheme == "rediss"
        pool = redis.ConnectionPool.from_url(
            tier.url,
            # Version 3 of the protocol has unasked messages, which send the client to another host.
            protocol=2,
            socket_connect_timeout=times.connect,
            socket_timeout=times.idle,
            retry=None,
            retry_on_timeout=False,
            health_check_interval=0,
            **({"ssl_check_hostname": True} if is_tls else {}),
            **({"password": token} if token else {}),
        )
        # An argument beside the URL would not do, because the URL's scheme takes precedence.
        pool.connection_class = _bounded(connections, is_tls)
        self._client: Any = redis.Redis(connection_pool=pool)

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        key = _PREFIX + name
        first = self._range(key, 0, most)
        if not first and not self._client.exists(key):
            return None
        return self._parts(key, first, most)

    def size(self, name: str) -> int | None:
        return int(self._client.strlen(_PREFIX + name)) or None

    def write(self, name: str, data: bytes | str) -> None:
        if isinstance(data, bytes):
            self._client.set(_PREFIX + name, data)
            return
        part = f"{_PREFIX}part/{secrets.token_hex(16)}"
        try:
            with open(data, "rb") as f:
                while data := f.read(CHUNK):
                    self._client.append(part, data)
                    self._client.expire(part, _PART_LIVES)
            self._client.persist(part)
            self._client.rename(part, _PREFIX + name)
        except BaseException:
            self._client.delete(part)
            raise

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        return bool(self._client.set(_PREFIX + name, data, nx=True, px=_milliseconds(seconds)))

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        return bool(self._client.eval(_REPLACE, 1, _PREFIX + name, old, new, _milliseconds(seconds)))

    def delete(self, name: str) -> bool:
        self._client.delete(_PREFIX + name)
        return True

    def _parts(self, key: str, first: bytes, most: int) -> Iterator[bytes]:
        part, at = first, 0
        while part:
            yield part
            at += len(part)
            part = self._range(key, at, most) if at < most else b""

    def _range(self, key: str, at: int, most: int) -> bytes:
        end = min(at + CHUNK, most)
        current().expect(end - at)
        found: bytes = self._client.getrange(key, at, end - 1)
        return found


def _bounded(connections: Any, is_tls: bool) -> Any:
    class Held(connections.Connection):  # type: ignore[misc]
        def _connect(self) -> Any:
            current().check()
            return hold(super()._connect())

    # The first class puts TLS around the connection of the next class.
    bases: Any = (connections.SSLConnection, Held) if is_tls else (Held,)

    class Connection(*bases):  # type: ignore[misc]
        def _connect(self) -> Any:
            return BoundedSocket(super()._connect())

    return Connection


def _milliseconds(seconds: float) -> int:
    return max(1, round(1000 * seconds))
