"""Do what a worker of a farm does: answer for its toolchain, and make one entry at a time in each
of its threads.

Functions of this module run in the worker's process, where they are found by name. They return
values and never raise on purpose, so that an error of the worker is not taken for a fault of dask.
messages.py defines the messages.
"""

import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from lazyck import abi, proc
from lazyck.directory import RefusedError, opened_in
from lazyck.errors import LazyckError, of_unexpected
from lazyck.formats.manifest import decode as decode_manifest
from lazyck.history.costs import read_last
from lazyck.prebuild.blob_entries import BlobEntry, local_compiler, rt_words, status
from lazyck.prebuild.farm.messages import (
    LONGEST_TEXT,
    OF_KEY,
    OF_TRAVEL,
    CompileOrder,
    CompileResult,
    WorkerQuery,
    WorkerReport,
    decode_message,
    encode_message,
)
from lazyck.prebuild.farm.parcel import unpacked
from lazyck.remote import EntryName, Listener, Remote
from lazyck.runtime.builder import source_digest
from lazyck.runtime.tool import tool
from lazyck.settings.environment import environment

_commands: dict[str, proc.Commands] = {}  # by run
_lock = threading.Lock()
_begun: set[tuple[str, str]] = set()  # runs and their groups of jobs whose preamble was begun here


def worker_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return this worker's own environment, with the settings that the client decides."""
    own = environment()
    own |= {k: settings.get(k, "") for k in OF_KEY}
    return own | {k: v for k, v in settings.items() if k in OF_TRAVEL and not own.get(k)}


def answer_query(data: bytes) -> bytes:
    """Answer the encoded message `WorkerQuery`: whether this process can be a worker of a run."""
    host = socket.gethostname()
    try:
        report = _answer_query(decode_message(WorkerQuery, data), host)
    except Exception as e:
        report = WorkerReport(host, "", {}, {}, _problem_of(e))
    return encode_message(report)


def answer_order(data: bytes) -> bytes:
    """Answer the encoded message `CompileOrder`: compile one entry, unless the remote cache has it
    already, and push it there."""
    host, begin = socket.gethostname(), time.monotonic()
    try:
        result = _make(decode_message(CompileOrder, data), host, begin)
    except Exception as e:  # a full disk or a lost remote, for example: reported, and tried on another worker
        result = CompileResult(host, problem=_problem_of(e), seconds=time.monotonic() - begin)
    return encode_message(result)


def _answer_query(asked: WorkerQuery, host: str) -> WorkerReport:
    env = worker_environment(asked.settings)
    tool(env)
    remote = Remote.from_environment(env)
    if remote is None or not any(map(remote.may_push, remote.clients)):
        raise LazyckError(
            f"its entries cannot be shared: {abi.ENV_REMOTE} there names no tier that may be written and is trusted"
            f" or gets signed entries ({abi.ENV_SIGN_KEY})"
        )
    identities: dict[int, str] = {}
    problems: dict[int, str] = {}
    for i, recipe in enumerate(decode_manifest(asked.manifest, "the library").recipes):
        try:
            _, identities[i] = local_compiler(recipe, env)
        except LazyckError as e:
            problems[i] = _problem_of(e)
    return WorkerReport(host, source_digest(), identities, problems)


def _problem_of(e: Exception) -> str:
    return _short((e if isinstance(e, LazyckError) else of_unexpected(e)).message)


def _make(order: CompileOrder, host: str, begin: float) -> CompileResult:
    commands = _commands_of(order.run)
    env = worker_environment(order.settings)
    skipped: list[str] = []
    remote = Remote.from_environment(env, listener=Listener(skipped=skipped.append))
    if remote is None:
        return CompileResult(host, problem=f"{abi.ENV_REMOTE} is not set there")
    rt = tool(env)
    manifest_file = unpacked(order.bundle, order.library, lambda to: remote.get_contents(order.bundle, to), env)
    # A worker is here to compile. It pushes its entries itself, once they are whole, so the runtime
    # gets no remote.
    env = {k: v for k, v in env.items() if k not in (abi.ENV_JIT, abi.ENV_REMOTE)}
    env.setdefault(abi.ENV_CACHE_MAXSIZE, "0")
    (entry,) = status(rt, manifest_file, [order.blob], order.archs, env)
    if entry.key != order.key:
        return CompileResult(host, problem=f"its key is {entry.key} there, but {order.key} here")
    if _is_first_of_group(order):  # if it fails, the compiles do without the preamble
        commands.run(rt_words(rt, abi.RT_PREAMBLE, manifest_file, order.archs, "--", order.blob), env=env)
    words = rt_words(rt, abi.RT_COMPILE, manifest_file, order.archs, abi.OPTION_QUIET, "--", order.blob)
    done = commands.run(words, env=env)
    if done is None:
        return CompileResult(host, is_stopped=True)
    log = _tail(entry)
    cost = read_last(entry.root, *entry.cost_key) if done.status == 0 else None
    if done.status == 0 and not entry.path.exists():
        return CompileResult(host, problem="its compiler or its system's headers are not those of the library's build")
    if done.status == 0 and not _push(remote, entry, cost):
        return CompileResult(
            host, problem=f"no tier of {abi.ENV_REMOTE} took the entry{''.join(f'; {s}' for s in skipped[:1])}"
        )
    return CompileResult(host, done.status, _short(done.stdout), log, cost, seconds=time.monotonic() - begin)


def _short(text: str) -> str:
    return text[-LONGEST_TEXT:]


def _push(remote: Remote, entry: BlobEntry, cost: tuple[float, int] | None) -> tuple[str, ...]:
    with opened_in(entry.root, entry.path) as own:
        return remote.push(EntryName(entry.key, entry.place), Path(f"/proc/self/fd/{own.fileno()}"), *(cost or ()))


def _tail(entry: BlobEntry) -> str:
    try:
        with opened_in(entry.root, entry.log) as log:
            log.seek(max(0, log.seek(0, 2) - LONGEST_TEXT))
            return log.read(LONGEST_TEXT).decode(errors="replace")
    except (RefusedError, OSError):
        return ""


def _is_first_of_group(order: CompileOrder) -> bool:
    """Return whether the order's group shares a preamble that was not begun here. What other
    threads compile meanwhile does not use it."""
    with _lock:
        if not order.preamble or (order.run, order.preamble) in _begun:
            return False
        _begun.add((order.run, order.preamble))
        return True


def _commands_of(run: str) -> proc.Commands:
    with _lock:
        return _commands.setdefault(run, proc.Commands())


def stop(run: str) -> None:
    """End what this process does for a run, now and later, and forget which preambles it has begun.
    The cache keeps them."""
    _commands_of(run).stop()
    with _lock:
        _begun.difference_update([key for key in _begun if key[0] == run])
