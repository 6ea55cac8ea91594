"""Looks at a library that was linked: what does it hide from its blobs, and what does it lack?"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lazyck import abi, proc
from lazyck.errors import BuildError
from lazyck.postbuild.cxx.mangled import is_private, template_of
from lazyck.postbuild.eager import EagerObject
from lazyck.postbuild.facts import Plan, Settled
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.link_rules import is_own_program
from lazyck.postbuild.objects import cudart, elf
from lazyck.postbuild.objects.reveal import private_name
from lazyck.postbuild.reasons import sentence
from lazyck.postbuild.state import LinkState
from lazyck.toolchains.gpu_runtimes import GPU_RUNTIMES


@dataclass(frozen=True)
class Observed:
    """Holds what a linked library shows (see `Facts`). `without_runtime` has the wrapped functions
    of a GPU runtime that no library has."""

    unexported: frozenset[str]
    lost: frozenset[str]
    dropped: Mapping[str, frozenset[str]]
    without_runtime: frozenset[str]


def observe(
    context: LinkContext,
    library: Path,
    settled: Settled,
    plan: Plan,
    image: elf.SharedSymbols,
) -> Observed:
    """Look at the symbols `image` of the `library` that a link of `plan` made. Raises
    `LazyckError`."""
    real, taken, runtime = plan.real, plan.taken, plan.runtime
    stubs = {s for p in settled.lazy for s in settled.owned.lazy[p.blob] if s not in p.private}
    shown = (real.defined - real.hidden) | (taken.defined - taken.hidden) | stubs
    missing = frozenset[str]() if is_own_program(context.inputs) else shown - image.defined.keys()
    unexported = frozenset(s for s in missing if not is_private(s))
    private = {s: private_name(s, context.tag) for p in settled.lazy for s in p.private & {*settled.owned.lazy[p.blob]}}
    private |= {s: name for s, name in plan.demands.offered.items()}
    others = _Others(context, library)
    return Observed(
        unexported,
        frozenset(s for s, name in private.items() if name not in image.defined),
        dict(_dropped(context, image, others)),
        _without_runtime(image, runtime, others) if runtime and not settled.units else frozenset(),
    )


class _Others:
    """Knows the symbols of the libraries that a link does not make."""

    def __init__(self, context: LinkContext, library: Path) -> None:
        self._context, self._library = context, library

    @cached_property
    def needed(self) -> list[frozenset[str]]:
        """Return what each of the libraries that this one needs defines."""
        linked = [path for _, path in self._context.inputs.libraries]
        found = needed_libraries(self._library, linked, self._context.compiler, self._context.env)
        return [frozenset(elf.read_dependency(str(path)).defined) for path in found]


def _dropped(context: LinkContext, image: elf.SharedSymbols, others: _Others) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the shared libraries that the linker dropped, each by its path, with the symbols that
    a blob would find nowhere else."""
    for path in dict.fromkeys(path for _, path in context.inputs.libraries):
        if not elf.needed_as(path, image.needed):
            offered, provided = elf.read_dependency(path).defined, frozenset(image.defined).union(*others.needed)
            yield path, frozenset(s for s, b in offered.items() if _is_asked_for(s, b) and s not in provided)


def _without_runtime(image: elf.SharedSymbols, runtime: cudart.CudaRuntime, others: _Others) -> frozenset[str]:
    """Return the functions behind the wrappers of `runtime` if no needed library has them. The
    build then links no runtime, for example because its HIP sources have no device code."""
    registering = {gpu.registering_as(abi.REGISTER_IMAGE) for gpu in GPU_RUNTIMES}
    wanted = image.undefined.intersection(runtime.wrapped, registering)
    return frozenset[str]() if any(wanted <= defined for defined in others.needed) else wanted


def check_complete(
    st: LinkState, directory: Path, failed: Sequence[EagerObject], linked: Sequence[str], env: Mapping[str, str]
) -> None:
    """Raise `BuildError` if the library needs symbols that neither it nor its libraries define.
    `linked` are those that its link named.

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
    """Return the files that the loader would take for what `library` needs, directly or not.

    If it is for another machine, these are files of `linked`, the libraries that its link named,
    and for names that `linked` lacks those that `compiler`, a cross compiler, would link.
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
            asked = (*compiler, f"-print-file-name={name}")
            path = by_soname.get(os.path.basename(name)) or Path(proc.run(asked).stdout.strip())
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


def _is_asked_for(symbol: str, binding: str) -> bool:
    """Return whether code that uses a library's `symbol` leaves it undefined. Such code has an
    inline function or variable itself, unless that is a template's instance."""
    return binding == "GLOBAL" or not symbol.startswith("_Z") or bool(template_of(symbol))
