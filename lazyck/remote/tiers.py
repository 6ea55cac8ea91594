"""Parses LAZYCK_REMOTE: tiers, nearest first, each a URL with attributes after `|`.

URL[|read-only][|trusted][|compress=zstd][|token-file=/PATH][|endpoint=URL] [,URL…]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from lazyck import abi
from lazyck.errors import UsageError
from lazyck.remote.backend import DIRECTORY, BackendSpec, spec_of
from lazyck.settings.environment import seconds

_MOST_TIERS = 8
_VALUES = {"token-file": r"/.*", "endpoint": r"https?://[\w.:\[\]-]+/?"}
_SLOWEST = 256 << 10  # bytes a second: what comes slower than this is compiled as fast


@dataclass(frozen=True)
class Tier:
    """One remote. `url` may hold a password and is never shown; messages call the tier `label`."""

    url: str = field(repr=False)
    label: str
    is_read_only: bool = False
    is_trusted: bool = False
    is_compressed: bool = False
    token_file: str = ""
    endpoint: str = ""

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]


@dataclass(frozen=True)
class Times:
    """Time limits in seconds. All follow from `idle`, for which a transfer may make no progress."""

    idle: float = 10.0

    @property
    def connect(self) -> float:
        return min(2.0, self.idle)

    @property
    def down(self) -> float:
        """Return the longest time for which a tier that failed is skipped."""
        return 6 * self.idle

    @property
    def lease(self) -> float:
        """Return the time after which a lease that its holder does not renew is over."""
        return min(1.5 * self.idle, 60.0)

    def whole(self, size: int = 0) -> float:
        """Return the most time that an exchange of so many bytes may take."""
        return self.connect + self.idle + size / _SLOWEST


def read_times(env: Mapping[str, str]) -> Times:
    """Read LAZYCK_REMOTE_TIMEOUT. Raises `UsageError`."""
    return Times(min(seconds(env, abi.ENV_REMOTE_TIMEOUT, Times.idle), 600.0))


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """Parse the tiers. Raises `UsageError`, whose message has no password."""
    words = [word.strip() for word in text.split(",")]
    tiers = tuple(_parse(word, number) for number, word in enumerate(words, 1) if word)
    if len(tiers) > _MOST_TIERS:
        raise UsageError(f"{abi.ENV_REMOTE}: {len(tiers)} tiers", f"name at most {_MOST_TIERS}")
    return tiers


def _parse(word: str, number: int) -> Tier:
    url, *attributes = (part.strip() for part in word.split("|"))
    url = f"file://{url}" if url.startswith("/") else url
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError as e:
        raise _wrong(number, "not a URL") from e
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", parts.scheme) or not url.startswith(f"{parts.scheme}://"):
        raise _wrong(number, "not a URL")
    if any(c.isspace() or not c.isprintable() for c in url):
        raise _wrong(number, "it holds blanks or control characters")
    if parts.scheme != DIRECTORY and not host:
        raise _wrong(number, "it names no host")
    if parts.scheme == DIRECTORY and (host or not parts.path.startswith("/") or ".." in parts.path.split("/")):
        raise _wrong(number, "a directory is an absolute path without `..`")
    backend = spec_of(parts.scheme)
    if parts.password is not None and not backend.takes_password:
        raise _wrong(number, f"{parts.scheme} takes no password here", "give credentials as its own tools take them")
    host = f"[{host}]" if ":" in host else host
    label = urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))
    label = parts.path.rstrip("/") or "/" if parts.scheme == DIRECTORY else label
    return Tier(urlunsplit(parts), label, **_attributes(attributes, backend, number))  # type: ignore[arg-type]


def _attributes(words: list[str], backend: BackendSpec, number: int) -> dict[str, bool | str]:
    known = {"read-only": "is_read_only", "trusted": "is_trusted", "compress=zstd": "is_compressed"}
    found: dict[str, bool | str] = {}
    for word in words:
        name, is_given, value = word.partition("=")
        if word in known:
            found[known[word]] = True
        elif name in backend.attributes and re.fullmatch(_VALUES[name], value, re.ASCII):
            found[name.replace("-", "_")] = value
        else:
            shown = f"{name}=…" if is_given else name
            raise _wrong(
                number, f"attribute {shown!r}",
                "attributes are read-only, trusted, compress=zstd, token-file=/PATH (http, redis), endpoint=URL (s3)",
            )  # fmt: skip
    return found


def _wrong(number: int, why: str, hint: str = "write URL|attribute|…,URL|… (`lazyck help remote`)") -> UsageError:
    return UsageError(f"{abi.ENV_REMOTE}, tier {number}: {why}", hint)
