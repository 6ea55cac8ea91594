"""Nothing is silently dropped: after a link without blobs that could not be compiled, is anything undefined?"""

from __future__ import annotations

import platform
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
    if elf.machine(library) == platform.machine():
        needed = needed_libraries(library, env)
    else:
        needed = libraries_of_compiler(library, st.runtime_compiler)
    for path in needed:
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


def libraries_of_compiler(library: Path, compiler: Sequence[str]) -> list[Path]:
    """The files that a cross compiler would link for what `library` and those need; `ldd` knows this machine's only."""
    found: dict[str, Path] = {}
    todo = [library]
    while todo:
        for name in elf.read_shared(todo.pop()).needed:
            path = Path(proc.run([*compiler, f"-print-file-name={name}"]).stdout.strip())
            if name not in found and path.is_absolute() and path.is_file():
                found[name] = path
                todo.append(path)
    return list(found.values())


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
