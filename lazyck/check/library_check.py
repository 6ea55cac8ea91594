"""Checks one lazy library of a tmp dir: makes it ahead of time as well, then compares the two."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.check.ahead import AheadOfTime, Compiled, Sample, present
from lazyck.check.blob_objects import read_blob_object
from lazyck.check.compare import Comparison, Lazy, compare
from lazyck.check.vague import vague_names
from lazyck.errors import CommandError, FormatError
from lazyck.formats.manifest import decode
from lazyck.postbuild import state
from lazyck.postbuild.link import relink
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.offered import read_offered, with_named
from lazyck.postbuild.objects.reveal import plain_name
from lazyck.quantities import counted


@dataclass(frozen=True)
class Checked:
    """The result of checking one library of so many blobs. `problem` says why none was compared."""

    library: str
    output: str
    blobs: int
    compiled: Compiled
    comparison: Comparison
    problem: str
    seconds: float

    @property
    def is_same(self) -> bool:
        """Whether nothing was found that makes a check fail."""
        return not self.problem and not any(d.fails for d in self.comparison.differences)


@dataclass(frozen=True)
class CheckRequest:
    """The options of a check. With `keeps`, the ahead-of-time library is not deleted."""

    sample: Sample
    jobs: int
    keeps: bool = False


def directories(tmp: Path, wanted: tuple[str, ...]) -> list[Path]:
    """Return the directories of libraries in `tmp`: those that `wanted` gives by path or by name,
    or all. Raises `FormatError`."""
    known = {directory: state.load(directory) for directory in state.library_dirs(tmp)}
    if not known:
        raise FormatError(f"{tmp}: holds no lazy library", "give the --tmp-dir of a `lazyck build full` that made one")
    chosen = []
    for text in wanted:
        fitting = [d for d, st in known.items() if _is_called(text, st, d)]
        if not fitting:
            names = ", ".join(sorted(st.library for st in known.values()))
            raise FormatError(f"{text}: no library of {tmp}", f"it has {names}")
        chosen += fitting
    return list(dict.fromkeys(chosen)) if wanted else list(known)


def _is_called(text: str, st: state.LinkState, directory: Path) -> bool:
    places = {relink.output_path(st, directory), relink.installed_path(st, directory), directory / st.file_name}
    return text in (st.library, st.file_name) or Path(os.path.abspath(text)) in places


def check_library(
    directory: Path, request: CheckRequest, env: Mapping[str, str], say: Callable[[str], None]
) -> Checked:
    """Check the library of `directory`. Slow steps are reported to `say`. Raises `LazyckError`."""
    begun = time.monotonic()
    made = AheadOfTime(directory, env)
    st, number = made.state, len(made.units)
    say(f"check: {st.file_name}: compiling {_how_many(request.sample, number)}, {request.jobs} at a time")
    try:
        with present(unit.blob.call.cwd for unit in made.units):
            compiled = made.compile(request.sample, request.jobs, say)
            comparison, problem = _compare(made, compiled, request.jobs)
    finally:
        if not request.keeps:
            shutil.rmtree(made.folder, ignore_errors=True)
    output, seconds = str(relink.output_path(st, directory)), time.monotonic() - begun
    return Checked(st.library, output, number, compiled, comparison, problem, seconds)


def _compare(made: AheadOfTime, compiled: Compiled, jobs: int) -> tuple[Comparison, str]:
    nothing = Comparison((), {})
    if not compiled.units and made.units:
        return nothing, "no blob could be compiled ahead of time"
    try:
        library = made.link(compiled)
    except CommandError as e:
        return nothing, f"it does not link ahead of time: {first_error(e)}"
    linked, link = made.directory / made.state.file_name, made.project
    data = elf.read_section(linked, abi.MANIFEST_SECTION)  # there is none if all blobs are eager
    manifest = decode(data, str(linked)) if data is not None else None
    stubs = frozenset(map(plain_name, manifest.functions)) if manifest else frozenset()
    tag = manifest.private_tag if manifest else ""
    blobs = [read_blob_object(u.object, u.blob.source, link.eager.get(u.blob.output, "")) for u in compiled.units]
    lazy = Lazy(read_offered(linked), stubs, tag, frozenset(link.kept), link.shared)
    ahead, whole = read_offered(library), compiled.is_whole
    found = compare(ahead, lazy, blobs, whole=whole)
    lost = frozenset(d.name for d in found.differences if d.kind in ("lost", "internal", "undefined"))
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        vague = pool.map(lambda unit, blob: vague_names(unit, blob, lost, made.env), compiled.units, blobs)
        names = frozenset().union(*vague)
    if not names:
        return found, ""
    lazy = replace(lazy, offered=with_named(lazy.offered, link.libraries))
    return compare(ahead, lazy, blobs, whole=whole, vague=names), ""


def _how_many(sample: Sample, number: int) -> str:
    every = counted(number, "blob")
    if sample.seconds is not None:
        return f"as many of {every} as possible in {sample.seconds:g} s"
    return every if sample.blobs is None or sample.blobs >= number else f"{sample.blobs} of {number} blobs"


def first_error(error: CommandError) -> str:
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "undefined" in line or "multiple" in line]
    return next(iter(telling or lines), f"status {error.status}")
