"""Ask a compile service over gRPC. Each question ends within a bound, and no answer is longer than
what was asked for."""

import contextlib
import hashlib
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from lazyck.errors import FormatError, RemoteError
from lazyck.prebuild.reapi.action import Blobs, Digest
from lazyck.prebuild.reapi.endpoint import Endpoint
from lazyck.prebuild.reapi.messages import METHODS, SHA256, ZSTD, messages
from lazyck.remote.backend import read_token
from lazyck.remote.extras import need
from lazyck.remote.payload import compressed, decompressed, parts_of
from lazyck.remote.tiers import Times
from lazyck.visible import visible

_LARGEST_MESSAGE = 16 << 20  # bytes
_BATCH = 4 << 20  # bytes of a message, where the service does not tell its limit
_BESIDE = 64 << 10  # bytes of a message besides its contents
_PER_BLOB = 256  # bytes of a message for each content, such as its digest
_MOST_ASKED = 10_000  # digests in one question
_LONGEST_TEXT = 300
_CANCEL_SECONDS = 2.0
LACKS = "FAILED_PRECONDITION"  # the code if contents that it had are gone
# The codes of failures that a retry may overcome.
PASSING = (
    "", LACKS, "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "UNKNOWN", "CANCELLED", "RESOURCE_EXHAUSTED",
)  # fmt: skip


class ServiceError(RemoteError):
    """The service did not do what it was asked. `code` is gRPC's name for the reason, or an empty
    string if its answer was wrong."""

    def __init__(self, label: str, code: str, text: str, hint: str = "") -> None:
        told = visible(" ".join(text.split()))[:_LONGEST_TEXT]
        super().__init__(f"{label}: {': '.join(filter(None, (code, told)))}", hint or _HINTS.get(code, ""))
        self.code = code


class Client:
    """A connection to a service. Threads may share it. Methods raise `ServiceError`, and
    `LazyckError` if a library or the token is missing."""

    def __init__(self, endpoint: Endpoint, times: Times) -> None:
        self._grpc = need("grpc", "reapi", endpoint.label)
        self._m = messages()
        self.label = endpoint.label
        self._instance, self._times = endpoint.instance, times
        self._lock = threading.Lock()
        self._streams: set[Any] = set()
        self._is_stopped = False
        token = read_token(endpoint.token_file, endpoint.label)
        self._metadata = [("authorization", f"Bearer {token}")] if endpoint.token_file else []
        options = [
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE),
            ("grpc.primary_user_agent", "lazyck"),
            ("grpc.enable_retries", 0),
            ("grpc.max_reconnect_backoff_ms", 5000),
        ]
        if endpoint.is_tls:
            self._channel = self._grpc.secure_channel(
                endpoint.target, self._grpc.ssl_channel_credentials(), options=options
            )
        else:
            self._channel = self._grpc.insecure_channel(endpoint.target, options=options)
        # Bytes of a message, and whether contents may be compressed in streams and in messages.
        self._batch, self._has_zstd, self._has_zstd_in_batch = _BATCH, False, False

    def stop(self) -> None:
        """Cancel all running requests and actions."""
        with self._lock:
            self._is_stopped = True
            streams = list(self._streams)
        for stream in streams:
            stream.cancel()

    def close(self) -> None:
        self._channel.close()

    def connect(self) -> None:
        """Ask what the service can do. Raises `ServiceError` if it cannot execute actions."""
        found = self._ask("get_capabilities", self._m.GetCapabilitiesRequest(instance_name=self._instance))
        cache, execution = found.cache_capabilities, found.execution_capabilities
        if not execution.exec_enabled:
            raise ServiceError(self.label, "", "it keeps contents, but executes nothing", "name one that has workers")
        if SHA256 not in (*execution.digest_functions, execution.digest_function, *cache.digest_functions):
            raise ServiceError(self.label, "", "it does not know SHA-256", "configure the service for SHA-256")
        most = int(cache.max_batch_total_size_bytes) or _BATCH
        self._batch = min(most, _BATCH) - _BESIDE
        self._has_zstd = ZSTD in cache.supported_compressors
        self._has_zstd_in_batch = ZSTD in cache.supported_batch_update_compressors

    def upload(self, blobs: Blobs) -> None:
        batch: list[tuple[Digest, bytes]] = []
        size = 0
        for digest in self._missing(blobs):
            if digest.size + _PER_BLOB > self._batch:
                self._write(digest, blobs[digest])
                continue
            if size + digest.size + _PER_BLOB > self._batch:
                self._update(batch)
                batch, size = [], 0
            batch.append((digest, b"".join(_parts_of(blobs[digest]))))
            size += digest.size + _PER_BLOB
        if batch:
            self._update(batch)

    def _missing(self, blobs: Blobs) -> list[Digest]:
        asked = list(blobs)
        missing: list[Digest] = []
        for at in range(0, len(asked), _MOST_ASKED):
            request = self._m.FindMissingBlobsRequest(
                instance_name=self._instance, blob_digests=[d.message() for d in asked[at : at + _MOST_ASKED]]
            )
            found = self._ask("find_missing", request, _MOST_ASKED * _PER_BLOB)
            missing += [Digest.read(d) for d in found.missing_blob_digests]
        return [d for d in dict.fromkeys(missing) if d in blobs]

    def _update(self, batch: list[tuple[Digest, bytes]]) -> None:
        requests = [self._m.Update(digest=digest.message(), data=data) for digest, data in batch]
        for request in requests if self._has_zstd_in_batch else ():
            packed = b"".join(compressed(iter([request.data])))
            if len(packed) < len(request.data):
                request.data, request.compressor = packed, ZSTD
        request = self._m.BatchUpdateBlobsRequest(instance_name=self._instance, requests=requests)
        for response in self._ask("update", request, sum(len(data) for _, data in batch)).responses:
            if response.status.code:
                raise self._failed(response.status)

    def _write(self, digest: Digest, blob: Path | bytes) -> None:
        name = self._resource(f"uploads/{uuid4()}/", digest)

        def requests() -> Iterator[Any]:
            parts = _parts_of(blob)
            at, next_part = 0, b""
            for part in compressed(parts) if self._has_zstd else parts:
                if next_part:
                    yield self._m.WriteRequest(resource_name=name, write_offset=at, data=next_part)
                at, next_part = at + len(next_part), part
            yield self._m.WriteRequest(resource_name=name, write_offset=at, data=next_part, finish_write=True)

        self._ask("write", requests(), digest.size)

    def download(self, digest: Digest, to: IO[bytes]) -> None:
        """Write the contents with this digest to `to`. They have its SHA-256, and are no longer."""
        request = self._m.ReadRequest(resource_name=self._resource("", digest))
        h, left = hashlib.sha256(), digest.size
        with self._stream("read", request, self._times.whole(digest.size)) as stream, contextlib.suppress(FormatError):
            parts: Iterator[bytes] = (response.data for response in stream)
            for part in decompressed(parts, digest.size) if self._has_zstd else parts:
                left -= len(part)
                if left < 0:
                    break
                h.update(part)
                to.write(part)
        if left or h.hexdigest() != digest.hash:
            raise ServiceError(self.label, "", "contents that it sent do not match their digest")

    def _resource(self, kind: str, digest: Digest) -> str:
        lead = f"{self._instance}/" if self._instance else ""
        form = "compressed-blobs/zstd" if self._has_zstd else "blobs"
        return f"{lead}{kind}{form}/{digest.hash}/{digest.size}"

    def find_result(self, action: Digest) -> Any:
        request = self._m.GetActionResultRequest(instance_name=self._instance, action_digest=action.message())
        try:
            return self._ask("get_result", request)
        except ServiceError as e:
            if e.code in ("NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED"):  # a cache is not necessary
                return None
            raise

    def execute(self, action: Digest, on_stage: Callable[[int], None], *, is_anew: bool = False) -> Any:
        """Execute an action whose contents are uploaded, and return its result. `on_stage` is
        called with each stage that the service tells. With `is_anew`, an earlier result does not
        count.

        There is no limit on the time, since actions may wait for a worker: `stop` ends it.
        """
        request: Any = self._m.ExecuteRequest(
            instance_name=self._instance, action_digest=action.message(), skip_cache_lookup=is_anew
        )
        method, name = "execute", ""
        while True:
            try:
                for operation in self._operations(method, request):
                    name = operation.name or name
                    if operation.done:
                        return self._result_of(operation)
                    stage = self._m.ExecuteOperationMetadata()
                    stage.ParseFromString(operation.metadata.value)
                    on_stage(stage.stage)
                raise ServiceError(self.label, "UNAVAILABLE", "it ended the connection before the result")
            except ServiceError as e:
                # The action goes on without us: wait for it again, once for each connection.
                if e.code != "UNAVAILABLE" or not name or method == "wait":
                    raise
                method, request = "wait", self._m.WaitExecutionRequest(name=name)

    def _operations(self, method: str, request: Any) -> Iterator[Any]:
        name = ""
        is_done = False
        try:
            with self._stream(method, request, None) as stream:
                for operation in stream:
                    name, is_done = operation.name or name, operation.done
                    yield operation
        finally:
            if self._is_stopped and name and not is_done:
                with contextlib.suppress(ServiceError):  # a service need not know how to
                    self._ask("cancel", self._m.CancelOperationRequest(name=name), seconds=_CANCEL_SECONDS)

    def _result_of(self, operation: Any) -> Any:
        if operation.error.code:
            raise self._failed(operation.error)
        response = self._m.ExecuteResponse()
        response.ParseFromString(operation.response.value)
        if response.status.code:
            raise self._failed(response.status)
        return response.result

    def _ask(self, method: str, request: Any, size: int = 0, seconds: float = 0) -> Any:
        seconds = seconds or self._times.whole(size)
        try:
            return self._call(method)(request, timeout=seconds, metadata=self._metadata)
        except self._grpc.RpcError as e:
            raise ServiceError(self.label, e.code().name, e.details() or "") from e
        except ValueError as e:  # the channel was closed meanwhile
            raise ServiceError(self.label, "CANCELLED", str(e)) from e

    @contextlib.contextmanager
    def _stream(self, method: str, request: Any, seconds: float | None) -> Iterator[Any]:
        try:
            stream = self._call(method)(request, timeout=seconds, metadata=self._metadata)
        except ValueError as e:
            raise ServiceError(self.label, "CANCELLED", str(e)) from e
        with self._lock:
            self._streams.add(stream)
            is_stopped = self._is_stopped
        if is_stopped:
            stream.cancel()
        try:
            yield stream
        except self._grpc.RpcError as e:
            raise ServiceError(self.label, e.code().name, e.details() or "") from e
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.cancel()

    def _call(self, method: str) -> Any:
        path, request, answer = METHODS[method]
        kind = ("stream" if request.endswith("*") else "unary") + ("_stream" if answer.endswith("*") else "_unary")
        return getattr(self._channel, kind)(
            f"/{path}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self._m, answer.rstrip("*")).FromString,
        )

    def _failed(self, status: Any) -> ServiceError:
        names = {code.value[0]: code.name for code in self._grpc.StatusCode}
        return ServiceError(self.label, names.get(status.code, str(status.code)), status.message)


_HINTS = {
    "UNAVAILABLE": "is the service up, and does grpc:// (or grpcs://, with TLS) fit it?",
    "UNAUTHENTICATED": "name a file with a valid token: |token-file=/PATH",
    "PERMISSION_DENIED": "name a file with a token that may do this: |token-file=/PATH",
    "RESOURCE_EXHAUSTED": "is its storage full, or its quota used up?",
    "INVALID_ARGUMENT": "does the service know this instance (grpc://HOST:PORT/INSTANCE) and these properties?",
    "UNIMPLEMENTED": "is it a service with the Remote Execution API, version 2?",
}


def _parts_of(blob: Path | bytes) -> Iterator[bytes]:
    with io.BytesIO(blob) if isinstance(blob, bytes) else blob.open("rb") as f:
        yield from parts_of(f)
