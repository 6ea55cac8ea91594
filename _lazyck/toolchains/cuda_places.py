"""Find CUDA: by the environment, on PATH, among what was installed beside lazyck, and in the
default place."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import proc
from _lazyck.config import tools_dir
from _lazyck.errors import UsageError
from _lazyck.files import private_directory
from _lazyck.toolchains import cuda_wheels, lookup

DEFAULT_HOME = "/usr/local/cuda"
HOME_ENV = ("CUDA_HOME", "CUDA_PATH")
_INCLUDES = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")


def is_nvcc(words: Sequence[str]) -> bool:
    """Return whether a compiler's words name nvcc, or a wrapper of it, rather than clang."""
    return "nvcc" in Path(words[0]).name


def find(env: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the home and the compiler's words of the CUDA that a build with `env` would use, or
    None."""
    compiler = lookup.compiler_of("CUDACXX", env)
    if compiler and not is_nvcc(compiler):
        compiler = ()
    homes = [h for h in (env.get(v, "") for v in HOME_ENV) if h]
    for home in homes if compiler else ():
        if Path(home, "bin", "nvcc").exists():  # the two belong together: builds read headers from this home
            return str(Path(home).absolute()), compiler
    if compiler:
        return _home_of(compiler[0], env), compiler
    for home in homes:
        path = str(Path(home, "bin", "nvcc").absolute())
        if lookup.is_program(path) and not lookup.is_shim(path):
            return str(Path(home).absolute()), (path,)
    path = lookup.which("nvcc", env) or ""
    if path:
        return _home_of(path, env), (path,)
    # What was installed for lazyck is preferred to the default place, which is not on PATH.
    home = cuda_wheels.find_home(sys.path) or DEFAULT_HOME
    return (home, (f"{home}/bin/nvcc",)) if lookup.is_program(f"{home}/bin/nvcc") else None


def completed(home: str, env: Mapping[str, str]) -> str:
    """Return `home`, or a home made for builds if it is a tree of wheels that lacks what they look
    for."""
    if not cuda_wheels.lacks(home):
        return home
    try:
        return cuda_wheels.compose(home, private_directory(tools_dir(env)))
    except (OSError, UsageError):  # it cannot be made anywhere, but most builds work with what the wheels have
        return home


def _home_of(nvcc: str, env: Mapping[str, str]) -> str:
    """Return the toolkit of an nvcc: the one around it, or, for a wrapper script, the one that nvcc
    reports."""
    for place in (Path(nvcc), Path(nvcc).resolve()):
        home = place.parent.parent
        if any((home / d / "cuda_runtime.h").is_file() for d in _INCLUDES) or (home / "nvvm").is_dir():
            return str(home)
    shown = proc.run([nvcc, "--dryrun", "-c", "x.cu", "-o", "x.o"], env=env)
    match = re.search(r"^#\$ TOP=(.+)$", shown.stderr, re.M)
    return os.path.normpath(match[1].strip()) if match else str(Path(nvcc).parent.parent)
