"""The interface of backends, which hold objects by name, and their list. A new backend is a module
with a class that has the interface, and a row here. Any exception counts as a failure of the tier;
`BackendError` gives the reason."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from lazyck.errors import RemoteError
from lazyck.remote.sign import read_private

if TYPE_CHECKING:
    from lazyck.remote.tiers import Tier, Times

CHUNK = 1 << 20
UNKNOWN_SIZE = -1
DIRECTORY = "file"


class BackendError(RemoteError):
    """A tier did not do what it was asked. The message says why, and has no credentials."""


class Backend(Protocol):
    """Objects by name, `ac/<hash>` and `cas/<hash>`. Each is there whole or not at all."""

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        """Yield only the object's first `most` bytes in parts, or return None if there is none."""

    def size(self, name: str) -> int | None:
        """Return the object's size, or UNKNOWN_SIZE, or None if there is no object."""

    def write(self, name: str, data: bytes | str) -> None:
        """Write the object, whether it exists or not. A `str` is the path of a file."""

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        """Create an object unless it exists. It expires after `seconds` if the backend can expire
        objects. Return whether it was created, or None if it was written and the backend cannot
        tell whether another process wrote it, too."""

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        """Replace the object if it is `old`. The result is like that of `create`."""
        self.write(name, new)
        return None

    def delete(self, name: str) -> bool:
        """Delete the object. Return False if the backend cannot."""


def opened(data: bytes | str) -> BinaryIO:
    return BytesIO(data) if isinstance(data, bytes) else open(data, "rb")


def read_token(path: str, label: str) -> str:
    """Return the password in the token file of a tier or service, or an empty string if it names
    none. Raises `UsageError`."""
    if not path:
        return ""
    words = read_private(Path(path), f"the token of {label}").decode("ascii", "replace").split()
    return words[0] if words else ""


@dataclass(frozen=True)
class BackendSpec:
    """`target` is `MODULE:CLASS` in this package. `attributes` are those that its tiers may have
    besides what all tiers may have. With `takes_password`, a URL may hold one."""

    target: str
    attributes: tuple[str, ...] = ()
    takes_password: bool = False


_HTTP = BackendSpec("http_backend:HttpBackend", ("token-file",), takes_password=True)
_REDIS = BackendSpec("redis_backend:RedisBackend", ("token-file",), takes_password=True)
_BACKENDS = {
    DIRECTORY: BackendSpec("directory_backend:DirectoryBackend", takes_password=True),
    "http": _HTTP,
    "https": _HTTP,
    "redis": _REDIS,
    "rediss": _REDIS,
    "s3": BackendSpec("s3_backend:S3Backend", ("endpoint",)),
}
_OTHERS = BackendSpec("fsspec_backend:FsspecBackend")  # what fsspec knows


def spec_of(scheme: str) -> BackendSpec:
    return _BACKENDS.get(scheme, _OTHERS)


def open_backend(tier: "Tier", times: "Times") -> Backend:
    """Return a tier's backend, not connected. Raises `RemoteError` if its library is missing."""
    # A backend is imported when it is used, because the helper starts for every local miss.
    module, _, name = spec_of(tier.scheme).target.partition(":")
    backend: Backend = getattr(import_module(f"lazyck.remote.{module}"), name)(tier, times)
    return backend
