"""Use CUDA from PyPI's wheels (`lazyck[cuda]`): find them, and make a home that has what builds
look for.

The wheels of CUDA 13 unpack into one tree, `site-packages/nvidia/cu13/{bin,include,lib,nvvm}`. It
has no `lib64` and no `libcudart.so`, only `lib/libcudart.so.13`, so `-L$CUDA_HOME/lib64 -lcudart`
and `nvcc -cudart shared` fail. A *composed home* is a tree of links to it that has both. (The
wheels of CUDA 12 hold ptxas and libraries but no nvcc.)
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from _lazyck.files import encode

_VERSIONED = re.compile(r"(lib[\w+-]+\.so)\.[\d.]+")


def find_home(path: Sequence[str]) -> str:
    """Return the newest CUDA with an nvcc among the wheels below the directories of `path`, or an
    empty string."""
    found = [nvcc.parent.parent for d in path if d for nvcc in Path(d).glob("nvidia/cu*/bin/nvcc")]
    homes = [home for home in found if os.access(home / "bin" / "nvcc", os.X_OK)]
    return str(max(homes, key=_release, default="")) if homes else ""


def _release(home: Path) -> int:
    digits = home.name[len("cu") :]
    return int(digits) if digits.isdigit() else 0


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
    tag = hashlib.sha256(b"\0".join(encode(w) for pair in links.items() for w in pair)).hexdigest()[:12]
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
