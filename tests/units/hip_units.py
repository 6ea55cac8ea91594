"""What tests of HIP sources that are compiled kernel by kernel share: they build, and watch the runtime."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_layouts import rocm5, rocm6
from support import Lazyck

ARCH = "gfx90a"  # Debian's device libraries know it
HOMES = {"clang15": rocm5, "clang19": rocm6}


@dataclass(frozen=True)
class Built:
    where: Path
    said: str
    env: Mapping[str, str]

    def run(self, spy: Path, function: str, n: int, **more: str) -> tuple[str, list[str]]:
        """What `function(n)` returns in a process of its own; what the runtime was told from then on."""
        log = Path(tempfile.mkstemp(dir=self.where)[1])  # processes side by side ask for the same
        code = (
            "import ctypes\nx = ctypes.CDLL('./libx.so')\n"
            f"open('{log}', 'a').write('run\\n')\nprint(x.{function}({n}, None))\n"
        )
        env = {**self.env, "LAZYCK_ARCHS": ARCH, "LD_PRELOAD": str(spy), "HIP_SPY": str(log), **more}
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

    def fresh(self, cache: Path) -> Built:
        """The same library for a user who has called nothing yet, with a cache of his own."""
        return replace(self, env={**self.env, "LAZYCK_CACHE_DIR": str(cache)})


def write(where: Path, files: Mapping[str, str], flags: str, home: Path) -> dict[str, str]:
    """A project of `files`; the environment to build it in."""
    where.mkdir(exist_ok=True)
    for name, text in files.items():
        (where / name).write_text(text)
    words = f"--offload-arch={ARCH} -O2 -w -fPIC {flags}"
    compile_all = f'for f in *.hip; do hipcc {words} -c "$f" -o "$f.o"; done'
    (where / "build.sh").write_text(f"set -e\n{compile_all}\nhipcc -shared *.o -o libx.so\n")
    path = [d for d in os.environ["PATH"].split(os.pathsep) if not os.access(Path(d, "nvcc"), os.X_OK)]
    return {
        "PATH": os.pathsep.join([str(home / "bin"), *path]),
        "ROCM_PATH": str(home),
        "LAZYCK_CACHE_DIR": str(where / "cache"),
    }


def build(
    lazyck: Lazyck,
    where: Path,
    files: Mapping[str, str],
    home: Path,
    flags: str = "",
    grades: Sequence[str] = ("--kernels", "*.hip"),
) -> Built:
    env = write(where, files, flags, home)
    done = lazyck("build", "full", *grades, "--", "sh", "build.sh", cwd=where, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(where, done.stdout + done.stderr, env)


def build_ahead(where: Path, files: Mapping[str, str], home: Path, flags: str = "") -> Built:
    env = write(where, files, flags, home)
    subprocess.run(["sh", "build.sh"], cwd=where, env=env, check=True, capture_output=True)
    return Built(where, "", env)


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
