"""A gRPC proxy between a client and BuildGrid, which lies, stalls and refuses as a test tells it
to."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import zstandard

from lazyck.prebuild.reapi.messages import METHODS, ZSTD, messages

Forward = Callable[[Iterator[Any]], Iterator[Any]]
# Gets the requests, what forwards them, and the context of the call. Yields the answers.
Fault = Callable[[Iterator[Any], Forward, Any], Iterator[Any]]
_NAMES = {f"/{path}": name for name, (path, _, _) in METHODS.items()}


@dataclass
class Proxy:
    """`faults` are by method, as lazyck's client calls them. `calls` counts the calls of each."""

    server: int
    port: int = 0
    faults: dict[str, Fault] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    token: str = ""  # without it in a call's metadata, the call is refused
    is_tls: bool = False

    @property
    def url(self) -> str:
        return f"grpc{'s' if self.is_tls else ''}://127.0.0.1:{self.port}|trusted"

    def answer(self, method: str, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        name = _NAMES[method]
        self.calls[name] += 1
        if self.token and dict(context.invocation_metadata()).get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        fault = self.faults.get(name)
        try:
            yield from fault(requests, self.forward(name), context) if fault else self.forward(name)(requests)
        except grpc.RpcError as e:
            context.abort(e.code(), e.details())

    def forward(self, name: str) -> Forward:
        """Return what forwards requests of this method to the server."""
        path, _, answer = METHODS[name]
        channel = grpc.insecure_channel(f"127.0.0.1:{self.server}")
        return channel.stream_stream(  # type: ignore[no-any-return]
            f"/{path}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages(), answer.rstrip("*")).FromString,
        )


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def service(self, details: Any) -> Any:
        _, request, _ = METHODS[_NAMES[details.method]]
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._proxy.answer(details.method, requests, context),
            request_deserializer=getattr(messages(), request.rstrip("*")).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )


@contextmanager
def proxied(server: int, pair: tuple[bytes, bytes] | None = None) -> Iterator[Proxy]:
    """Run a proxy in front of the server at this port. `pair` is a key and its certificate, with
    which the proxy speaks TLS."""
    proxy = Proxy(server, is_tls=pair is not None)
    found = grpc.server(ThreadPoolExecutor(40), handlers=[_Handler(proxy)])
    if pair is None:
        proxy.port = found.add_insecure_port("127.0.0.1:0")
    else:
        proxy.port = found.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    found.start()
    try:
        yield proxy
    finally:
        found.stop(0).wait()


def add_zstd(proxy: Proxy) -> list[str]:
    """Let the proxy offer and do what BuildGrid does not: contents compressed by zstd. Returns a
    list that gets the kind of each compressed transfer."""
    seen: list[str] = []

    def capabilities(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        for answer in forward(requests):
            answer.cache_capabilities.supported_compressors.append(ZSTD)
            answer.cache_capabilities.supported_batch_update_compressors.append(ZSTD)
            yield answer

    def update(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        for request in requests:
            for each in request.requests:
                if each.compressor == ZSTD:
                    seen.append("update")
                    each.data, each.compressor = zstandard.decompress(each.data, max_output_size=1 << 24), 0
            yield from forward(iter([request]))

    def write(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        whole = list(requests)
        name = whole[0].resource_name.replace("compressed-blobs/zstd", "blobs")
        seen.append("write")
        data = zstandard.ZstdDecompressor().decompressobj().decompress(b"".join(r.data for r in whole))
        starts = range(0, len(data), 1 << 20)
        parts = (
            messages().WriteRequest(
                resource_name=name, write_offset=at, data=data[at : at + (1 << 20)], finish_write=at == starts[-1]
            )
            for at in starts
        )
        yield from forward(parts)

    def read(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        for request in requests:
            assert re.match("compressed-blobs/zstd/", request.resource_name)
            seen.append("read")
            request.resource_name = request.resource_name.replace("compressed-blobs/zstd", "blobs")
            data = b"".join(answer.data for answer in forward(iter([request])))
            yield messages().ReadResponse(data=zstandard.compress(data))

    proxy.faults |= {"get_capabilities": capabilities, "update": update, "write": write, "read": read}
    return seen
