"""Fetch source archives from PyPI, pinned by checksum, and run lazyck on them: what examples
share."""

import hashlib
import json
import os
import resource
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Source:
    """Describes a source archive: its PyPI name and version, its file name, the checksum of the
    file."""

    requirement: str
    archive: str
    sha256: str


FLASH_ATTN = Source(
    "flash-attn==2.8.3.post2",
    "flash_attn-2.8.3.post2.tar.gz",
    "d0f9f0b08a986cdeadbffcf5ec8b3a8f514366c68ad1853d3ab061bc83cc340b",
)
MAMBA = Source(
    "mamba-ssm==2.3.2.post1",
    "mamba_ssm-2.3.2.post1.tar.gz",
    "104cc47e9101e5401a675fa2b784f2952b9b037f3b1dd83b5ac544394e95d028",
)
LLAMA_CPP = Source(
    "llama-cpp-python==0.3.16",
    "llama_cpp_python-0.3.16.tar.gz",
    "34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6",
)
GSPLAT = Source(
    "gsplat==1.5.3",
    "gsplat-1.5.3.tar.gz",
    "343f080c470e891ba3c697c03bdf0952cb982d1d535fdc24adb23c2cb4fba906",
)


def fetch(source: Source, work: Path, part: str = "") -> Path:
    """Return the unpacked archive below `work`; fetch it unless it is there already. Only the
    directory `part` of it is unpacked, if one is named, apart from the whole. End the program if
    its checksum differs."""
    archive = work / source.archive
    work.mkdir(parents=True, exist_ok=True)
    if not archive.is_file():
        # pip would run the project's setup to find its dependencies; unearth only downloads.
        venv = make_venv(work / "fetch-venv", ["unearth"])
        argv = [str(venv / "bin" / "unearth"), "-d", str(work), "--no-binary", source.requirement]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != source.sha256:
        sys.exit(f"{archive}: sha256 is {found}, expected {source.sha256}: remove the file and try again")
    where = work / "part" if part else work
    unpacked = where / source.archive.removesuffix(".tar.gz")
    if not (unpacked / part).is_dir():
        with tarfile.open(archive) as tar:
            members = [m for m in tar if m.name.startswith(f"{unpacked.name}/{part}")]
            # The checksum vouches for the contents; older Pythons have no filters.
            if hasattr(tarfile, "data_filter"):
                tar.extractall(where, members, filter="data")
            else:
                tar.extractall(where, members)
    return unpacked


def make_venv(directory: Path, requirements: Sequence[str]) -> Path:
    """Make a virtual environment with `requirements`, once; return its directory."""
    stamp = directory / "requirements"
    wanted = "\n".join(requirements)
    if not stamp.is_file() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        if requirements:
            argv = [str(directory / "bin" / "pip"), "install", "-q", *requirements]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        stamp.write_text(wanted)
    return directory


def cpu_of_children() -> float:
    """Return the CPU seconds of every process that this one started and waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def lazyck(*words: str | Path, cwd: Path, env: Mapping[str, str]) -> None:
    """Run this checkout's lazyck; end the program with its status if that is not 0."""
    paths = os.pathsep.join([str(REPOSITORY), *filter(None, [env.get("PYTHONPATH", "")])])
    argv = [sys.executable, "-m", "lazyck", *map(str, words)]
    print("$", *argv[2:], flush=True)
    status = subprocess.run(argv, cwd=cwd, env={**env, "PYTHONPATH": paths}).returncode
    if status != 0:
        sys.exit(status)


def check(tmp: Path, sample: int, *, cwd: Path, env: Mapping[str, str]) -> None:
    """Compare the libraries of a tmp dir with those of an ahead-of-time build, by `sample` blobs of
    each; end the program if they differ."""
    lazyck("check", "--tmp-dir", tmp, "--sample", str(sample), cwd=cwd, env=env)


def summaries(tmp: Path) -> dict[str, dict[str, object]]:
    """Return lazyck's summary of each library of a tmp dir, by the library's name."""
    found = [json.loads(p.read_text()) for p in sorted(tmp.glob("libs/*/summary.json"))]
    return {s["library"]: s for s in found}


def events(cache: Path) -> list[dict[str, object]]:
    """Return the events in the history of a cache."""
    return [json.loads(line) for path in cache.glob(".history/*") for line in path.read_text().splitlines()]


def unused(of: Sequence[Mapping[str, object]]) -> set[tuple[str, str]]:
    """Return the blobs that these events compile and do not load, each with its arch."""

    def named(kind: str) -> set[tuple[str, str]]:
        # A host unit is loaded under its blob's name.
        return {(str(e["blob"]).removesuffix(".host"), str(e["arch"])) for e in of if e["kind"] == kind}

    return named("compile") - named("load")
