"""Keeps the project's own link beside the lazy library, so that the library can be linked ahead of
time later.

`ahead.json` holds the words of the link and the records of its deferred objects. In the words, each
deferred object is written as the object to be compiled from its record. An archive with deferred
members is written as an archive to be made again from its kept copy.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _lazyck.abi import Role
from _lazyck.command import CompileCommand, Invocation
from _lazyck.errors import FormatError
from _lazyck.files import write_atomic
from _lazyck.postbuild import state
from _lazyck.postbuild.job import LinkJob
from _lazyck.postbuild.link import outputs
from _lazyck.postbuild.link.words import Keeper
from _lazyck.postbuild.objects.inputs import files_of, library_directories
from _lazyck.toolchains.options import Item

AHEAD_VERSION = 3
FOLDER = "ahead"  # in the library's directory: what is compiled and linked ahead of time


@dataclass(frozen=True)
class AheadLink:
    """Says how to link a library ahead of time.

    - `words`: the whole command; its output is `HERE/ahead/<file name>`.
    - `records`: the blobs of its deferred objects. Record N is to be compiled into
      `object_name(N)`.
    - `archives`: file names of kept copies in `objects`. From number N, `archive_name(N)` is to be
      made.
    - `eager`: maps the outputs of the blobs that are compiled eagerly to the reasons.
    - `shared`: whether the output is a library.
    - `libraries`: the paths of the shared libraries that the link names.
    - `kept`: the sonames of libraries that the lazy link keeps for its blobs' sake.
    """

    words: tuple[str, ...]
    cwd: str
    records: tuple[CompileCommand, ...]
    archives: tuple[str, ...]
    eager: Mapping[str, str]
    shared: bool
    libraries: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def object_name(number: int) -> str:
    """Return the name of the object that is compiled from a record."""
    return f"{number}.o"


def archive_name(number: int) -> str:
    """Return the name of the archive that is made from a kept copy."""
    return f"{number}.a"


class _Writer:
    """Turns the items of a link command into words for an ahead-of-time link."""

    def __init__(self, job: LinkJob) -> None:
        self._link, self._inputs, self._keeper = job.link, job.inputs, Keeper(job)
        self._directories = library_directories(job.inputs.items, job.link)
        self.records: dict[str, range] = {}  # path of a deferred object → numbers of its records
        self.blobs: list[CompileCommand] = []
        self.archives: dict[str, int] = {}  # path of an archive → its number
        self.copies: list[str] = []
        self._real_archives = frozenset(job.inputs.archives)

    def words(self, index: int, item: Item) -> list[str]:
        """Return the words that stand for `item`, the one at `index`."""
        held = [path for path in files_of(item, self._link, self._directories) if path in self._inputs.records]
        if not held:
            return [self._keeper.copy(item.words[0])] if index in self._inputs.kept else self._keeper.item(item)
        if item.role is not Role.LINKER:
            return self._real(held[0], is_empty=index in self._inputs.deferred)
        words = []
        for part in (item.value or "").split(","):
            path = self._link.call.path(part)
            real = self._real(path, is_empty=False) if path in held else [self._keeper.linker_part(part)]
            words += [word for value in real for word in ("-Xlinker", value)]
        return words

    def _real(self, path: str, *, is_empty: bool) -> list[str]:
        """Return the words for an input file that holds records. A file that `is_empty` apart from
        them is left out."""
        if path in self._real_archives:
            if path not in self.archives:
                self.archives[path] = len(self.archives)
                self.copies.append(self._keeper.copy(path).rpartition("/")[2])
            return [f"{state.HERE}/{FOLDER}/{archive_name(self.archives[path])}"]
        if path not in self.records:
            new = self._inputs.records[path]
            self.records[path] = range(len(self.blobs), len(self.blobs) + len(new))
            self.blobs += new
        own = [] if is_empty else [self._keeper.copy(path)]
        return own + [f"{state.HERE}/{FOLDER}/{object_name(n)}" for n in self.records[path]]


def read_link(job: LinkJob, eager: Mapping[str, str], kept: tuple[str, ...]) -> AheadLink:
    """Return the link with nothing lazy. Copies archives with deferred members."""
    link, inputs, writer = job.link, job.inputs, _Writer(job)
    words = [job.places.real(w) for w in link.call.argv[: link.call.prefix]]
    words += [f"{state.HERE}/deferred.o"] if inputs.stays else []  # as in the lazy link
    for index, item in enumerate(inputs.items):
        words += writer.words(index, item) if item.role is not Role.OUTPUT else []
    words = [*outputs.without(words), "-o", f"{state.HERE}/{FOLDER}/{Path(link.output).name}"]
    blobs, copies = tuple(writer.blobs), tuple(writer.copies)
    libraries = tuple(path for _, path in inputs.libraries)
    return AheadLink(tuple(words), link.call.cwd, blobs, copies, eager, inputs.shared, libraries, kept)


def save(ahead: AheadLink, directory: Path) -> None:
    """Write `ahead` into the library's directory."""
    raw = {
        "version": AHEAD_VERSION,
        "words": ahead.words,
        "cwd": ahead.cwd,
        "records": [
            (b.source, b.output, b.call.tool, b.call.toolchain, b.call.cwd, b.call.argv, b.call.prefix, b.call.env)
            for b in ahead.records
        ],
        "archives": ahead.archives,
        "eager": dict(ahead.eager),
        "shared": ahead.shared,
        "libraries": ahead.libraries,
        "kept": ahead.kept,
    }
    write_atomic(directory / "ahead.json", json.dumps(raw).encode())


def load(directory: Path) -> AheadLink:
    """Read what `save` wrote. Raises `FormatError`."""
    path = directory / "ahead.json"
    again = "run `lazyck build full` again, so that the library is linked again"
    try:
        raw = json.loads(path.read_bytes())
        if raw["version"] != AHEAD_VERSION:
            raise FormatError(f"{path}: written by another lazyck", again)
        records = [
            CompileCommand(
                Invocation(tool, toolchain, cwd, tuple(argv), prefix, tuple((a, b) for a, b in env)), source, output
            )
            for source, output, tool, toolchain, cwd, argv, prefix, env in raw["records"]
        ]
        words, archives, libraries, kept = (tuple(raw[name]) for name in ("words", "archives", "libraries", "kept"))
        return AheadLink(words, raw["cwd"], tuple(records), archives, raw["eager"], raw["shared"], libraries, kept)
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise FormatError(f"{path}: what the check needs of the link is missing ({e})", again) from e
