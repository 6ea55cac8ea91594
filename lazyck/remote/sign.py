"""Ed25519 keys: who signs entries, and whose signatures are believed. All cryptography is from
`cryptography`."""

import base64
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.files import open_regular
from lazyck.remote.entry_record import EntryRecord, Signature, is_base64
from lazyck.remote.extras import need

_PUBLIC = re.compile(r"[A-Za-z0-9+/]{43}=", re.ASCII)
_LARGEST_FILE = 64 << 10


@dataclass(frozen=True)
class Signer:
    public: str
    _key: Any

    @classmethod
    def of(cls, key: Any) -> "Signer":
        return cls(base64.b64encode(key.public_key().public_bytes_raw()).decode(), key)

    def sign(self, statement: bytes) -> Signature:
        return Signature(self.public, base64.b64encode(self._key.sign(statement)).decode())


@dataclass(frozen=True)
class KeyRing:
    """The public keys, in base64, whose signatures are believed, and our own signer, if any."""

    trusted: frozenset[str] = frozenset()
    signer: Signer | None = None

    def believe(self, record: EntryRecord) -> bool:
        """Return whether a trusted key signed the record."""
        return any(s.key in self.trusted and is_signed(s, record.statement) for s in record.signatures)


def is_signed(signature: Signature, statement: bytes) -> bool:
    ed25519 = _ed25519()
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(signature.key))
        key.verify(base64.b64decode(signature.signature), statement)
    except (ValueError, need("cryptography.exceptions", "remote", "a signature").InvalidSignature):
        return False
    return True


def read_private(path: Path, what: str) -> bytes:
    """Return the contents of a file. Raises `UsageError` if others can read it, or we cannot."""
    return _read(path, what, 0o027, "others can read it, or its group can write it", f"chmod 600 {path}")


def read_trusted(text: str) -> frozenset[str]:
    """Return the public keys of LAZYCK_TRUST: each in base64, or a file with one on each line.
    Raises `UsageError`."""
    found: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        if _PUBLIC.fullmatch(word):
            found |= _public_keys([word], abi.ENV_TRUST)
            continue
        path = Path(word)
        if not path.is_absolute():
            raise UsageError(
                f"{abi.ENV_TRUST}: {word!r} is neither a public key nor an absolute path",
                "give what `lazyck cache keygen` printed, or a file of such lines",
            )
        data = _read(path, abi.ENV_TRUST, 0o022, "others can write it", f"chmod go-w {path}")
        lines = (line.partition("#")[0].strip() for line in data.decode("utf-8", "replace").splitlines())
        found |= _public_keys(filter(None, lines), str(path))
    return frozenset(found)


def read_signer(path: Path) -> Signer:
    """Return the signer of the private key in a PEM file. Raises `UsageError`."""
    if not path.is_absolute():
        raise UsageError(f"{abi.ENV_SIGN_KEY}={str(path)!r}: a relative path is refused", "give an absolute one")
    data = read_private(path, abi.ENV_SIGN_KEY)
    serialization = need("cryptography.hazmat.primitives.serialization", "remote", "signing")
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except Exception as e:  # it raises a dozen kinds, none of which says more
        raise UsageError(f"{path}: not a private key without a password", "make one: lazyck cache keygen FILE") from e
    if not isinstance(key, _ed25519().Ed25519PrivateKey):
        raise UsageError(f"{path}: not an Ed25519 key", "make one: lazyck cache keygen FILE")
    return Signer.of(key)


def make_key(path: Path) -> Signer:
    """Make a new key in a new, private file. Raises `UsageError` if the file exists."""
    key = _ed25519().Ed25519PrivateKey.generate()
    serialization = need("cryptography.hazmat.primitives.serialization", "remote", "a key")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(pem)
    except FileExistsError as e:
        raise UsageError(f"{path} is there already", "give another name; --public prints the key of this one") from e
    return Signer.of(key)


def _read(path: Path, what: str, forbidden: int, why: str, remedy: str) -> bytes:
    try:
        with open_regular(path) as f:
            info = os.fstat(f.fileno())
            data = f.read(_LARGEST_FILE + 1)
    except OSError as e:
        raise UsageError(f"{what}: {path}: {e.strerror}", "give a file that you can read") from e
    if len(data) > _LARGEST_FILE:
        raise UsageError(f"{what}: {path}: not a small regular file")
    if info.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{what}: refusing {path}: it belongs to user {info.st_uid}", "give a file of your own")
    if info.st_mode & forbidden:
        raise UsageError(f"{what}: refusing {path}: {why}", remedy)
    return data


def _public_keys(words: Iterable[str], where: str) -> set[str]:
    found = set(words)
    for word in found:
        if not is_base64(word, 32):
            raise UsageError(f"{where}: {word[:60]!r} is not a public key", "give what `lazyck cache keygen` printed")
    return found


def _ed25519() -> Any:
    return need("cryptography.hazmat.primitives.asymmetric.ed25519", "remote", "a signature")
