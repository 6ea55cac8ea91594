"""The messages between a farm's client and its workers: frozen values, encoded as JSON of one
version, which is checked field by field and cannot run code where it is read.

    {"lazyck-farm": 1, "made": {"host": "node7", "status": 0, …}}

A field that is missing, unknown, repeated, too long or of another type makes the whole message a
`FormatError`.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.remote.tiers import parse_tiers

# Settings that the client decides for its workers. The first are part of the key, and the worker
# always takes them. The others say how entries travel, and a worker's own settings come first: a
# cache may have another name in its network.
OF_KEY = (abi.ENV_EXTRA_CACHE_KEY, abi.ENV_LAUNCHER)
OF_TRAVEL = (abi.ENV_REMOTE, abi.ENV_TRUST)


def settings_for_workers(env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the settings that travel in each order, and what to tell the user about those that do
    not (an empty string if all do).

    An order passes through the scheduler and every worker's memory, so a password in LAZYCK_REMOTE
    stays here. Raises `UsageError`.
    """
    settings = {k: env[k] for k in (*OF_KEY, *OF_TRAVEL) if env.get(k)}
    tiers = [(tier.label, urlsplit(tier.url)) for tier in parse_tiers(env.get(abi.ENV_REMOTE, ""))]
    # A user has a password, and a query may be a token.
    secret = [label for label, url in tiers if "@" in url.netloc or url.query or url.fragment]
    if not secret:
        return settings, ""
    del settings[abi.ENV_REMOTE]
    return settings, (
        f"{abi.ENV_REMOTE} has a password or token in its URL ({', '.join(secret)}), and stays on this machine: set"
        f" {abi.ENV_REMOTE} in each worker's own environment, or name a file that workers have, by |token-file=/PATH"
        " (`lazyck help scale`)"
    )


VERSION = 1
_MARK = "lazyck-farm"
LARGEST_ANSWER = 8 << 20  # bytes
LONGEST_TEXT = 256 << 10  # characters of a log, or of what a compiler printed
_LONGEST_NAME = 4096
_MOST_ITEMS = 100_000
_LONGEST_TIME = 1e9  # seconds
_MOST_MEMORY = 1 << 50  # KiB

Reader = Callable[[Any], Any]


def _value(is_right: Callable[[Any], bool], problem: str) -> Reader:
    def read(value: Any) -> Any:
        if not is_right(value):
            raise FormatError(problem)
        return value

    return read


def _text(longest: int = _LONGEST_NAME, pattern: str = "") -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > longest:
            raise FormatError(f"not a string of at most {longest} characters")
        try:
            value.encode(errors="surrogateescape")
        except UnicodeEncodeError as e:
            raise FormatError("not Unicode") from e
        if pattern and not re.fullmatch(pattern, value):
            raise FormatError("not in the form that is expected")
        return value

    return read


def _whole(least: int, most: int) -> Reader:
    return _value(lambda v: type(v) is int and least <= v <= most, f"not a whole number from {least} to {most}")


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _LONGEST_TIME:
        raise FormatError("not a time")
    return float(value)


def _data(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as e:
        raise FormatError("not base64") from e


def _list(item: Reader) -> Reader:
    rows = _value(lambda v: isinstance(v, list) and len(v) <= _MOST_ITEMS, "not a list")
    return lambda value: tuple(map(item, rows(value)))


def _mapping(key: Reader, item: Reader) -> Reader:
    rows = _value(lambda v: isinstance(v, dict) and len(v) <= _MOST_ITEMS, "not a mapping")
    return lambda value: {key(k): item(v) for k, v in rows(value).items()}


def _number_as_key(value: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", value):
        raise FormatError("a key is not a number")
    return int(value)


def _cost(value: Any) -> tuple[float, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise FormatError("not seconds and KiB")
    return _seconds(value[0]), _whole(0, _MOST_MEMORY)(value[1])


_Name = Annotated[str, _text()]
_Prose = Annotated[str, _text(LONGEST_TEXT)]
_Run = Annotated[str, _text(pattern=r"[0-9a-f]{16}")]
_Settings = Annotated[Mapping[str, str], _mapping(_text(pattern=r"LAZYCK_[A-Z_]+"), _text(LONGEST_TEXT))]


@dataclass(frozen=True)
class WorkerQuery:
    """The question to a worker before it gets work: can it compile by this manifest, encoded?"""

    run: _Run
    manifest: Annotated[bytes, _data]
    settings: _Settings


@dataclass(frozen=True)
class WorkerReport:
    """A worker's answer: its host, its runtime's digest, and for each recipe its compiler's
    identity or the problem."""

    host: _Name
    runtime: _Name
    identities: Annotated[Mapping[int, str], _mapping(_number_as_key, _text())]
    problems: Annotated[Mapping[int, str], _mapping(_number_as_key, _text(LONGEST_TEXT))]
    problem: _Prose = ""


@dataclass(frozen=True)
class CompileOrder:
    """One entry to make: the run that wants it, the bundle, the blob, the archs, and the key.

    `preamble` is the group of blobs with which it can share a precompiled preamble.
    """

    run: _Run
    bundle: Annotated[str, _text(pattern=r"[0-9a-f]{64}")]
    library: Annotated[str, _text(pattern=r"[^/\0]+")]
    blob: _Name
    archs: Annotated[tuple[str, ...], _list(_text())]
    key: Annotated[str, _text(pattern=r"[0-9a-f]{32}")]
    settings: _Settings
    preamble: _Name = ""


@dataclass(frozen=True)
class CompileResult:
    """The result of an order. `status` and `output` are those of `lazyck-rt`. `problem` is what
    kept the order from being run, or its result from being sent; another worker may succeed. `cost`
    is the seconds and KiB of the compile."""

    host: _Name
    status: Annotated[int, _whole(-255, 255)] = 0
    output: _Prose = ""
    log: _Prose = ""
    cost: Annotated[tuple[float, int] | None, _cost] = None
    problem: _Prose = ""
    is_stopped: Annotated[bool, _value(lambda v: isinstance(v, bool), "neither true nor false")] = False
    seconds: Annotated[float, _seconds] = 0.0


T = TypeVar("T", CompileResult, CompileOrder, WorkerReport, WorkerQuery)
_TAGS = {CompileResult: "made", CompileOrder: "order", WorkerReport: "report", WorkerQuery: "visit"}


def encode_message(message: CompileResult | CompileOrder | WorkerReport | WorkerQuery) -> bytes:
    body = {f.name: _plain(getattr(message, f.name)) for f in fields(message)}
    whole = {_MARK: VERSION, _TAGS[type(message)]: body}
    return json.dumps(whole, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_message(kind: type[T], data: object, most: int | None = None) -> T:
    """Return the message of this kind that `data`, of at most `most` bytes, contains. Raises
    `FormatError`."""
    name = _TAGS[kind]
    if not isinstance(data, bytes):
        raise FormatError(f"{name}: {type(data).__name__} is not what lazyck sends")
    if most is not None and len(data) > most:
        raise FormatError(f"{name}: {len(data)} bytes, but at most {most} are read")
    try:
        whole = json.loads(data.decode("ascii"), object_pairs_hook=_once)
        schema = get_type_hints(kind, include_extras=True)
        return kind(**_body(whole, name, {field: hint.__metadata__[0] for field, hint in schema.items()}))
    except (FormatError, ValueError, RecursionError) as e:
        raise FormatError(f"{name}: {e}", "install the same lazyck[farm] on all sides") from e


def _body(whole: Any, name: str, schema: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(whole, dict) or whole.get(_MARK) != VERSION or type(whole[_MARK]) is not int:
        raise FormatError(f"not of version {VERSION}")
    body = whole.get(name)
    if set(whole) != {_MARK, name} or not isinstance(body, dict):
        raise FormatError("not the expected message")
    if set(body) != set(schema):
        raise FormatError("it has other fields")
    found = {}
    for field, read in schema.items():
        try:
            found[field] = read(body[field])
        except FormatError as e:
            raise FormatError(f"{field}: {e}") from e
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("a name occurs twice")
    return found
