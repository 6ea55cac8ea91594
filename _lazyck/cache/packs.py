"""The packs that are installed beside a library, as the runtime finds them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _lazyck import proc
from _lazyck.prebuild.entries import rt_words
from _lazyck.visible import visible


@dataclass(frozen=True)
class InstalledPack:
    """A pack of a library: its distribution's name and version, the cache in it, and why its
    entries are not used. `problem` is an empty string if it was made for this build."""

    name: str
    version: str
    root: Path
    problem: str

    def render(self, entry: Path) -> str:
        """Return a line about the pack for people who ask for `entry`."""
        if self.problem:
            return self.problem
        has = "has the entry" if entry.is_relative_to(self.root) else "does not have it"
        return f"{visible(self.name)} {visible(self.version)} {has}"


def installed_packs(rt: Path, library: Path, env: Mapping[str, str]) -> list[InstalledPack]:
    """Return the packs for `library`. `rt` is the executable `lazyck-rt`."""
    out = proc.check("looking for packs", rt_words(rt, "packs", library, ()), env=env).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return [InstalledPack(r["name"], r["version"], Path(r["root"]), r["problem"]) for r in rows]
