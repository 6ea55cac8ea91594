"""Define what the client of a farm and its workers tell each other: frozen values, encoded by
wire.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from _lazyck import abi
from _lazyck.remote.tiers import parse_tiers

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
    secret = [t.label for t in parse_tiers(env.get(abi.ENV_REMOTE, "")) if t.has_secret]
    if not secret:
        return settings, ""
    del settings[abi.ENV_REMOTE]
    return settings, (
        f"{abi.ENV_REMOTE} has a password or token in its URL ({', '.join(secret)}), and stays on this machine: set"
        f" {abi.ENV_REMOTE} in each worker's own environment, or name a file that workers have, by |token-file=/PATH"
        " (`lazyck help scale`)"
    )


@dataclass(frozen=True)
class Visit:
    """The question to a worker before it gets work: can it compile by the recipes of this (encoded)
    manifest?"""

    run: str
    manifest: bytes
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """A worker's answer: its host, its runtime's digest, and for each recipe its compiler's
    identity or the problem."""

    host: str
    runtime: str
    identities: Mapping[int, str]
    problems: Mapping[int, str]
    problem: str = ""


@dataclass(frozen=True)
class Order:
    """One entry to make: the run that wants it, the bundle, the blob, the archs, and the key.

    `preamble` is the group of blobs with which it can share a precompiled preamble.
    """

    run: str
    bundle: str
    library: str
    blob: str
    archs: tuple[str, ...]
    key: str
    settings: Mapping[str, str]
    preamble: str = ""


@dataclass(frozen=True)
class Made:
    """The result of an order. `status` and `output` are those of `lazyck-rt`. `problem` is what
    kept the order from being run, or its result from being sent; another worker may succeed. `cost`
    is the seconds and KiB of the compile."""

    host: str
    status: int = 0
    output: str = ""
    log: str = ""
    cost: tuple[float, int] | None = None
    problem: str = ""
    is_stopped: bool = False
    seconds: float = 0.0
