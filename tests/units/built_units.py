"""What tests of sources that are compiled kernel by kernel share in CUDA and HIP: a library, what its runtime hears."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Built:
    """The library libx.so in `where`, what was said as it was built, and the environment to use it in."""

    where: Path
    said: str
    env: Mapping[str, str]
    arch: str
    spy: str  # the variable that names the file in which the spy writes

    def run(self, spy: Path, function: str, n: int, **more: str) -> tuple[str, list[str]]:
        """What `function(n)` returns in a process of its own; what the runtime was told from then on."""
        log = Path(tempfile.mkstemp(dir=self.where)[1])  # processes side by side ask for the same
        code = (
            "import ctypes\nx = ctypes.CDLL('./libx.so')\n"
            f"open('{log}', 'a').write('run\\n')\nprint(x.{function}({n}, None))\n"
        )
        env = {**self.env, "LAZYCK_ARCHS": self.arch, "LD_PRELOAD": str(spy), self.spy: str(log), **more}
        done = subprocess.run(["python3", "-c", code], cwd=self.where, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        before, _, seen = log.read_text().partition("run\n")
        return done.stdout.strip(), [*before.splitlines(), "run", *seen.splitlines()]

    @property
    def cache(self) -> Path:
        return Path(self.env["LAZYCK_CACHE_DIR"])

    @property
    def units(self) -> list[Path]:
        """The entries of the cache."""
        return list(self.cache.rglob("*.so"))

    @property
    def entries(self) -> list[str]:
        """Whose they are."""
        return sorted(p.name.rpartition("-")[0] for p in self.units)

    def fresh(self, cache: Path) -> Built:
        """The same library for a user who has called nothing yet, with a cache of his own."""
        return replace(self, env={**self.env, "LAZYCK_CACHE_DIR": str(cache)})


def used(seen: list[str]) -> list[str]:
    """What was asked for and launched, each kernel with the code that it was registered with last."""
    code: dict[str, str] = {}
    found = []
    for line in seen:
        what, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if what == "register":
            code[name] = more
        elif rest:
            found.append(f"{line} {code.get(name, 'UNREGISTERED')}")
    return found
