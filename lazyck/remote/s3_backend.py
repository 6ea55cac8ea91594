"""Stores objects in S3, or a store with its interface. botocore does the signing, the credentials
and the answers. Its requests go over our bounded sockets (`lazyck.remote.web`), since its own
sockets read texts of errors without a limit."""

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from lazyck.remote import web
from lazyck.remote.backend import CHUNK, Backend, BackendError, opened
from lazyck.remote.extras import need
from lazyck.remote.tiers import Tier, Times

_EXTRA = "remote-s3"


class S3Backend(Backend):
    """A bucket, or a place in one. Credentials are what Amazon's own tools take."""

    def __init__(self, tier: Tier, times: Times) -> None:
        need("botocore.session", _EXTRA, tier.label)
        self._adapter = web.make_adapter(tier.label)
        self._tier = tier
        self._times = times
        parts = urlsplit(tier.url)
        self._bucket, self._root = parts.netloc, parts.path.strip("/")
        self._lock = threading.Lock()
        self._client: Any = None
        self._verify: Any = True

    def read(self, name: str, most: int) -> Iterator[bytes] | None:
        found = self._ask("get_object", name)
        return None if found is None else self._parts(found["Body"], most)

    def size(self, name: str) -> int | None:
        found = self._ask("head_object", name)
        return None if found is None else int(found["ContentLength"])

    def write(self, name: str, data: bytes | str) -> None:
        with opened(data) as f:
            self._put(name, f)

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        # Some stores with S3's interface ignore the condition.
        return None if self._put(name, data, IfNoneMatch="*") else False

    def delete(self, name: str) -> bool:
        self._ask("delete_object", name)
        return True

    def _put(self, name: str, body: Any, **how: str) -> bool:
        found = self._ask("put_object", name, Body=body, **how)
        if found is None:
            raise BackendError("has no such bucket")
        return found is not _NOT_MADE

    def _ask(self, what: str, name: str, **how: Any) -> Any:
        """Return the answer, or None if there is no such object or bucket, or `_NOT_MADE` if a
        condition was not met."""
        errors = need("botocore.exceptions", _EXTRA, self._tier.label)
        key = f"{self._root}/{name}" if self._root else name
        try:
            return getattr(self._connected(), what)(Bucket=self._bucket, Key=key, **how)
        except errors.ClientError as e:
            status = e.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status == 404:
            return None
        if status in (409, 412) and "IfNoneMatch" in how:
            return _NOT_MADE
        raise BackendError("denies access" if status == 403 else f"answers with status {status}")

    def _connected(self) -> Any:
        """Return the client, made when it is needed: a server may be asked for credentials."""
        with self._lock:
            if self._client is None:
                session = need("botocore.session", _EXTRA, self._tier.label).get_session()
                config = need("botocore.config", _EXTRA, self._tier.label).Config(
                    connect_timeout=self._times.connect,
                    read_timeout=self._times.idle,
                    retries={"total_max_attempts": 1},
                    # Contents are checked by their SHA-256, and not all stores with S3's interface
                    # know these checksums.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                )
                client = session.create_client("s3", endpoint_url=self._tier.endpoint or None, config=config)
                # botocore does not send a request that this answers.
                client.meta.events.register("before-send.s3", self._send)
                self._verify = session.get_config_variable("ca_bundle") or True
                self._client = client
            return self._client

    def _send(self, request: Any, **_: Any) -> Any:
        """Send a request unchanged after botocore has signed it."""
        requests = need("requests", "remote", self._tier.label)
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url, prepared.body = request.method, request.url, request.body or None
        headers = {name: v.decode("latin-1") if isinstance(v, bytes) else v for name, v in request.headers.items()}
        headers.pop("Expect", None)  # the server's permission is not awaited, and the header is not signed
        prepared.headers = requests.structures.CaseInsensitiveDict(headers)
        with web.saying_what_failed(self._tier.label, self._times):
            raw = self._adapter.send(
                prepared,
                stream=True,
                timeout=(self._times.connect, self._times.idle),
                verify=self._verify,
                proxies=requests.utils.get_environ_proxies(request.url),
            ).raw
        response = need("botocore.awsrequest", _EXTRA, self._tier.label).AWSResponse
        return response(request.url, raw.status, raw.headers, raw)

    @staticmethod
    def _parts(body: Any, most: int) -> Iterator[bytes]:
        errors = need("botocore.exceptions", _EXTRA, "s3")
        try:
            while most > 0 and (part := body.read(min(most, CHUNK))):
                most -= len(part)
                yield part
        except (errors.HTTPClientError, errors.IncompleteReadError) as e:
            raise BackendError("stalls or breaks off within an answer") from e
        finally:
            body.close()


_NOT_MADE = object()
