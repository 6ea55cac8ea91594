"""What tests of CUDA sources that are compiled kernel by kernel share: they build, and watch the runtime."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_machine import cuda_environment, cuda_home
from support import Lazyck


@dataclass(frozen=True)
class Built:
    where: Path
    said: str
    env: Mapping[str, str]

    def run(self, spy: Path, function: str, n: int, **more: str) -> tuple[str, list[str]]:
        """What `function(n)` returns in a process of its own; what the runtime was told from then on."""
        log = self.where / f"spy.{function}{n}"
        log.write_text("")
        code = (
            "import ctypes\nx = ctypes.CDLL('./libx.so')\n"
            f"open('{log}', 'a').write('run\\n')\nprint(x.{function}({n}, None))\n"
        )
        env = {**self.env, "LAZYCK_ARCHS": "80", "LD_PRELOAD": str(spy), "CUDA_SPY": str(log), **more}
        done = subprocess.run(["python3", "-c", code], cwd=self.where, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        before, _, seen = log.read_text().partition("run\n")
        return done.stdout.strip(), [*before.splitlines(), "run", *seen.splitlines()]


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
    return Built(where, done.stdout + done.stderr, env)


def build_ahead(where: Path, files: Mapping[str, str], flags: str = "") -> Built:
    write(where, files, flags)
    env = environment(where)
    subprocess.run(["sh", "build.sh"], cwd=where, env=env, check=True, capture_output=True)
    return Built(where, "", env)


def plain_names(text: str) -> str:
    """Mangled names without what makes those of unnamed namespaces and of static variables a source's own."""
    plain, at = "", 0
    while found := re.compile(r"(\d+)(_GLOBAL__N_|_INTERNAL_)").search(text, at):
        plain += text[at : found.start()] + "(unnamed)"
        at = found.start(2) + int(found[1])
    return plain + text[at:]


def used(seen: list[str]) -> list[str]:
    """What was asked for and launched, each kernel with the code that it was registered with last."""
    code: dict[str, str] = {}
    found = []
    for line in seen:
        line = plain_names(line)
        what, _, rest = line.partition(" ")
        name, _, more = rest.partition(" ")
        if what == "register":
            code[name] = more
        elif rest:
            found.append(f"{line} {code.get(name, 'UNREGISTERED')}")
    return found
