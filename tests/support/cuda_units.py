"""Provide what tests of CUDA sources that are compiled kernel by kernel share: how they build."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support import Lazyck, built_units
from support.built_units import Built
from support.cuda_machine import cuda_environment, cuda_home

LINK = "nvcc -shared *.o -o libx.so -cudart shared"


def write(where: Path, files: Mapping[str, str], flags: str = "", link: str = LINK) -> None:
    where.mkdir(exist_ok=True)
    for name, text in files.items():
        (where / name).write_text(text)
    words = f"-w --extended-lambda {flags} -Xcompiler -fPIC"
    words = words if "-arch" in flags or "-gencode" in flags else f"-arch=sm_80 {words}"
    compile_all = f'for f in *.cu; do nvcc {words} -c "$f" -o "$f.o"; done'
    (where / "build.sh").write_text(f"set -e\n{compile_all}\n{link}\n")


def environment(where: Path) -> dict[str, str]:
    env = cuda_environment(where)
    env["PATH"] = f"{cuda_home()}/bin:{env['PATH']}"
    return env


def build(
    lazyck: Lazyck,
    where: Path,
    files: Mapping[str, str],
    flags: str = "",
    blobs: str = "",
    link: str = LINK,
    more: Sequence[str] = (),
) -> Built:
    write(where, files, flags, link)
    env = environment(where)
    grades = ["--kernels", "*.cu", *(["--blobs", blobs] if blobs else []), *more]
    done = lazyck("build", "full", *grades, "--", "sh", "build.sh", cwd=where, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(where, done.stdout + done.stderr, env, "80", "CUDA_SPY")


def build_ahead(where: Path, files: Mapping[str, str], flags: str = "", link: str = LINK) -> Built:
    write(where, files, flags, link)
    env = environment(where)
    subprocess.run(["sh", "build.sh"], cwd=where, env=env, check=True, capture_output=True)
    return Built(where, "", env, "80", "CUDA_SPY")


def plain_names(text: str) -> str:
    """Remove from mangled names what makes those of unnamed namespaces and of static variables
    unique to a source."""
    plain, at = "", 0
    while found := re.compile(r"(\d+)(_GLOBAL__N_|_INTERNAL_)").search(text, at):
        plain += text[at : found.start()] + "(unnamed)"
        at = found.start(2) + int(found[1])
    return plain + text[at:]


def used(seen: list[str]) -> list[str]:
    """Return what was asked for and launched, each kernel with the code of its latest
    registration."""
    return built_units.used([plain_names(line) for line in seen])
