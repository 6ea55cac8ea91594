"""HTTP and HTTPS by way of requests: GET, PUT and HEAD, and DELETE where the server can."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from lazyck.remote.extras import need
from lazyck.remote.store import CHUNK, UNKNOWN_SIZE, StoreError, read_token
from lazyck.remote.tiers import Tier, Times

_MOST_REDIRECTS = 4
_SMALL = 64 << 10
_ABSENT = (404, 410)
_WRITTEN = (200, 201, 202, 204)
_CANNOT = (400, 403, 405, 501)


class HttpStore:
    """A server that keeps what is PUT: nginx with WebDAV, bazel-remote, a gateway of an object store."""

    def __init__(self, tier: Tier, times: Times) -> None:
        self._requests = need("requests", "remote", tier.label)
        parts = urlsplit(tier.url)
        self._base = (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))
        self._query = parts.query
        self._timeout = (times.connect, times.idle)
        session = self._requests.Session()
        session.max_redirects = _MOST_REDIRECTS
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # Contents come as they are: nothing is unpacked that could unpack to more.
        session.headers.update({"Accept-Encoding": "identity", "User-Agent": "lazyck"})
        session.mount(f"{parts.scheme}://", self._requests.adapters.HTTPAdapter(pool_maxsize=32))
        if parts.username is not None:
            session.auth = (unquote(parts.username), unquote(parts.password or ""))
        if token := read_token(tier):
            # As `auth`, which wins over ~/.netrc, and which requests takes off when another host is redirected to.
            session.auth = _bearer(token)
        self._session = session

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        response = self._ask("GET", name)
        if self._is_absent(response):
            return None
        return self._parts(response, most)

    def size(self, name: str) -> int | None:
        response = self._ask("HEAD", name)
        if self._is_absent(response):
            return None
        response.close()
        length = response.headers.get("Content-Length", "")
        # bazel-remote says of some only that they are there.
        return int(length) if length.isdigit() and len(length) < 16 else UNKNOWN_SIZE

    def write(self, name: str, data: bytes) -> None:
        self._put(name, data)

    def write_file(self, name: str, path: str, size: int) -> None:
        with open(path, "rb") as f:
            self._put(name, f)

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        # Servers that know nothing of conditions write all the same.
        return None if self._put(name, data, {"If-None-Match": "*"}) else False

    def replace(self, name: str, old: bytes, new: bytes, seconds: float) -> bool | None:
        self._put(name, new)
        return None

    def delete(self, name: str) -> bool:
        response = self._ask("DELETE", name)
        self._drain(response)
        if response.status_code in _CANNOT:
            return False
        if response.status_code not in (*_WRITTEN, *_ABSENT):
            raise StoreError(f"answers with status {response.status_code}")
        return True

    def _put(self, name: str, body: Any, headers: dict[str, str] | None = None) -> bool:
        response = self._ask("PUT", name, data=body, headers=headers)
        self._drain(response)
        if headers and response.status_code in (409, 412):
            return False
        if response.status_code not in _WRITTEN:
            raise StoreError(f"answers a PUT with status {response.status_code}")
        return True

    def _ask(self, method: str, name: str, **how: Any) -> Any:
        scheme, host, path = self._base
        url = urlunsplit((scheme, host, f"{path}/{name}", self._query, ""))
        errors = self._requests.exceptions
        try:
            # A redirected PUT might become a GET.
            response = self._session.request(
                method, url, stream=True, timeout=self._timeout, allow_redirects=method in ("GET", "HEAD"), **how
            )
        except errors.TooManyRedirects as e:
            raise StoreError("redirects in circles") from e
        except errors.SSLError as e:
            raise StoreError("its certificate is not valid here") from e
        except errors.ConnectTimeout as e:
            raise StoreError(f"no connection within {self._timeout[0]:g} s") from e
        except errors.ReadTimeout as e:
            raise StoreError(f"no answer within {self._timeout[1]:g} s") from e
        except errors.ConnectionError as e:
            raise StoreError("cannot be connected to, or breaks connections") from e
        if scheme == "https" and not response.url.startswith("https:"):
            response.close()
            raise StoreError("redirects away from https")
        return response

    def _is_absent(self, response: Any) -> bool:
        if response.status_code == 200:
            return False
        self._drain(response)
        if response.status_code in _ABSENT:
            return True
        raise StoreError(f"answers with status {response.status_code}")

    @staticmethod
    def _drain(response: Any) -> None:
        """Read a short answer, so that the connection can be used again; a long one costs the connection."""
        response.raw.read(_SMALL, decode_content=False)
        response.close()

    @staticmethod
    def _parts(response: Any, most: int) -> Iterator[bytes]:
        broken = need("urllib3.exceptions", "remote", "http").HTTPError
        try:
            while most > 0 and (part := response.raw.read(min(most, CHUNK), decode_content=False)):
                most -= len(part)
                yield part
        except broken as e:
            raise StoreError("stalls or breaks off within an answer") from e
        finally:
            response.close()


def _bearer(token: str) -> Any:
    def add(request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return add
