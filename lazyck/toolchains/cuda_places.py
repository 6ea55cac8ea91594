"""Find CUDA: by the environment, on PATH, among what was installed beside lazyck, and in the
default place.

The wheels of CUDA 13 (`lazyck[cuda]`) unpack into one tree,
`site-packages/nvidia/cu13/{bin,include,lib,nvvm}`. It has no `lib64` and no `libcudart.so`, only
`lib/libcudart.so.13`, so `-L$CUDA_HOME/lib64 -lcudart` and `nvcc -cudart shared` fail. A *composed
home* is a tree of links to it that has both. (The wheels of CUDA 12 hold ptxas and libraries but no
nvcc.)
"""

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lazyck import proc
from lazyck.errors import UsageError
from lazyck.files import digest, encode, private_directory
from lazyck.machines import MACHINES
from lazyck.settings.environment import tools_dir
from lazyck.toolchains import lookup

DEFAULT_HOME = "/usr/local/cuda"
HOME_ENV = ("CUDA_HOME", "CUDA_PATH")
_VERSIONED = re.compile(r"(lib[\w+-]+\.so)\.[\d.]+")
_INCLUDES = ("include", *(f"targets/{m.cuda_target}/include" for m in MACHINES.values() if m.cuda_target))


def is_nvcc(words: Sequence[str]) -> bool:
    """Return whether a compiler's words name nvcc, or a wrapper of it, rather than clang."""
    return "nvcc" in Path(words[0]).name


def find(env: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """Return home and compiler's words of the CUDA that a build with `env` would use, or None."""
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
    home = find_wheels(sys.path) or DEFAULT_HOME
    return (home, (f"{home}/bin/nvcc",)) if lookup.is_program(f"{home}/bin/nvcc") else None


def completed(home: str, env: Mapping[str, str]) -> str:
    """Return `home`, or a home made for builds if wheels lack what they look for."""
    if not lacks(home):
        return home
    try:
        return compose(home, private_directory(tools_dir(env)))
    except (OSError, UsageError):  # it cannot be made anywhere, but most builds work with what the wheels have
        return home


def _home_of(nvcc: str, env: Mapping[str, str]) -> str:
    """Return an nvcc's toolkit: the one around it, or, for a wrapper script, that it reports."""
    for place in (Path(nvcc), Path(nvcc).resolve()):
        home = place.parent.parent
        if any((home / d / "cuda_runtime.h").is_file() for d in _INCLUDES) or (home / "nvvm").is_dir():
            return str(home)
    shown = proc.run([nvcc, "--dryrun", "-c", "x.cu", "-o", "x.o"], env=env)
    match = re.search(r"^#\$ TOP=(.+)$", shown.stderr, re.M)
    return os.path.normpath(match[1].strip()) if match else str(Path(nvcc).parent.parent)


def find_wheels(path: Sequence[str]) -> str:
    """Return the newest CUDA with an nvcc among the wheels below `path`, or an empty string."""
    found = [nvcc.parent.parent for d in path if d for nvcc in Path(d).glob("nvidia/cu*/bin/nvcc")]
    homes = [home for home in found if os.access(home / "bin" / "nvcc", os.X_OK)]
    return str(max(homes, key=lambda home: int("0" + re.sub(r"\D", "", home.name)), default=""))


def lacks(home: str) -> list[str]:
    """Return the files that builds look for in a CUDA home and that `home` lacks, if `home` is a
    tree of wheels; else nothing."""
    library = Path(home, "lib")
    runtimes = library.glob("libcudart.so.*") if library.is_dir() else iter(())
    if not Path(home, "nvvm").is_dir() or next(runtimes, None) is None:
        return []
    wanted = ("lib64", "lib/libcudart.so")
    return [name for name in wanted if not Path(home, name).exists()]


def compose(home: str, below: Path) -> str:
    """Make a complete home of links to the tree of wheels at `home`, in a directory of `below`.

    The name of the directory is derived from its contents, so it never changes, and builds that run
    at the same time can share it.
    """
    links = _links(Path(home))
    tag = digest(*(encode(w) for pair in links.items() for w in pair))[:12]
    composed = below / f"{Path(home).name}-{tag}"
    if all((composed / place).exists() for place in links):
        return str(composed)
    fresh = composed.with_name(f".{composed.name}-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    for place, target in links.items():
        (fresh / place).parent.mkdir(parents=True, exist_ok=True)
        (fresh / place).symlink_to(target)
    shutil.rmtree(composed, ignore_errors=True)  # it exists but is damaged: one of its links leads nowhere
    with contextlib.suppress(OSError):  # another build may have been faster
        fresh.rename(composed)
    shutil.rmtree(fresh, ignore_errors=True)
    return str(composed)


def _links(home: Path) -> dict[str, str]:
    """Map each place in the composed home to the target of the link there."""
    links = {}
    for entry in sorted(home.iterdir()):
        if entry.name not in ("bin", "lib", "lib64"):
            links[entry.name] = str(entry)
    # nvcc takes the directory of its call for its own, and looks for its home at `..` of that. So
    # `bin` is a real directory.
    links |= {f"bin/{entry.name}": str(entry) for entry in sorted((home / "bin").iterdir())}
    for entry in sorted((home / "lib").iterdir()):
        links[f"lib/{entry.name}"] = str(entry)
        match = _VERSIONED.fullmatch(entry.name)
        if match:
            links.setdefault(f"lib/{match[1]}", entry.name)
    links["lib64"] = "lib"
    return links
