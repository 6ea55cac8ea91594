"""Nothing is silently dropped: after a link without blobs that could not be compiled, is anything undefined?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lazyck import proc
from lazyck.errors import BuildError
from lazyck.postbuild import elf
from lazyck.postbuild.eager import EagerObject
from lazyck.postbuild.state import LinkState


def check(st: LinkState, directory: Path, failed: Sequence[EagerObject], env: Mapping[str, str]) -> None:
    """Raise `BuildError` if `directory`/`st.file_name` needs symbols that neither it nor its libraries have.

    Only C++ names count: blobs define C++ functions nearly always, while C names may come from the program that
    loads the library (as Python's do for an extension module). A blob's `extern "C"` name counts when the blob's
    source mentions it.
    """
    library = directory / st.file_name
    image = elf.read_shared(library)
    provided: set[str] = set()
    for path in needed_libraries(library, env):
        provided.update(elf.read_shared(path).defined)
    candidates = sorted(image.undefined - image.weak_undefined - provided)
    sources = [e.blob.source for e in failed]
    texts = [Path(s).read_bytes() for s in sources]
    lost = [s for s in candidates if s.startswith("_Z") or any(s.encode() in t for t in texts)]
    if not lost:
        return
    lines = [f"{st.file_name}: nothing defines these symbols:", *(f"  {s}" for s in lost[:20])]
    if len(lost) > 20:
        lines.append(f"  ... and {len(lost) - 20} more")
    lines.append("and these blobs, which might, can neither be probed nor compiled:")
    lines += [f"  {e.blob.source} ({e.reason})" for e in failed[:20]]
    first = failed[0].error
    library.unlink()
    raise BuildError("\n".join([*lines, first.message if first else ""]), "mend the blobs named above")


def needed_libraries(library: Path, env: Mapping[str, str]) -> list[Path]:
    """The files that the loader would take for what `library` needs, as `ldd` finds them."""
    listed = proc.run(["ldd", str(library)], env=env).stdout
    paths = []
    for line in listed.splitlines():
        _, arrow, target = line.strip().partition(" => ")
        path = (target if arrow else line.strip()).rpartition(" (")[0]
        if path.startswith("/") and Path(path).is_file():
            paths.append(Path(path))
    return paths
