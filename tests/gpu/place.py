"""Define where a stage works and how it runs commands."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu.machine import Machine

REPOSITORY = Path(__file__).resolve().parent.parent.parent
EXAMPLES = REPOSITORY / "examples"
_SHOWN = 1500  # characters of a failed command's output


def complaint(stderr: str) -> str:
    """Return the end of a program's stderr without the lines that lazyck prints about compiles. If
    the text contains an error of lazyck, return it from its start."""
    said = "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith("[lazyck]"))
    at = said.find("lazyck: ")
    return said[at : at + _SHOWN] if at >= 0 else said[-_SHOWN:]


class StageError(Exception):
    """Says which command of a stage has failed, and how."""


@dataclass(frozen=True)
class Place:
    """Holds a stage's directory, the machine, and the parcel with sources and wheels. `is_short`
    limits the stage to what takes a minute or two, for CI. `jobs` is the number of compiles that
    may run at a time."""

    name: str
    root: Path
    parcel: Path
    machine: Machine
    is_short: bool
    jobs: int

    @property
    def work(self) -> Path:
        """Create the stage's own directory if it is missing, and return it."""
        made = self.root / self.name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def beside(self, name: str) -> "Place":
        """Return the place of another stage, whose build this one uses."""
        return Place(name, self.root, self.parcel, self.machine, self.is_short, self.jobs)

    def environment(self, cache: str = "cache", **more: str) -> dict[str, str]:
        """Return this process's environment, extended by the compiler's home, a cache of the
        stage's own, and the architecture to build for if there is no GPU."""
        m = self.machine
        path = os.pathsep.join([str(Path(sys.executable).parent), f"{m.home}/bin", os.environ["PATH"]])
        made = {**os.environ, "PATH": path, "LAZYCK_CACHE_DIR": str(self.work / cache), "MAX_JOBS": str(self.jobs)}
        if m.platform == "cuda":
            libraries = [f"{m.home}/lib64", f"{m.home}/lib", *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
            made |= {"CUDA_HOME": m.home, "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        else:
            made["ROCM_PATH"] = m.home
        if not m.gpu:
            made["LAZYCK_ARCHS"] = m.arch
        return {**made, **more}

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        fails: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises `StageError` if it fails, unless `fails` allows that."""
        words = [str(w) for w in argv]
        environment = self.environment() if env is None else env
        done = subprocess.run(words, cwd=cwd or self.work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 and not fails:
            said = (done.stdout + done.stderr)[-_SHOWN:]
            raise StageError(f"{' '.join(words)[:300]} ended with status {done.returncode}: {said}")
        return done

    def lazyck(
        self, *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run this checkout's lazyck."""
        return self.run([sys.executable, "-m", "lazyck", *words], cwd=cwd, env=env)

    def blobs(self, library: Path) -> tuple[int, int]:
        """Return how many blobs of a library are lazy and how many are eager. Raises `StageError`
        if lazyck does not say."""
        shown = self.lazyck("inspect", library).stdout
        found = re.search(r"(\d+) lazy with \d+ symbols?, (\d+) eager", shown)
        if found is None:
            raise StageError(f"lazyck inspect {library} does not say how many blobs are lazy: {shown[:300]}")
        return int(found[1]), int(found[2])

    def prebuild(self, library: Path, *names: str, env: Mapping[str, str]) -> None:
        """Compile blobs of a library in parallel for the machine's architecture. The name `--all`
        stands for all blobs."""
        words = ["--gpu-archs", self.machine.arch, "--jobs", str(self.jobs), *names]
        self.lazyck("prebuild", "build", "--manifest", library, *words, env=env)
