"""Write the file beside a shim that tells the shim what it stands for (conf.c has the grammar)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from _lazyck.errors import UsageError
from _lazyck.toolchains import Toolchain, by_name, lookup


@dataclass(frozen=True)
class ShimConf:
    """Describe one shim: its name, its toolchain, and the argv prefix of the real command, with
    (`real`) and without (`compiler`) compiler caches.

    `target` is the triple that the compiler makes code for; if it is empty, the compiler's name
    begins with the triple. `launch` is for the launcher, a shim that stands for whatever compiler
    its first word names. It lists pairs: a pattern for the compiler's name, and the configuration
    to use then.
    """

    tool: str
    toolchain: Toolchain
    real: tuple[str, ...]
    compiler: tuple[str, ...]
    target: str
    launch: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SharedConf:
    """Hold what all shims of a set-up have in common."""

    blobs: tuple[str, ...]
    log: str
    compiles: str  # list of compiles, for compile_commands.json
    headers: str  # directory of header lists
    links: str
    python: str
    bootstrap: str
    path_map: tuple[tuple[str, str], ...]
    env_names: tuple[str, ...]
    restore: tuple[tuple[str, str, str], ...]  # variable, lazyck's value, the previous value
    shim_dirs: tuple[str, ...]
    # Toolchain → (variable, value, reason): a compile is passed on if the variable has the value.
    # An empty value also matches an unset variable.
    pass_when: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    listed: str = ""  # a file that names blobs one by one, in addition to the globs
    with_units: bool = False  # defer also what each toolchain compiles by kernel


def render(shim: ShimConf, shared: SharedConf) -> bytes:
    """Return the bytes of `<tool>.conf`. Raises `UsageError` for a NUL byte in a value."""
    t = shim.toolchain
    suffixes = [(s, t.foreign_suffixes.get(s, "")) for s in t.source_suffixes if t.understands(shim.compiler, s)]
    languages = [(x, name) for x, name in t.languages.items() if t.understands(shim.compiler, x)]
    entries: dict[str, Sequence[str]] = {
        "tool": [shim.tool],
        "toolchain": [t.name],
        "traits": ["l" if t.lists_paths else ""],
        "real": shim.real,
        "compiler": shim.compiler,
        "target": [shim.target],
        "blobs": (*shared.blobs, *(t.unit_globs if shared.with_units else ())),
        "listed": [shared.listed],
        "log": [shared.log],
        "compiles": [shared.compiles],
        "headers": [shared.headers],
        "links": [shared.links],
        "python": [shared.python],
        "bootstrap": [shared.bootstrap],
        "suffixes": _flat(suffixes),
        "languages": _flat(languages),
        "flag_env": _flag_env(t),
        "option_env": t.option_env,
        "path_map": _flat(shared.path_map),
        "env_names": shared.env_names,
        "restore": _flat(shared.restore),
        "shim_dirs": shared.shim_dirs,
        "pass_when": _flat(shared.pass_when.get(t.name, ())),
        "launch": _flat(shim.launch),
        "launchers": sorted(lookup.LAUNCHERS),
        "rules": [w for r in t.table.rules for w in (r.mode.value + r.role.value, r.text, r.reason)],
    }
    return b"".join(_entry(key, values) for key, values in entries.items())


def _flag_env(toolchain: Toolchain) -> tuple[str, ...]:
    followed = [n for n in (*toolchain.languages.values(), *toolchain.foreign_suffixes.values()) if n and n[0] != "!"]
    names = (*toolchain.flag_env, *(v for n in followed for v in by_name(n).flag_env))
    return tuple(dict.fromkeys(names))


def _flat(rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [word for row in rows for word in row]


def _entry(key: str, values: Sequence[str]) -> bytes:
    for value in values:
        if "\0" in value:
            raise UsageError(f"a NUL byte in {value!r}", "remove it")
    return b"".join(os.fsencode(w) + b"\0" for w in (key, str(len(values)), *values))
