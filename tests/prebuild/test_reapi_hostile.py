"""Tests what a compile service that lies, stalls or is full can do: cost time, and no more."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck
from support.buildgrid_server import BuildGrid
from support.bundles import Bundle, build, entries
from support.farm_cluster import farm_bundle

pytest.importorskip("grpc", reason="needs lazyck[reapi]")

import grpc
import zstandard
from support.reapi_proxy import Forward, Proxy, add_zstd, proxied

from lazyck.prebuild.reapi.messages import messages

pytestmark = pytest.mark.xdist_group("reapi")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    texts = {n: f'extern "C" int {n}() {{ return 1; }}  // of {tmp_path.name}\n' for n in ("one", "two")}
    return farm_bundle(tmp_path / "b", texts)


@pytest.fixture
def proxy(buildgrid: BuildGrid) -> Iterator[Proxy]:
    with proxied(buildgrid.port) as found:
        yield found


def build_by(lazyck: Lazyck, proxy: Proxy, bundle: Bundle, *words: str, **env: str) -> dict[str, Any]:
    return build(lazyck, bundle, *words, "--executor", proxy.url, env=env)


def is_entry(request: Any) -> bool:
    """Return whether a request reads an entry: tests' logs and costs are smaller."""
    return int(request.resource_name.rpartition("/")[2]) > 4096


def test_contents_that_were_changed_are_fetched_again_and_never_used(
    lazyck: Lazyck, proxy: Proxy, bundle: Bundle, tmp_path: Path
) -> None:
    lies = iter(["changed", "cut", "long"])

    def read(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        for request in requests:
            lie = next(lies, "") if is_entry(request) else ""
            answers = list(forward(iter([request])))
            if lie == "changed":
                answers[-1].data = answers[-1].data[:-1] + b"?"
            elif lie == "cut":
                answers[-1].data = answers[-1].data[:-1]
            elif lie == "long":
                answers = (messages().ReadResponse(data=bytes(1 << 20)) for _ in range(1 << 20))  # type: ignore[assignment]
            yield from answers

    proxy.faults["read"] = read
    done = build_by(lazyck, proxy, bundle, "one")
    (failed,) = done["failed"]
    assert failed["error"].startswith("gave up after 3 tries: ")
    assert "do not match their digest" in failed["error"]
    assert done["stderr"].count("retry: one") == 2
    assert not entries(tmp_path / "lazyck-cache")
    assert not list((tmp_path / "lazyck-cache").rglob(".one*"))
    assert build_by(lazyck, proxy, bundle, "one")["compiled"] == 1


def test_an_entry_for_another_key_is_refused_and_asked_for_anew(
    lazyck: Lazyck, proxy: Proxy, bundle: Bundle, tmp_path: Path
) -> None:
    assert build_by(lazyck, proxy, bundle, "two")["compiled"] == 1
    results: list[Any] = []

    def remember(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        for answer in forward(requests):
            results.append(answer)
            yield answer

    def lie(_requests: Iterator[Any], _forward: Forward, _context: Any) -> Iterator[Any]:
        yield results[0]

    proxy.faults["get_result"] = remember
    assert build_by(lazyck, proxy, bundle, "two", LAZYCK_CACHE_DIR=str(tmp_path / "other"))["compiled"] == 1
    proxy.faults["get_result"] = lie
    done = build_by(lazyck, proxy, bundle, "one")
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]
    assert "the entry that it made is for another key" in done["stderr"]
    assert sorted(bundle.compiled()) == ["one", "two"]


def test_a_full_storage_ends_the_build_and_says_so(lazyck: Lazyck, proxy: Proxy, bundle: Bundle) -> None:
    def full(_requests: Iterator[Any], _forward: Forward, context: Any) -> Iterator[Any]:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no space left")
        yield

    proxy.faults |= {"update": full, "write": full}
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", proxy.url)
    done = lazyck(*words)
    assert done.returncode == 1
    assert f"grpc://127.0.0.1:{proxy.port}: RESOURCE_EXHAUSTED: no space left" in done.stderr
    assert "is its storage full" in done.stderr


def test_a_service_that_does_not_answer_is_given_up_in_time(lazyck: Lazyck, proxy: Proxy, bundle: Bundle) -> None:
    is_over = threading.Event()

    def stall(requests: Iterator[Any], forward: Forward, _context: Any) -> Iterator[Any]:
        is_over.wait(60)
        yield from forward(requests)

    proxy.faults["get_capabilities"] = stall
    words = ("prebuild", "build", "--manifest", bundle.file, "--all", "--executor", proxy.url)
    done = lazyck(*words, env={"LAZYCK_REMOTE_TIMEOUT": "0.5"})
    is_over.set()
    assert done.returncode == 1
    assert "DEADLINE_EXCEEDED" in done.stderr


def test_a_connection_that_breaks_is_taken_up_again(lazyck: Lazyck, proxy: Proxy, bundle: Bundle) -> None:
    def broken(requests: Iterator[Any], forward: Forward, context: Any) -> Iterator[Any]:
        for answer in forward(requests):
            yield answer
            context.abort(grpc.StatusCode.UNAVAILABLE, "a proxy was restarted")

    bundle.slow.write_text("1")
    proxy.faults["execute"] = broken
    done = build_by(lazyck, proxy, bundle, "one")
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]
    assert (proxy.calls["execute"], proxy.calls["wait"]) == (1, 1)
    assert "retry" not in done["stderr"]
    assert bundle.compiled() == ["one"]


def test_inputs_that_the_storage_has_lost_are_uploaded_again(lazyck: Lazyck, proxy: Proxy, bundle: Bundle) -> None:
    def lost(requests: Iterator[Any], forward: Forward, context: Any) -> Iterator[Any]:
        del proxy.faults["execute"]
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "MISSING")
        yield from forward(requests)

    proxy.faults["execute"] = lost
    before = proxy.calls["find_missing"]
    done = build_by(lazyck, proxy, bundle, "one")
    assert (done["status"], done["compiled"]) == (0, 1), done["stderr"]
    # The library's inputs and the action's, each twice.
    assert proxy.calls["find_missing"] - before == 4


def test_contents_travel_compressed_where_the_service_says_so(
    lazyck: Lazyck, proxy: Proxy, bundle: Bundle, tmp_path: Path
) -> None:
    seen = add_zstd(proxy)
    done = build_by(lazyck, proxy, bundle, "--all")
    assert (done["status"], done["compiled"]) == (0, 2), done["stderr"]
    assert {"read", "update"} <= set(seen)
    assert len(entries(tmp_path / "lazyck-cache")) == 2


def test_what_unpacks_to_more_than_was_asked_for_is_refused(lazyck: Lazyck, proxy: Proxy, bundle: Bundle) -> None:
    add_zstd(proxy)
    packed = zstandard.compress(bytes(1 << 28))

    def bomb(requests: Iterator[Any], _forward: Forward, _context: Any) -> Iterator[Any]:
        for _ in requests:
            yield messages().ReadResponse(data=packed)

    proxy.faults["read"] = bomb
    done = build_by(lazyck, proxy, bundle, "one")
    assert "do not match their digest" in done["failed"][0]["error"]


def test_the_table_of_messages_has_the_numbers_of_the_api(buildgrid: BuildGrid) -> None:
    script = """
import json
from buildgrid._protos.build.bazel.remote.execution.v2 import remote_execution_pb2 as a
from buildgrid._protos.google.bytestream import bytestream_pb2 as b
from buildgrid._protos.google.longrunning import operations_pb2 as c
from buildgrid._protos.google.rpc import status_pb2 as d
found = {}
def add(message, outer=""):
    found[outer + message.name] = {f.name: [f.number, f.type if f.type != 14 else 5] for f in message.fields}
    for nested in message.nested_types:
        add(nested, message.name + ".")
for module in (a, b, c, d):
    for message in module.DESCRIPTOR.message_types_by_name.values():
        add(message)
print(json.dumps(found))
"""
    argv = [str(buildgrid.home / "bin" / "python"), "-W", "ignore", "-c", script]
    theirs = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    names = {
        "Update": "BatchUpdateBlobsRequest.Request",
        "Updated": "BatchUpdateBlobsResponse.Response",
        "Metadata": "ExecutedActionMetadata",
        "EnvironmentVariable": "Command.EnvironmentVariable",
        "Property": "Platform.Property",
    }
    checked = 0
    for name, message in vars(messages()).items():
        if name in ("Any", "Duration", "Empty"):  # of protobuf itself
            continue
        for f in message.DESCRIPTOR.fields:
            assert theirs[names.get(name, name)][f.name] == [f.number, f.type], (name, f.name)
            checked += 1
    assert checked > 80
