"""Says who compiled an entry, when, with which compiler and from which bundle: an in-toto statement
with SLSA's provenance, signed as a DSSE envelope.

The runtime ends the log of a compile with a line of what it knows:
    [made {"sha256": <of the entry's file>, "started": <seconds since 1970>, "finished": …,
           "host": …, "bundle": <SHA-256 of its list of files>, "digest": <of all that the compiler
           reads>, "toolchain": <the compiler's identity>}]
An envelope lies in a remote under a name that is made of the entry's name and the signer's public
key. It is a JSON object, UTF-8, at most 64 KiB:
    {"payloadType": "application/vnd.in-toto+json", "payload": <base64 of the statement>,
     "signatures": [{"keyid": <the public key, base64>, "sig": <base64>}]}
"""

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import IO, Any
from urllib.parse import quote

from lazyck import __version__, abi
from lazyck.errors import FormatError
from lazyck.remote.entry_name import DIGEST, EntryName
from lazyck.remote.entry_record import LARGEST_RECORD, Signature, is_base64, parse_json
from lazyck.remote.sign import Signer, is_signed

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:lazyck:compile:1"
LARGEST_PROVENANCE = LARGEST_RECORD
_MADE = re.compile(rb"^\[made (\{.*\})\]\n\Z", re.MULTILINE)
_LONGEST_LINE = 4096
_LONGEST_TEXT = 1000


@dataclass(frozen=True)
class CompileDetails:
    """The facts about a compile in its entry's log. Times are in seconds since 1970. `bundle` is an
    empty string if the bundle has no list of files."""

    sha256: str
    started: float
    finished: float
    host: str
    bundle: str
    digest: str
    toolchain: str


@dataclass(frozen=True)
class Provenance:
    """A statement whose signature was verified, and the public key that signed it."""

    signer: str
    statement: dict[str, Any]

    @property
    def sha256(self) -> str:
        return str(self.statement["subject"][0]["digest"]["sha256"])

    @property
    def host(self) -> str:
        return str(_at(self.statement, "predicate", "runDetails", "builder", "id"))

    @property
    def finished(self) -> str:
        return str(_at(self.statement, "predicate", "runDetails", "metadata", "finishedOn"))

    @property
    def dependencies(self) -> list[str]:
        rows = _at(self.statement, "predicate", "buildDefinition", "resolvedDependencies")
        return [str(row.get("uri", "")) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def read_compile_details(log: IO[bytes]) -> CompileDetails | None:
    """Return what an open log says of the compile, or None if there was none. Raises `OSError`."""
    log.seek(max(0, log.seek(0, 2) - _LONGEST_LINE))
    found = _MADE.search(log.read(_LONGEST_LINE))
    try:
        said = parse_json(found[1]) if found else None
    except FormatError:
        return None
    if not isinstance(said, dict):
        return None
    times = [said.get(abi.MADE_STARTED), said.get(abi.MADE_FINISHED)]
    if not all(isinstance(t, (int, float)) and 0 <= t < 1e11 for t in times):
        return None
    names = (abi.MADE_HOST, abi.MADE_BUNDLE, abi.MADE_DIGEST, abi.MADE_TOOLCHAIN)
    texts = [str(said.get(name, ""))[:_LONGEST_TEXT] for name in names]
    started, finished = float(said[abi.MADE_STARTED]), float(said[abi.MADE_FINISHED])
    return CompileDetails(str(said.get(abi.MADE_SHA256, "")), started, finished, *texts)


def statement_of(entry: EntryName, details: CompileDetails) -> dict[str, Any]:
    place = entry.entry_path
    bundle: dict[str, Any] = {"name": "bundle", "uri": f"urn:lazyck:bundle:{quote(place.library, safe='')}"}
    if DIGEST.fullmatch(details.bundle):
        bundle["digest"] = {"sha256": details.bundle}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": entry.name, "digest": {"sha256": details.sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "library": place.library, "blob": place.blob, "archs": place.archs.split("+"),
                    "key": entry.key_id, "digest": details.digest,
                },
                "resolvedDependencies": [
                    bundle,
                    {"name": "compiler", "uri": f"urn:lazyck:compiler:{quote(details.toolchain, safe='')}"},
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"urn:lazyck:host:{quote(details.host, safe='')}", "version": {"lazyck": __version__},
                },
                "metadata": {"startedOn": _time(details.started), "finishedOn": _time(details.finished)},
            },
        },
    }  # fmt: skip


def encode(statement: dict[str, Any], signer: Signer) -> bytes:
    payload = json.dumps(statement).encode()
    signature = signer.sign(_signed(PAYLOAD_TYPE, payload))
    return json.dumps({
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": signature.key, "sig": signature.signature}],
    }).encode()  # fmt: skip


def decode(data: bytes, entry: EntryName, public: str) -> Provenance:
    """Return the provenance in an envelope that the owner of the key `public` signed, and that is
    about this entry. Raises `FormatError`."""
    envelope = _object(data)
    if envelope.get("payloadType") != PAYLOAD_TYPE or not isinstance(envelope.get("payload"), str):
        raise FormatError("it is not an in-toto statement")
    try:
        payload = base64.b64decode(envelope["payload"], validate=True)
    except ValueError as e:
        raise FormatError("its payload is not base64") from e
    rows = envelope.get("signatures")
    texts = [r.get("sig") for r in rows if isinstance(r, dict)] if isinstance(rows, list) else []
    signatures = [Signature(public, str(text)) for text in texts[:1] if is_base64(text, 64)]
    if not any(is_signed(s, _signed(PAYLOAD_TYPE, payload)) for s in signatures):
        raise FormatError(f"{public} did not sign it")
    statement = _object(payload)
    if (statement.get("_type"), statement.get("predicateType")) != (STATEMENT_TYPE, PREDICATE_TYPE):
        raise FormatError("it is not SLSA's provenance")
    subjects = statement.get("subject")
    if not isinstance(subjects, list) or len(subjects) != 1 or _at(subjects[0], "name") != entry.name:
        raise FormatError("it is about another entry")
    if not DIGEST.fullmatch(str(_at(subjects[0], "digest", "sha256"))):
        raise FormatError("it does not have the entry's SHA-256")
    if _at(statement, "predicate", "buildDefinition", "externalParameters", "key") != entry.key_id:
        raise FormatError("it is about an entry of another key")
    return Provenance(public, statement)


def _signed(kind: str, payload: bytes) -> bytes:
    return f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


def _object(data: bytes) -> dict[str, Any]:
    found = parse_json(data)
    if not isinstance(found, dict):
        raise FormatError("it is not a JSON object")
    return found


def _at(value: object, *names: str) -> object:
    """Return the member of a member of ..., or an empty string if there is none."""
    for name in names:
        value = value.get(name, "") if isinstance(value, dict) else ""
    return value


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
