"""The address of a compile service, with attributes behind `|`, like a tier of LAZYCK_REMOTE:

grpc://HOST:PORT[/INSTANCE][|trusted][|token-file=/PATH][|platform=NAME:VALUE]…
    [|toolchain=/PATH][|tool=/PATH]
"""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from lazyck.errors import UsageError

SCHEMES = ("grpc", "grpcs")
_HINT = "write grpc://HOST:PORT/INSTANCE|trusted, or grpcs:// for TLS (`lazyck help compile-service`)"
_ATTRIBUTES = "attributes are trusted, token-file=/PATH, platform=NAME:VALUE, toolchain=/PATH and tool=/PATH"


@dataclass(frozen=True)
class Endpoint:
    """A service: `target` is what gRPC connects to, `label` what messages call it."""

    target: str
    label: str
    instance: str = ""
    is_tls: bool = False
    is_trusted: bool = False
    token_file: str = ""
    platform: tuple[tuple[str, str], ...] = ()
    toolchain: str = ""
    tool: str = ""  # the `lazyck-rt` for its workers; empty: this machine's

    @property
    def is_in_the_open(self) -> bool:
        """Return whether others on the way can read and change what passes."""
        host = self.target.rpartition(":")[0].strip("[]")
        try:
            return not self.is_tls and not ipaddress.ip_address(host).is_loopback
        except ValueError:
            return not self.is_tls and host != "localhost"


def is_endpoint(text: str) -> bool:
    return text.partition("://")[0].strip() in SCHEMES


def parse_endpoint(text: str, what: str) -> Endpoint:
    """Return the service that `text`, the value of `what`, names. Raises `UsageError`."""
    url, *attributes = (part.strip() for part in text.split("|"))
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise UsageError(f"{what}: not a URL", _HINT) from e
    if parts.scheme not in SCHEMES or not host or not port or parts.query or parts.fragment:
        raise UsageError(f"{what}: not the address of a compile service", _HINT)
    if parts.username is not None or not re.fullmatch(r"[!-~]*", url):
        raise UsageError(f"{what}: it holds a user, a password or odd characters", "name a |token-file=/PATH instead")
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    instance = parts.path.strip("/")
    label = f"{parts.scheme}://{target}" + (f"/{instance}" if instance else "")
    found: dict[str, str] = {}
    platform = []
    for word in attributes:
        name, _, value = word.partition("=")
        key, colon, setting = value.partition(":")
        if name == "platform" and key and colon:
            platform.append((key, setting))
        elif (word == "trusted") or (name in ("token-file", "toolchain", "tool") and value.startswith("/")):
            found[name] = value
        else:
            raise UsageError(f"{what}: attribute {name!r}", _ATTRIBUTES)
    return Endpoint(
        target, label, instance, parts.scheme == "grpcs", "trusted" in found, found.get("token-file", ""),
        tuple(sorted(platform)), found.get("toolchain", ""), found.get("tool", ""),
    )  # fmt: skip


def require_trust(endpoint: Endpoint, what: str) -> None:
    """Raise `UsageError` unless the user believes what comes from the service.

    A service signs nothing, so the rule is that of tiers of LAZYCK_REMOTE: an entry without a
    signature is believed only if the place that it comes from is called trusted.
    """
    if not endpoint.is_trusted:
        raise UsageError(
            f"{what}: {endpoint.label} is not called trusted, and what it compiles runs in your processes, unsigned",
            f"if only you and those whom you trust can make it compile, write '{endpoint.label}|trusted'",
        )
