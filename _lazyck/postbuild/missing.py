"""Checks that a link without the blobs that failed to compile leaves nothing undefined."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from _lazyck import proc
from _lazyck.errors import BuildError
from _lazyck.postbuild.eager import EagerObject
from _lazyck.postbuild.objects import elf
from _lazyck.postbuild.reasons import sentence
from _lazyck.postbuild.state import LinkState


def check(
    st: LinkState, directory: Path, failed: Sequence[EagerObject], linked: Sequence[str], env: Mapping[str, str]
) -> None:
    """Raise `BuildError` if `directory`/`st.file_name` needs symbols that neither it nor its
    libraries define. `linked` are the libraries that its link named.

    Only C++ names count. Blobs nearly always define C++ functions, while C names may come from the
    program that loads the library (as Python's do for an extension module). An `extern "C"` name
    counts if the source of a failed blob mentions it.
    """
    library = directory / st.file_name
    image = elf.read_shared(library)
    provided: set[str] = set()
    for path in needed_libraries(library, linked, st.runtime_compiler, env):
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
    lines.append("and these blobs, which might, can be neither probed nor compiled:")
    lines += [f"  {e.blob.source} ({sentence(e.reasons)})" for e in failed[:20]]
    first = failed[0].error
    library.unlink()
    raise BuildError("\n".join([*lines, first.message if first else ""]), "fix the blobs named above")


def needed_libraries(
    library: Path, linked: Sequence[str], compiler: Sequence[str], env: Mapping[str, str]
) -> list[Path]:
    """Return the files that the loader would take for what `library` needs, and for what those need
    in turn.

    If the library is for another machine, these are files of `linked`, the libraries that its link
    named. For names that `linked` lacks, they are the files that `compiler`, a cross compiler,
    would link.
    """
    if elf.machine(library) == platform.machine():
        return _as_ldd_finds_them(library, env)
    by_soname = {elf.read_shared(p).soname or Path(p).name: Path(p) for p in linked}
    found: dict[str, Path] = {}
    todo = [library]
    while todo:
        for name in elf.read_shared(todo.pop()).needed:
            if name in found:
                continue
            path = by_soname.get(name) or Path(proc.run([*compiler, f"-print-file-name={name}"]).stdout.strip())
            if path.is_absolute() and path.is_file():
                found[name] = path
                todo.append(path)
    return list(found.values())


def _as_ldd_finds_them(library: Path, env: Mapping[str, str]) -> list[Path]:
    listed = proc.run(["ldd", str(library)], env=env).stdout
    paths = []
    for line in listed.splitlines():
        _, arrow, target = line.strip().partition(" => ")
        path = (target if arrow else line.strip()).rpartition(" (")[0]
        if path.startswith("/") and Path(path).is_file():
            paths.append(Path(path))
    return paths
