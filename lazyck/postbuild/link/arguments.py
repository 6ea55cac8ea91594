"""Makes the words of the final link: the project's own command without its deferred objects, with
stubs and runtime. Every input that `quick` will need again is kept as a copy.

The project's own link is kept too, in `ahead.json`, so that the library can be linked ahead of time
later. In its words, each deferred object is written as the object to be compiled from its record.
An archive with deferred members is written as an archive to be made again from its kept copy.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lazyck import abi
from lazyck.abi import Role
from lazyck.errors import FormatError
from lazyck.files import encode, write_atomic
from lazyck.postbuild import state
from lazyck.postbuild.facts import Demands
from lazyck.postbuild.link import version_script
from lazyck.postbuild.link.relink import RUNTIME
from lazyck.postbuild.link_context import LinkContext
from lazyck.postbuild.link_rules import is_own_program, wrap_names
from lazyck.postbuild.objects import elf
from lazyck.postbuild.objects.inputs import LinkInputs, files_of, has_c_blobs, is_library, library_directories
from lazyck.postbuild.objects.reveal import offer
from lazyck.toolchains import linker_options, lookup
from lazyck.toolchains.command import CompileCommand, Invocation
from lazyck.toolchains.linker_options import LinkerItem
from lazyck.toolchains.options import CommandItem


def link_words(
    context: LinkContext,
    eager_objects: Mapping[int, Sequence[str]],
    demands: Demands | None,
    wrapped: Sequence[str] = (),
) -> tuple[list[str], dict[str, str]]:
    """Return the command that links the library into the job's directory, with stubs, and with the
    runtime and what lazy blobs demand if there are any. Return also the project's names of the
    inputs of which the command names kept copies. Calls of `wrapped` go through wrappers.

    `eager_objects` are file names in its `eager`, by the index of the item that they stand for: the
    order of objects is that of their initializers. Objects and archives are copied into `objects`.
    """
    link, inputs, directory = context.link, context.inputs, context.directory
    shutil.rmtree(directory / "objects", ignore_errors=True)
    keeper = PortableArguments(context, demands)
    output = f"{state.HERE}/{os.path.basename(link.output)}"
    mine = [f"{state.HERE}/stubs.o", *([RUNTIME] if demands else [])]
    mine += [f"{state.HERE}/deferred.o"] if inputs.stays else []
    words = [context.paths.real(w) for w in link.call.argv[: link.call.prefix]]
    for i, item in enumerate(inputs.items):
        if i == inputs.first:
            words += mine
        # Those of an archive stand before it, since they may need other members of it.
        words += [keeper.copy(str(directory / "eager" / name)) for name in eager_objects.get(i, ())]
        if i in inputs.deferred:
            continue
        own = keeper.archive(inputs.found[i], item) if i in inputs.found else keeper.item(i, item)
        if demands and _brings_kept(inputs, i, demands):
            words += _keeping(f"-l{item.value}" if is_library(item) else own[0])
        else:
            words += _to_linker(*own) if isinstance(item, LinkerItem) else own
    words += ["-o", output]
    if demands is not None:
        # `-Xlinker` is the one spelling that all drivers know.
        if is_own_program(inputs):
            listed = " ".join(f"{name};" for name in (*sorted(wrap_names(inputs)), _PASSING))
            write_atomic(directory / "exports", encode(f"{{ {listed} }};\n"))
            words += _to_linker(f"--dynamic-list={state.HERE}/exports")
        elif not inputs.shared:
            words += _to_linker("--export-dynamic")
        others = {"-nostdlib++", "-stdlib=libc++"}  # with these, a C++ driver does not link libstdc++
        if lookup.is_c_driver(link.call.tool) or others.intersection(words):
            words.append("-lstdc++")
        words += ["-ldl", "-lpthread", *_for_blobs(inputs, keeper, demands)]
        if has_c_blobs(inputs) and not lookup.is_c_driver(link.call.tool):
            # Drivers of C++ add libm at the end, where the linker drops it if only blobs need it.
            words += _keeping("-lm")
    return [*words, *_to_linker(*(f"--wrap={name}" for name in wrapped))], keeper.originals


def _to_linker(*options: str) -> list[str]:
    return [word for option in options for word in ("-Xlinker", option)]


def _for_blobs(inputs: LinkInputs, keeper: "PortableArguments", demands: Demands) -> list[str]:
    """Return words for archives' members and shared libraries that only blobs need."""
    words = _to_linker(*(word for symbol in sorted(demands.pulled) for word in ("-u", symbol)))
    named = {path for i, path in inputs.libraries if path not in inputs.by_scripts and _brings_kept(inputs, i, demands)}
    left = [keeper.paths.real(path) for path in demands.kept if path not in named]
    return words + (_keeping(*left) if left else [])


def _brings_kept(inputs: LinkInputs, index: int, demands: Demands) -> bool:
    """Return whether an item brings a library that the link must not drop. It is kept where it
    stands first, since mold asks only there how. libm is kept in any case: every machine has it,
    and blobs in C get it only from here."""
    item = inputs.items[index]
    is_kept = any(i == index and path in demands.kept for i, path in inputs.libraries)
    return is_kept or (is_library(item) and item.value == "m")


def _keeping(*libraries: str) -> list[str]:
    """Return words for the linker alone: drivers reorder what they understand themselves."""
    return _to_linker("--push-state", "--no-as-needed", *libraries, "--pop-state")


# What links must export, in spite of version scripts.
_PASSING = f"{abi.PRIVATE_LEAD}*"


class PortableArguments:
    """Makes words independent of the build: inputs become copies, other paths absolute, shim homes
    real ones. Copies for a lazy library offer what its blobs demand, if any."""

    def __init__(self, context: LinkContext, demands: Demands | None = None) -> None:
        self._link, self.paths = context.link, context.paths
        self._offered = demands.offered if demands and demands.has_blobs else None
        self.originals: dict[str, str] = {}  # the word of a copy → the name that the project's command has for it
        self._objects = context.directory / "objects"
        self._objects.mkdir(parents=True, exist_ok=True)
        inputs = self._inputs = context.inputs
        self._scripts = {self._link.call.path(name) for name in linker_options.values(inputs.linker, "version-script")}
        self._excluded = self._hidden_archives(inputs) if self._offered else frozenset[str]()

    @staticmethod
    def _hidden_archives(inputs: LinkInputs) -> frozenset[str]:
        """Return the names of archives that the link excludes, if their copies can hide all that
        they have by themselves. `ALL` stands for every archive."""
        excluded = linker_options.excluded(inputs.linker)
        # An archive that the driver adds would have to stay excluded, too.
        adds_archives = "ALL" in excluded and any(item.name.startswith("-static") for item in inputs.items)
        is_possible = excluded and not adds_archives and not any(map(elf.has_lto, inputs.archives))
        return excluded if is_possible else frozenset()

    def copy(self, name: str) -> str:
        """Return the word that names a kept copy of the file `name`."""
        path = self._link.call.path(name)
        target = self._objects / self._copy_name(path)
        if not target.exists() and elf.is_thin(path):
            elf.write_archive(target, elf.members(path))
        elif not target.exists():
            shutil.copy2(path, target)
        shown = target.with_name(f"shown-{target.name}")
        word = f"{state.HERE}/objects/{(shown if self._offers(path, target, shown) else target).name}"
        self.originals[word] = name
        return word

    @staticmethod
    def _copy_name(path: str) -> str:
        return f"{hashlib.sha256(encode(path)).hexdigest()[:8]}-{os.path.basename(path)}"

    def _offers(self, path: str, target: Path, shown: Path) -> bool:
        """Make `shown` from the copy `target` of the file at `path` if it offers blobs anything."""
        if self._offered is None:
            return False
        if path in self._scripts:
            text = target.read_bytes().decode("utf-8", "surrogateescape")
            write_atomic(shown, encode(version_script.opened(text, _PASSING)))
            return True
        if elf.kind(target) not in ("object", "archive"):
            return False
        is_excluded = elf.kind(target) == "archive" and not self._excluded.isdisjoint({"ALL", os.path.basename(path)})
        if not self._offered and not is_excluded:
            return False
        return offer(target, shown, self._offered, is_excluded=is_excluded)

    def archive(self, path: str, item: CommandItem) -> list[str]:
        """Return the words for an `item` that is `-l` of the archive at `path`."""
        word = self.copy(path)
        return [word] if word.startswith(f"{state.HERE}/objects/shown-") else list(item.words)

    def item(self, index: int, item: CommandItem) -> list[str]:
        """Return the words of an item of the link that stays. For a linker's, these are the
        linker's words. There are none for the outputs."""
        value = item.value
        if index in self._inputs.kept:
            return [self.copy(value or "")]
        if item.role is Role.OUTPUT or (isinstance(item, LinkerItem) and item.writes):
            return []
        if value is None:
            return list(item.words)
        if isinstance(item, LinkerItem) and item.option == "exclude-libs":
            return self._exclusion(item)
        path = self._link.call.path(value)
        if isinstance(item, LinkerItem) and item.name and item.reads and os.path.isfile(path):
            return item.with_value(self.copy(value))
        is_directory = item.role is Role.LIBRARY_DIR or item.name.lstrip("-") in ("L", "library-path", "rpath-link")
        # An item without a name is a library, a script, or nothing that exists. The linker keeps
        # the path of a library that has no soname.
        is_library = not item.name and os.path.isfile(path) and elf.kind(path) == "shared"
        if is_library and not elf.read_dependency(path).soname:
            return list(item.words)
        if is_directory or value.startswith("/") or (not item.name and os.path.exists(path)):
            return item.with_value(self.paths.real(path))
        return list(item.words)

    def _exclusion(self, item: LinkerItem) -> list[str]:
        """Return the words that exclude the copies of archives, too. There are none if these copies
        hide all by themselves."""
        if self._excluded:
            return []
        named = linker_options.excluded([item])
        copies = (self._copy_name(path) for path in self._inputs.archives if os.path.basename(path) in named)
        return [*item.words, *(f"--{item.option}={copy}" for copy in copies)]


AHEAD_VERSION = 5
FOLDER = "ahead"  # in the library's directory: what is compiled and linked ahead of time


@dataclass(frozen=True)
class AheadLink:
    words: tuple[str, ...]  # the whole command; its output is `HERE/ahead/<file name>`
    records: tuple[CompileCommand, ...]  # record N, of a deferred object, is compiled into `ahead/N.o`
    archives: tuple[str, ...]  # file names of kept copies in `objects`: from number N, `ahead/N.a` is to be made
    eager: Mapping[str, str]  # the outputs of the blobs that are compiled eagerly, and the reasons
    shared: bool  # whether the output is a library
    libraries: tuple[str, ...] = ()  # the paths of the shared libraries that the link names
    kept: tuple[str, ...] = ()  # what the lazy link has for its blobs' sake: libraries' sonames, symbols of archives


class _Writer:
    """Turns the items of a link command into words for an ahead-of-time link."""

    def __init__(self, context: LinkContext) -> None:
        self._link, self._inputs, self._keeper = context.link, context.inputs, PortableArguments(context)
        self._directories = library_directories(context.inputs.items, context.link)
        self.records: dict[str, range] = {}  # path of a deferred object → numbers of its records
        self.blobs: list[CompileCommand] = []
        self.archives: dict[str, int] = {}  # path of an archive → its number
        self.copies: list[str] = []
        self._real_archives = frozenset(context.inputs.archives)

    def words(self, index: int, item: CommandItem) -> list[str]:
        held = [path for path in files_of(item, self._link, self._directories) if path in self._inputs.records]
        own = self._real(held[0], is_empty=index in self._inputs.deferred) if held else self._keeper.item(index, item)
        return _to_linker(*own) if isinstance(item, LinkerItem) else own

    def _real(self, path: str, *, is_empty: bool) -> list[str]:
        """Return the words for a file with records. One that `is_empty` otherwise is left out."""
        if path in self._real_archives:
            if path not in self.archives:
                self.archives[path] = len(self.archives)
                self.copies.append(self._keeper.copy(path).rpartition("/")[2])
            return [f"{state.HERE}/{FOLDER}/{self.archives[path]}.a"]
        if path not in self.records:
            new = self._inputs.records[path]
            self.records[path] = range(len(self.blobs), len(self.blobs) + len(new))
            self.blobs += new
        own = [] if is_empty else [self._keeper.copy(path)]
        return own + [f"{state.HERE}/{FOLDER}/{n}.o" for n in self.records[path]]


def ahead_link(context: LinkContext, eager: Mapping[str, str], kept: tuple[str, ...]) -> AheadLink:
    """Return the link with nothing lazy. Copies archives with deferred members."""
    link, inputs, writer = context.link, context.inputs, _Writer(context)
    words = [context.paths.real(w) for w in link.call.argv[: link.call.prefix]]
    words += [f"{state.HERE}/deferred.o"] if inputs.stays else []  # as in the lazy link
    for index, item in enumerate(inputs.items):
        words += writer.words(index, item)
    words += ["-o", f"{state.HERE}/{FOLDER}/{Path(link.output).name}"]
    blobs, copies = tuple(writer.blobs), tuple(writer.copies)
    libraries = tuple(path for _, path in inputs.libraries)
    return AheadLink(tuple(words), blobs, copies, eager, inputs.shared, libraries, kept)


def save_ahead(ahead: AheadLink, directory: Path) -> None:
    raw = {"version": AHEAD_VERSION, **vars(ahead)}
    write_atomic(directory / "ahead.json", json.dumps(raw, default=vars).encode())


def load_ahead(directory: Path) -> AheadLink:
    """Read what `save_ahead` wrote. Raises `FormatError`."""
    path = directory / "ahead.json"
    again = "run `lazyck build full` again, so that the library is linked again"
    try:
        raw = state.tuples(json.loads(path.read_bytes()))
        if raw.pop("version") != AHEAD_VERSION:
            raise FormatError(f"{path}: written by another lazyck", again)
        records = tuple(CompileCommand(Invocation(**r.pop("call")), **r) for r in raw.pop("records"))
        return AheadLink(records=records, **raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as e:
        raise FormatError(f"{path}: what the check needs of the link is missing ({e})", again) from e
