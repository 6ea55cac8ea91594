"""Provide what tests of sources that are compiled kernel by kernel share in CUDA and HIP: a
library, and what its runtime hears."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Built:
    """Describes the library libx.so in `where`, what its build printed, and the environment to use
    it in."""

    where: Path
    said: str
    env: Mapping[str, str]
    arch: str
    spy: str  # the variable that names the file in which the spy writes

    def run(self, spy: Path, function: str, n: int, **more: str) -> tuple[str, list[str]]:
        """Call `function(n)` in a process of its own. Return its result, and the lines of what the
        runtime was told, with `run` between those of the load and those of the call."""
        log = Path(tempfile.mkstemp(dir=self.where)[1])  # a file for each process, because tests run in parallel
        code = (
            "import ctypes\nx = ctypes.CDLL('./libx.so')\n"
            f"open('{log}', 'a').write('run\\n')\nprint(x.{function}({n}, None))\n"
        )
        env = {**self.env, "LAZYCK_ARCHS": self.arch, "LD_PRELOAD": str(spy), self.spy: str(log), **more}
        argv = [sys.executable, "-IS", "-c", code]
        done = subprocess.run(argv, cwd=self.where, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        before, _, seen = log.read_text().partition("run\n")
        return done.stdout.strip(), [*before.splitlines(), "run", *seen.splitlines()]

    @property
    def cache(self) -> Path:
        return Path(self.env["LAZYCK_CACHE_DIR"])

    @property
    def units(self) -> list[Path]:
        """Return the cache's entries."""
        return list(self.cache.rglob("*.so"))

    @property
    def entries(self) -> list[str]:
        """Return the names of the units that the cache's entries hold."""
        return sorted(p.name.rpartition("-")[0] for p in self.units)

    def fresh(self, cache: Path) -> "Built":
        """Return the library as a user sees it who has called nothing yet, with a cache of its
        own."""
        return replace(self, env={**self.env, "LAZYCK_CACHE_DIR": str(cache)})

    def with_own_bundle(self, where: Path) -> "Built":
        """Return the library with a copy of its bundle, which the caller may change, and a cache of
        its own."""
        (bundle,) = self.where.glob(".lazyck-build/libs/*/bundle")
        copy = shutil.copytree(bundle, where / "bundle", symlinks=True)
        return replace(self, env={**self.env, "LAZYCK_ROOT": str(copy)}).fresh(where / "cache")

    def unit_program(self) -> Path:
        """Return the program in the library's own bundle that takes sources apart."""
        (program,) = Path(self.env["LAZYCK_ROOT"]).rglob("lazyck-unit")
        return program


def used(seen: list[str]) -> list[str]:
    """Return what was asked for and launched, each kernel with the code of its latest
    registration."""
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
