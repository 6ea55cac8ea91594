"""Stores objects on an HTTP or HTTPS server by way of requests: GET, PUT and HEAD, and DELETE if
the server supports it."""

from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from lazyck.remote import web
from lazyck.remote.backend import UNKNOWN_SIZE, Backend, BackendError, opened, read_token
from lazyck.remote.extras import need
from lazyck.remote.tiers import Tier, Times

_MOST_REDIRECTS = 4
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_SMALL = 64 << 10
_ABSENT = (404, 410)
_WRITTEN = (200, 201, 202, 204)
_CANNOT = (400, 403, 405, 501)


class HttpBackend(Backend):
    """A server that keeps what is PUT: nginx with WebDAV, bazel-remote, a gateway."""

    def __init__(self, tier: Tier, times: Times) -> None:
        requests = need("requests", "remote", tier.label)
        parts = urlsplit(tier.url)
        self._label = tier.label
        self._times = times
        self._base = (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"))
        self._query = parts.query
        session = requests.Session()
        # If requests knew of a redirect, it would read and unpack the redirect's body without a
        # limit. So `_ask` follows redirects.
        session.get_redirect_target = lambda _response: None
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        # Contents are sent as they are, so that nothing can unpack to more.
        session.headers.update({"Accept-Encoding": "identity", "User-Agent": "lazyck"})
        adapter = web.make_adapter(tier.label)
        for scheme in _PORTS:
            session.mount(f"{scheme}://", adapter)
        if parts.username is not None:
            session.auth = (unquote(parts.username), unquote(parts.password or ""))
        if token := read_token(tier.token_file, tier.label):
            # The token is set as `auth`, which takes precedence over ~/.netrc.
            session.auth = _bearer(token)
        self._session = session

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        response = self._ask("GET", name)
        if self._is_absent(response):
            return None
        return web.parts(response.raw, most)

    def size(self, name: str) -> int | None:
        response = self._ask("HEAD", name)
        if self._is_absent(response):
            return None
        response.close()
        length = response.headers.get("Content-Length", "")
        # bazel-remote does not tell the size of some objects that it has.
        return int(length) if length.isdigit() and len(length) < 16 else UNKNOWN_SIZE

    def write(self, name: str, data: bytes | str) -> None:
        with opened(data) as f:
            self._put(name, f)

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        # Servers that do not support conditions write all the same.
        return None if self._put(name, data, {"If-None-Match": "*"}) else False

    def delete(self, name: str) -> bool:
        response = self._ask("DELETE", name)
        self._drain(response)
        if response.status_code in _CANNOT:
            return False
        if response.status_code not in (*_WRITTEN, *_ABSENT):
            raise BackendError(f"answers with status {response.status_code}")
        return True

    def _put(self, name: str, body: Any, headers: dict[str, str] | None = None) -> bool:
        response = self._ask("PUT", name, data=body, headers=headers)
        self._drain(response)
        if headers and response.status_code in (409, 412):
            return False
        if response.status_code not in _WRITTEN:
            raise BackendError(f"answers a PUT with status {response.status_code}")
        return True

    def _ask(self, method: str, name: str, **how: Any) -> Any:
        """Return the answer behind all redirects. Writes follow none: a PUT might become a GET."""
        scheme, host, path = self._base
        url = urlunsplit((scheme, host, f"{path}/{name}", self._query, ""))
        origin = _origin_of(url)
        auth = None  # the session's own credentials
        for _ in range(_MOST_REDIRECTS + 1):
            response = self._send(method, url, auth, how)
            target = response.headers.get("Location", "")
            if method not in ("GET", "HEAD") or response.status_code not in _REDIRECTS or not target:
                return response
            self._drain(response)
            url = _next_url(url, target)
            if _origin_of(url) != origin:
                auth = _without_credentials  # for all later redirects, too
        raise BackendError("redirects in circles")

    def _send(self, method: str, url: str, auth: Any, how: dict[str, Any]) -> Any:
        timeout = (self._times.connect, self._times.idle)
        with web.saying_what_failed(self._label, self._times):
            return self._session.request(
                method, url, stream=True, timeout=timeout, allow_redirects=False, auth=auth, **how
            )

    def _is_absent(self, response: Any) -> bool:
        if response.status_code == 200:
            return False
        self._drain(response)
        if response.status_code in _ABSENT:
            return True
        raise BackendError(f"answers with status {response.status_code}")

    @staticmethod
    def _drain(response: Any) -> None:
        """Read a short answer, to use the connection again. A long one costs the connection."""
        for _ in web.parts(response.raw, _SMALL):
            pass
        response.close()


def _bearer(token: str) -> Any:
    def add(request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return add


def _without_credentials(request: Any) -> Any:
    """Leave a request as it is. As `auth`, this keeps credentials, also ~/.netrc's, away."""
    return request


def _next_url(url: str, target: str) -> str:
    """Return where a redirect leads. Raises `BackendError` if it must not be followed."""
    try:
        found = urljoin(url, target)
        scheme, host, _ = _origin_of(found)
    except ValueError as e:
        raise BackendError("redirects to an invalid URL") from e
    if url.startswith("https:") and scheme != "https":
        raise BackendError("redirects away from https")
    if scheme not in _PORTS or not host:
        raise BackendError("redirects to a URL that is not HTTP")
    return found


def _origin_of(url: str) -> tuple[str, str, int]:
    """Return the scheme, the host and the port. Raises `ValueError`."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
