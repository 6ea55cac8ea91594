"""Write the file beside a shim that tells the shim what it stands for (conf.c has the grammar)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from _lazyck import abi
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

    blobs: tuple[str, ...]  # globs
    log: str
    compiles: str  # list of compiles, for compile_commands.json
    headers: str  # directory of header lists
    links: str  # directory of records of links
    python: str
    bootstrap: str  # Python source that starts the post-build
    path_map: tuple[tuple[str, str], ...]  # path of a shim or shim home, path that it stands for
    env_names: tuple[str, ...]  # variables to which `path_map` applies
    restore: tuple[tuple[str, str, str], ...]  # variable, lazyck's value, the previous value (empty: unset)
    shim_dirs: tuple[str, ...]  # to be removed from PATH
    # Toolchain → (variable, value, reason): a compile is passed on if the variable has the value.
    # An empty value also matches an unset variable.
    pass_when: Mapping[str, tuple[tuple[str, str, str], ...]] = field(default_factory=dict)
    listed: str = ""  # a file that names blobs one by one, each followed by a NUL, in addition to the globs
    with_units: bool = False  # defer also what each toolchain compiles by kernel


def render(shim: ShimConf, shared: SharedConf) -> bytes:
    """Return the bytes of `<tool>.conf`. Raises `UsageError` for a NUL byte in a value."""
    t = shim.toolchain
    entries: dict[str, Any] = {
        **vars(shared),
        **vars(shim),
        "toolchain": t.name,
        "traits": "l" if t.lists_paths else "",
        "blobs": (*shared.blobs, *(t.unit_globs if shared.with_units else ())),
        # Behind each suffix or language is its toolchain, or `!` and the reason to pass it on.
        "suffixes": [(s, t.foreign_suffixes.get(s, "")) for s in t.source_suffixes if t.understands(shim.compiler, s)],
        "languages": [(x, name) for x, name in t.languages.items() if t.understands(shim.compiler, x)],
        "flag_env": _flag_env(t),
        "option_env": t.option_env,
        "pass_when": shared.pass_when.get(t.name, ()),
        "launchers": sorted(lookup.LAUNCHERS),
        "rules": [(r.mode.value + r.role.value, r.text, r.reason) for r in t.table.rules],
    }
    texts = [_entry(key, [entries[key]]) for key in abi.SHIM_TEXTS]
    return b"".join([*texts, *(_entry(key, entries[key]) for key in abi.SHIM_LISTS)])


def _flag_env(toolchain: Toolchain) -> tuple[str, ...]:
    followed = [n for n in (*toolchain.languages.values(), *toolchain.foreign_suffixes.values()) if n and n[0] != "!"]
    names = (*toolchain.flag_env, *(v for n in followed for v in by_name(n).flag_env))
    return tuple(dict.fromkeys(names))


def _entry(key: str, rows: Iterable[str | tuple[str, ...]]) -> bytes:
    values = [word for row in rows for word in ([row] if isinstance(row, str) else row)]
    for value in values:
        if "\0" in value:
            raise UsageError(f"a NUL byte in {value!r}", "remove it")
    return b"".join(os.fsencode(w) + b"\0" for w in (key, str(len(values)), *values))
