"""Lists the backends: a new one is a module with a class that has the interface `store.Store`, and
a row here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _lazyck.remote.store import Store
    from _lazyck.remote.tiers import Tier, Times

DIRECTORY = "file"


@dataclass(frozen=True)
class Backend:
    """`place` is `MODULE:CLASS` in this package. `attributes` are those that its tiers may have
    besides what all tiers may have. With `takes_password`, a URL may hold one."""

    place: str
    attributes: tuple[str, ...] = ()
    takes_password: bool = False


_HTTP = Backend("http_store:HttpStore", ("token-file",), takes_password=True)
_REDIS = Backend("redis_store:RedisStore", ("token-file",), takes_password=True)
_BACKENDS = {
    DIRECTORY: Backend("directory_store:DirectoryStore", takes_password=True),
    "http": _HTTP,
    "https": _HTTP,
    "redis": _REDIS,
    "rediss": _REDIS,
    "s3": Backend("s3_store:S3Store", ("endpoint",)),
}
_OTHERS = Backend("apart_store:ApartStore")  # whatever fsspec knows


def backend_of(scheme: str) -> Backend:
    """Return the backend that serves URLs of this scheme."""
    return _BACKENDS.get(scheme, _OTHERS)


def open_store(tier: Tier, times: Times) -> Store:
    """Return the backend of a tier. Nothing is connected yet. Raises `RemoteError` if its library
    is missing."""
    # A backend is imported when it is used, because the helper starts for every local miss.
    module, _, name = backend_of(tier.scheme).place.partition(":")
    store: Store = getattr(import_module(f"_lazyck.remote.{module}"), name)(tier, times)
    return store
