"""Makes a lazy build's library ahead of time. The project's own commands compile the blobs, only
for the host, as the symbols need no more. The project's own link then makes the library from their
objects."""

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import proc
from lazyck.errors import CommandError
from lazyck.postbuild import state
from lazyck.postbuild.link import relink
from lazyck.postbuild.link.arguments import FOLDER, load_ahead
from lazyck.postbuild.objects import elf
from lazyck.postbuild.probe.group import compile_one, writing_to
from lazyck.toolchains import by_name
from lazyck.toolchains.command import CompileCommand

_HEARTBEAT = 10.0  # seconds between two messages about progress


@dataclass(frozen=True)
class Sample:
    """How much is compiled: at most so many `blobs`, or what can be begun within `seconds`."""

    blobs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class BlobCompile:
    blob: CompileCommand
    object: Path


@dataclass(frozen=True)
class Compiled:
    """The result of compiling: units with an object, units that do not compile (with the failure),
    and units that the sample leaves out."""

    units: tuple[BlobCompile, ...]
    failed: tuple[tuple[BlobCompile, CommandError], ...]
    left_out: tuple[BlobCompile, ...]

    @property
    def is_whole(self) -> bool:
        """Whether the library could be made from all of its blobs."""
        return not self.failed and not self.left_out


@contextlib.contextmanager
def present(directories: Iterable[str]) -> Iterator[None]:
    """Create working directories that are gone, as those of builds in a temporary directory are,
    for as long as the context lasts. A directory that cannot be created stays missing."""
    made: list[Path] = []
    for directory in dict.fromkeys(map(Path, directories)):
        missing = [d for d in (directory, *directory.parents) if not d.exists()]
        with contextlib.suppress(OSError):
            for d in reversed(missing):
                d.mkdir()
                made.append(d)
    try:
        yield
    finally:
        for d in reversed(made):
            with contextlib.suppress(OSError):
                d.rmdir()


class AheadOfTime:
    """The ahead-of-time build of one library, in a directory of its own below the library's."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self.directory, self.env = directory, env
        self.state, self.project = state.load(directory), load_ahead(directory)
        self.folder = directory / FOLDER
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        direct = [BlobCompile(blob, self.folder / f"{n}.o") for n, blob in enumerate(self.project.records)]
        self._archives = [self._read_archive(n, name) for n, name in enumerate(self.project.archives)]
        self.units = (*direct, *(m for members in self._archives for m in members if isinstance(m, BlobCompile)))

    def _read_archive(self, number: int, copy: str) -> list[BlobCompile | Path]:
        """Return what is in an archive that is made anew: the units of its blobs, and files, which
        are written, with its other code."""
        path = self.directory / "objects" / copy
        members: list[BlobCompile | Path] = []
        for i, (name, content) in enumerate(elf.members(path)):
            records = elf.records_in(content, f"{path}({name})")
            at, base = self.folder / f"archive{number}" / str(i), Path(name).name or "x.o"
            if not records or not elf.ElfImage(content, str(path)).is_deferred:
                members.append(at / "own" / base)
                (at / "own").mkdir(parents=True)
                (at / "own" / base).write_bytes(content)
            members += [BlobCompile(blob, at / str(k) / base) for k, blob in enumerate(records)]
        return members

    def compile(self, sample: Sample, jobs: int, say: Callable[[str], None]) -> Compiled:
        chosen = spread(len(self.units), sample.blobs)
        begun = said = time.monotonic()
        deadline = math.inf if sample.seconds is None else begun + sample.seconds
        ended = 0

        def one(index: int) -> CommandError | bool | None:
            nonlocal ended, said
            if time.monotonic() > deadline:
                return False
            unit = self.units[index]
            unit.object.parent.mkdir(parents=True, exist_ok=True)
            more = by_name(unit.blob.call.toolchain).host_only
            done = compile_one(unit.blob, unit.object, self.env, more)
            ended, now = ended + 1, time.monotonic()
            if now - said >= _HEARTBEAT and ended < len(chosen):
                said, left = now, (now - begun) / ended * (len(chosen) - ended)
                say(f"check: {ended} of {len(chosen)} blobs compiled, about {left:.0f} s left")
            if done.status == 0:
                return None
            what, argv = f"{unit.blob.source}: compiled ahead of time", [*writing_to(unit.blob, unit.object), *more]
            return CommandError(what, argv, done.status, done.stdout + done.stderr)

        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            results = dict(zip(chosen, pool.map(one, chosen), strict=True))
        found = [(unit, results.get(i, False)) for i, unit in enumerate(self.units)]
        return Compiled(
            tuple(unit for unit, what in found if what is None),
            tuple((unit, what) for unit, what in found if isinstance(what, CommandError)),
            tuple(unit for unit, what in found if what is False),
        )

    def link(self, compiled: Compiled) -> Path:
        """Link the library from the objects of `compiled`. If some are missing, symbols may stay
        undefined.

        Raises `CommandError` with the linker's output.
        """
        have = {str(unit.object) for unit in compiled.units}
        for number, members in enumerate(self._archives):
            self._make_archive(number, members, have)
        words = list(self._without_missing(have))
        for toolchain in sorted({unit.blob.call.toolchain for unit in compiled.units}):
            words += by_name(toolchain).host_only_link
        if not compiled.is_whole:
            words += ["-Xlinker", "--unresolved-symbols=ignore-all"]
        relink.relink(replace(self.state, words=tuple(words)), self.directory, [], self.env)
        return self.folder / self.state.file_name

    def _make_archive(self, number: int, members: Sequence[BlobCompile | Path], have: set[str]) -> None:
        objects = [(m, str(m.object if isinstance(m, BlobCompile) else m)) for m in members]
        files = [path for m, path in objects if isinstance(m, Path) or path in have]
        target = self.folder / f"{number}.a"
        target.unlink(missing_ok=True)
        query = [*self.state.runtime_compiler, "-print-prog-name=ar"]
        archiver = proc.run(query, env=self.env).stdout.strip() or "ar"
        # `q` keeps several members of one name.
        proc.check(f"rebuilding {self.project.archives[number]}", [archiver, "qcs", str(target), *files])

    def _without_missing(self, have: set[str]) -> Iterator[str]:
        """Yield the words of the link without the objects that were not compiled, and without the
        `-Xlinker` before such an object."""
        words = self.project.words
        for i, word in enumerate(words):
            has_operand = word == "-Xlinker" and i + 1 < len(words)
            following = state.resolve(words[i + 1] if has_operand else word, self.directory)
            is_object = following.startswith(str(self.folder)) and following.endswith(".o") and words[i - 1] != "-o"
            if not is_object or following in have:
                yield word


def spread(number: int, wanted: int | None) -> list[int]:
    """Return the numbers below `number`, or `wanted` of them, in an order whose every prefix is
    spread evenly."""
    bits = max(1, (number - 1).bit_length())
    order = sorted(range(number), key=lambda i: format(i, f"0{bits}b")[::-1])
    return order if wanted is None else order[:wanted]
