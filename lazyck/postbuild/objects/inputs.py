"""Reads what an intercepted link takes: deferred objects, real ones, archives, libraries."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeVar

from lazyck.abi import Role
from lazyck.postbuild.objects import elf, linker_script
from lazyck.toolchains import answers, linker_options, lookup
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.linker_options import LinkerItem
from lazyck.toolchains.options import CommandItem, OptionTable

_SOURCE = re.compile(r"\.(c|C|cc|CC|cp|cpp|CPP|cxx|c\+\+|cu|hip|ii?|mm?|s|S|sx|f|F|f90|F90|ll|ptx)")
T = TypeVar("T")


@dataclass(frozen=True)
class LinkInputs:
    """Holds a link command taken apart.

    `objects` and `archives` are the paths of all real ones, including those that options name
    (`-lx`, `-Wl,--whole-archive,libx.a`). `blobs` are those of deferred objects and of deferred
    members of archives, in link order. Each compile occurs once, however often its object is named.
    `stays` are the files by which some blobs stay in the link: archives and joined objects.
    `optional` are the blobs that the link takes only if something needs them. Each is a member of
    an archive by itself, and stands nowhere else. There are none if the link takes inputs that
    lazyck cannot read.
    """

    items: tuple[CommandItem, ...]  # options and inputs
    shared: bool
    soname: str
    deferred: frozenset[int]  # the indices of those inputs that are deferred objects
    kept: frozenset[int]  # the indices of those inputs that are other objects or archives
    objects: tuple[str, ...]
    archives: tuple[str, ...]
    libraries: tuple[tuple[int, str], ...]  # the shared ones, each with the index of the item that names it
    blobs: tuple[CompileCommand, ...]
    machine: str  # of the blobs
    stays: tuple[str, ...]
    records: Mapping[str, tuple[CompileCommand, ...]]  # the blobs of each file that holds any, by its path
    brought: Mapping[CompileCommand, int]  # the blobs, each with the index of the first item that brings it
    optional: frozenset[CompileCommand] = frozenset()
    scanned: tuple[tuple[str, ...], ...] = ()  # archives and libraries in order; those of a group are scanned together
    dropped: Mapping[str, bool | None] = field(
        default_factory=dict
    )  # libraries → whether only if needed, if it says so
    whole: frozenset[str] = frozenset()  # the archives of which the link takes all members
    wanted: frozenset[str] = frozenset()  # the symbols that its options ask for
    linker: tuple[LinkerItem, ...] = ()  # those of `items` that are for the linker itself
    scripts: tuple[str, ...] = ()  # linker scripts that do more than name inputs
    found: Mapping[int, str] = field(default_factory=dict)  # the archives that `-l` found, by the item's index
    by_scripts: frozenset[str] = frozenset()  # the files that linker scripts name

    @cached_property
    def has_lto(self) -> bool:
        """Return whether some of the objects, or of the archives' members, are LTO objects."""
        return any(map(elf.has_lto, (*self.objects, *self.archives)))

    @property
    def linker_name(self) -> str:
        """Return which linker the driver is to start, `bfd` if the command does not say."""
        named = [word for item in self.items for word in item.words if word.startswith("-fuse-ld=")]
        name = os.path.basename(named[-1].partition("=")[2] if named else "bfd").removeprefix("ld.")
        return "bfd" if name in ("", "ld") else name

    @property
    def first(self) -> int:
        """Return the index of the first item that brings blobs."""
        return min(self.brought.values(), default=len(self.items))


@dataclass
class _Span:
    """Tracks how the linker takes the inputs that follow the options read so far."""

    whole: bool = False  # all members of archives
    is_lib: bool = False  # objects as if they were members of one archive
    static: bool = False  # archives rather than shared libraries
    as_needed: bool | None = None  # libraries only if something before them needs them; the driver may say so, too
    groups: int = 0  # how many have begun
    group: int = 0  # the one in which archives are scanned again and again, or 0
    outer: list[tuple[bool, bool, bool | None]] = field(default_factory=list)

    def read(self, item: CommandItem) -> None:
        option = item.name.lstrip("-")
        if option in ("whole-archive", "no-whole-archive"):
            self.whole = option == "whole-archive"
        elif option in ("start-lib", "end-lib"):
            self.is_lib = option == "start-lib"
        elif option in ("as-needed", "no-as-needed"):
            self.as_needed = option == "as-needed"
        elif option in ("start-group", "(", "end-group", ")"):
            is_begun = option in ("start-group", "(")
            self.groups += is_begun
            self.group = self.groups if is_begun else 0
        elif option in _STATIC or option in _SHARED:
            self.static = option in _STATIC
        elif option == "push-state":
            self.outer.append((self.whole, self.static, self.as_needed))
        elif option == "pop-state" and self.outer:
            self.whole, self.static, self.as_needed = self.outer.pop()

    def is_choosy(self, kind: str) -> bool:
        """Return whether the linker takes only what it needs of a file of that kind."""
        return not self.whole if kind == "archive" else self.is_lib


_STATIC, _SHARED = frozenset({"Bstatic", "dn", "non_shared"}), frozenset({"Bdynamic", "dy", "call_shared"})
_ASKING = ("u", "undefined", "require-defined", "e", "entry", "init", "fini")  # for a symbol


@dataclass(frozen=True)
class _File:
    index: int  # of the item that names it
    path: str
    is_named: bool  # by the item itself, rather than by a linker script
    kind: elf.Kind
    is_deferred: bool
    is_whole: bool  # whether the link takes all members of archives here
    records: tuple[CompileCommand, ...]
    optional: frozenset[CompileCommand]  # those of the records that are taken only if something needs them


def read_inputs(link: LinkCommand, table: OptionTable) -> LinkInputs:
    """Look at every input file of `link`. Raises `FormatError` for a damaged record."""
    given = table.split(link.call.argv[link.call.prefix :])
    items = tuple(linker_options.of_link(given, has_lists=link.call.tool == "nvcc"))
    linker = tuple(item for item in items if isinstance(item, LinkerItem))
    directories = library_directories(items, link)
    files: list[_File] = []
    scanned: list[list[str]] = []
    dropped: dict[str, bool | None] = {}
    span, group = _Span(), 0
    for i, item in enumerate(items):
        span.read(item)
        named = files_of(item, link, directories, is_static=span.static)
        for path in _followed(named, link, directories):
            kind = elf.kind(path)
            image = elf.open_image(path) if kind == "object" else None
            records, alone = elf.deferred_records(path, image) if kind in ("archive", "object") else ([], frozenset())
            optional = alone if span.is_choosy(kind) else frozenset()
            is_deferred = image is not None and image.is_deferred
            files.append(_File(i, path, path in named, kind, is_deferred, span.whole, tuple(records), optional))
            if not group or group != span.group:
                scanned.append([])
            scanned[-1].append(path)
            if kind == "shared":
                dropped.setdefault(path, span.as_needed)
            group = span.group
    inputs = [f for f in files if f.is_named and not items[f.index].name]
    deferred = frozenset(f.index for f in inputs if f.is_deferred)
    holding = [f for f in files if f.records]
    firm = {blob for f in holding for blob in f.records if blob not in f.optional}
    is_readable = not any(f.kind in ("executable", "other") for f in inputs)
    return LinkInputs(
        items=items,
        shared=any(item.name in ("-shared", "--shared") for item in items),
        soname=next(iter(linker_options.values(linker, "soname", "h")), ""),
        deferred=deferred,
        kept=frozenset(f.index for f in inputs if f.kind in ("archive", "object", "bitcode")) - deferred,
        objects=_unique(f.path for f in files if f.kind in ("object", "bitcode") and not f.is_deferred),
        archives=_unique(f.path for f in files if f.kind == "archive"),
        libraries=tuple((f.index, f.path) for f in files if f.kind == "shared"),
        blobs=_unique(blob for f in holding for blob in f.records),
        machine=next((elf.machine(f.path) for f in holding), ""),
        stays=_unique(f.path for f in holding if f.index not in deferred),
        records={f.path: f.records for f in holding},
        brought={blob: f.index for f in reversed(holding) for blob in f.records},
        optional=frozenset().union(*(f.optional for f in holding if is_readable)) - firm,
        scanned=tuple(map(tuple, scanned)),
        dropped=dropped,
        whole=frozenset(f.path for f in files if f.kind == "archive" and f.is_whole),
        wanted=frozenset({"main", *linker_options.values(linker, *_ASKING)}),
        linker=linker,
        found={f.index: f.path for f in files if f.is_named and f.kind == "archive" and is_library(items[f.index])},
        by_scripts=frozenset(f.path for f in files if not f.is_named),
        scripts=_unique(f.path for f in files if f.kind == "other" and _is_script(items[f.index], f.path)),
    )


def _unique(found: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))


def files_of(item: CommandItem, link: LinkCommand, directories: Sequence[str], *, is_static: bool = False) -> list[str]:
    """Return the files that an item of a link command names as inputs, as absolute paths. If it
    `is_static`, the linker takes archives only."""
    if is_library(item):
        found = find_library(item.value or "", directories, is_static=is_static)
        return [found] if found else []
    path = link.call.path(item.value) if item.value and not item.name else ""
    return [path] if os.path.isfile(path) else []


def is_library(item: CommandItem) -> bool:
    """Return whether the item is `-l`, the driver's or the linker's."""
    return item.role is Role.LIBRARY or (isinstance(item, LinkerItem) and item.option in ("l", "library"))


def has_c_blobs(inputs: LinkInputs) -> bool:
    """Return whether a driver of C compiles some blobs, and so links them with fewer libraries."""
    return any(lookup.is_c_driver(blob.call.tool) for blob in inputs.blobs)


def standard_libraries(driver: Sequence[str]) -> list[str]:
    """Return the paths of the C and C++ libraries that `driver` links."""
    names = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1")
    found = (find_library(f":{name}", _own_directories(tuple(driver))) for name in names)
    return [path for path in found if path]


def library_directories(items: Sequence[CommandItem], link: LinkCommand) -> list[str]:
    """Return where `-l` looks: directories of -L, of LIBRARY_PATH, and the compiler's own."""
    given = [item.value for item in items if item.role is Role.LIBRARY_DIR and item.value]
    given += linker_options.values((i for i in items if isinstance(i, LinkerItem)), "L", "library-path")
    given += filter(None, dict(link.call.env).get("LIBRARY_PATH", "").split(":"))
    return [*map(link.call.path, given), *_own_directories(link.call.argv[: link.call.prefix])]


@lru_cache
def _own_directories(driver: tuple[str, ...]) -> tuple[str, ...]:
    """Return where a compiler has the linker look by itself, if it says so. nvcc does not."""
    _, shown = answers.ask(driver, ("-print-search-dirs",))
    listed = next((line.partition("=")[2] for line in shown.splitlines() if line.startswith("libraries:")), "")
    return tuple(dict.fromkeys(os.path.realpath(path) for path in listed.split(":") if path))


def _followed(paths: Iterable[str], link: LinkCommand, directories: Sequence[str]) -> list[str]:
    """Return `paths`, with what a linker script names in place of the script."""
    found: list[str] = []
    todo, seen = list(paths), set[str]()
    while todo:
        path = todo.pop(0)
        if path in seen:
            continue
        seen.add(path)
        script = linker_script.read(path) if elf.kind(path) == "other" else None
        if script is None:
            found.append(path)
            continue
        searched = [*script.directories, *directories]
        named = (_named_by(name, path, link, searched) for name in script.names)
        todo[:0] = [name for name in named if name]
    return found


def _named_by(name: str, script: str, link: LinkCommand, directories: Sequence[str]) -> str | None:
    """Return the file that a linker script means by `name`."""
    if name.startswith("-l"):
        return find_library(name[2:], directories)
    around = (link.call.path(name), os.path.join(os.path.dirname(script), name))
    candidates = (*around, *(os.path.join(d, name) for d in directories))
    return next((os.path.normpath(c) for c in candidates if os.path.isfile(c)), None)


def _is_script(item: CommandItem, path: str) -> bool:
    """Return whether a file that is no object is a linker script: a driver gives the linker what it
    cannot compile."""
    if isinstance(item, LinkerItem) or item.role is Role.LIBRARY:
        return True
    return not item.name and not is_source(path)


def is_source(path: str) -> bool:
    """Return whether a driver compiles a file of this name."""
    return _SOURCE.fullmatch(os.path.splitext(path)[1]) is not None


def find_library(name: str, directories: Sequence[str], *, is_static: bool = False) -> str | None:
    """Return the file that `-l name` takes from `directories`, as the linker looks for it."""
    wanted = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"][is_static:]
    candidates = (os.path.join(d, w) for d in directories for w in wanted)
    return next((c for c in candidates if os.path.isfile(c)), None)


def library_name(output: str) -> str:
    """Return the name by which a library is known: its file name up to `.so`."""
    base = os.path.basename(output)
    return base.partition(".so")[0] or base
