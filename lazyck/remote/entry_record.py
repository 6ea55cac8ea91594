"""The record of an entry, stored in a remote under the entry's name. It tells the entry's contents.

Grammar: a JSON object, UTF-8, at most 64 KiB:
    {"lazyck": 1, "key": <32 hex>, "name": <path below v1/>, "sha256": <64 hex>, "size": <bytes>,
     "seconds": <its compile took>, "peak_kib": <its compiler's memory>,
     "signatures": [{"key": <base64, 32 bytes>, "signature": <base64, 64 bytes>}, at most 16],
     "zstd": {"sha256": <64 hex>, "size": <bytes>}}
`seconds`, `peak_kib`, `signatures` and `zstd` may be absent. With `zstd`, the contents lie in the
store compressed, under the SHA-256 of the compressed bytes. Other members are ignored. A signature
is Ed25519 over
    "lazyck entry 1\\nkey <key>\\nname <name>\\nsha256 <sha256>\\nsize <size>\\n"
History: version 1 is the first. A record of another version counts as absent.
"""

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

from lazyck.errors import FormatError
from lazyck.remote.entry_name import DIGEST, EntryName

RECORD_VERSION = 1
LARGEST_RECORD = 64 << 10
LARGEST_ENTRY = 4 << 30
MOST_SIGNATURES = 16


@dataclass(frozen=True)
class Signature:
    """A public key, and what its owner signed with the private key, both in base64."""

    key: str
    signature: str


@dataclass(frozen=True)
class StoredObject:
    """The object as it is stored: its SHA-256 and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class EntryRecord:
    """An entry's contents. `seconds` and `peak_kib`, the costs of its compile, are 0 if unknown."""

    entry: EntryName
    sha256: str
    size: int
    seconds: float = 0.0
    peak_kib: int = 0
    signatures: tuple[Signature, ...] = ()
    compressed: StoredObject | None = None

    @property
    def stored(self) -> StoredObject:
        """Return the stored object: the contents themselves, or the compressed ones."""
        return self.compressed or StoredObject(self.sha256, self.size)

    @property
    def statement(self) -> bytes:
        e = self.entry
        return f"lazyck entry 1\nkey {e.key_id}\nname {e.name}\nsha256 {self.sha256}\nsize {self.size}\n".encode()

    def with_signatures(self, more: tuple[Signature, ...]) -> "EntryRecord":
        """Return a copy that these have signed, too. Each key has one signature. If there are too
        many, the newest stay."""
        all_keys = {s.key: s for s in (*self.signatures, *more)}
        return replace(self, signatures=tuple(all_keys.values())[-MOST_SIGNATURES:])


def encode(record: EntryRecord) -> bytes:
    members: dict[str, object] = {
        "lazyck": RECORD_VERSION, "key": record.entry.key_id, "name": record.entry.name,
        "sha256": record.sha256, "size": record.size, "seconds": record.seconds, "peak_kib": record.peak_kib,
        "signatures": [{"key": s.key, "signature": s.signature} for s in record.signatures],
    }  # fmt: skip
    if record.compressed:
        members["zstd"] = {"sha256": record.compressed.sha256, "size": record.compressed.size}
    return json.dumps(members).encode() + b"\n"


def decode(data: bytes) -> EntryRecord | None:
    """Return the record, or None for another version. Raises `FormatError` for anything else."""
    if len(data) > LARGEST_RECORD:
        raise FormatError("it is too long")
    members = parse_json(data)
    if not isinstance(members, dict) or type(members.get("lazyck")) is not int:
        raise FormatError("it is not a record of lazyck")
    if members["lazyck"] != RECORD_VERSION:
        return None
    contents = _stored(members)
    packed = members.get("zstd")
    if packed is not None and not isinstance(packed, dict):
        raise FormatError("its zstd is invalid")
    key, name = members.get("key"), members.get("name")
    if not isinstance(key, str) or not isinstance(name, str):
        raise FormatError("it lacks its key or name")
    seconds, peak = _number(members.get("seconds")), _number(members.get("peak_kib"))
    return EntryRecord(
        EntryName(key, name), contents.sha256, contents.size, seconds, int(peak),
        _signatures(members.get("signatures", [])), None if packed is None else _stored(packed),
    )  # fmt: skip


def _stored(members: dict[str, Any]) -> StoredObject:
    sha256, size = members.get("sha256"), members.get("size")
    if not isinstance(sha256, str) or not DIGEST.fullmatch(sha256):
        raise FormatError("its sha256 is invalid")
    if type(size) is not int or not 0 < size <= LARGEST_ENTRY:
        raise FormatError("its size is invalid")
    return StoredObject(sha256, size)


def _number(value: object) -> float:
    """Return a figure that nothing depends on, or 0 if it makes no sense."""
    if type(value) not in (int, float) or not 0 <= value < 1e12:  # type: ignore[operator]
        return 0.0
    return round(float(value), 3)  # type: ignore[arg-type]


def _signatures(rows: Any) -> tuple[Signature, ...]:
    if not isinstance(rows, list) or len(rows) > MOST_SIGNATURES:
        raise FormatError("its signatures are not a list, or too many")
    found = []
    for row in rows:
        if not isinstance(row, dict) or not is_base64(row.get("key"), 32) or not is_base64(row.get("signature"), 64):
            raise FormatError("one of its signatures is invalid")
        found.append(Signature(row["key"], row["signature"]))
    return tuple(found)


def parse_json(data: bytes) -> Any:
    """Return the value that is written as JSON. Raises `FormatError`."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise FormatError("it is not JSON") from e


def is_base64(text: object, size: int) -> bool:
    """Return whether the text is the canonical base64 of `size` bytes."""
    if not isinstance(text, str) or len(text) > 2 * size + 4:
        return False
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return len(data) == size and base64.b64encode(data).decode() == text
