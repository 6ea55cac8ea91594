"""Reads what an intercepted link takes: deferred objects, real ones, archives, libraries."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

from lazyck.abi import Role
from lazyck.postbuild.objects import elf, linker_script
from lazyck.toolchains import answers, linker_options, lookup
from lazyck.toolchains.command import CompileCommand, LinkCommand
from lazyck.toolchains.options import CommandItem, OptionTable

_SOURCE = re.compile(r"\.(c|C|cc|CC|cp|cpp|CPP|cxx|c\+\+|cu|hip|ii?|mm?|s|S|sx|f|F|f90|F90|ll|ptx)")
T = TypeVar("T")


@dataclass(frozen=True)
class LinkInputs:
    """Holds a link command taken apart.

    `objects` and `archives` are the paths of all real ones, including those that options name
    (`-lx`, `-Wl,--whole-archive,libx.a`). `blobs` are those of deferred objects and of deferred
    members of archives, in link order. Each compile occurs once, however often its object is named.
    `stays` are the files by which some blobs stay in the link: archives, joined objects, and
    objects among the words of options. `optional` are the blobs that the link takes only if
    something needs them. Each is a member of an archive by itself, and stands nowhere else. There
    are none if the link takes inputs that lazyck cannot read, such as a source.
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
    first: int  # the index of the first item that brings blobs
    optional: frozenset[CompileCommand] = frozenset()
    whole: frozenset[str] = frozenset()  # the archives of which the link takes all members
    wanted: frozenset[str] = frozenset()  # the symbols that its options ask for
    linker: tuple[CommandItem, ...] = ()  # the options for the linker itself
    scripts: tuple[str, ...] = ()  # linker scripts that do more than name inputs
    found: Mapping[int, str] = field(default_factory=dict)  # the archives that `-l` found, by the item's index
    by_scripts: frozenset[str] = frozenset()  # the files that linker scripts name


@dataclass
class _Span:
    """Tracks how the linker takes the inputs that follow the words for the linker read so far."""

    whole: bool = False  # all members of archives
    is_lib: bool = False  # objects as if they were members of one archive
    static: bool = False  # archives rather than shared libraries
    outer: list[tuple[bool, bool]] = field(default_factory=list)

    def read(self, word: str) -> None:
        option = word.lstrip("-") if word.startswith("-") else ""
        if option in ("whole-archive", "no-whole-archive"):
            self.whole = option == "whole-archive"
        elif option in ("start-lib", "end-lib"):
            self.is_lib = option == "start-lib"
        elif option in _STATIC or option in _SHARED:
            self.static = option in _STATIC
        elif option == "push-state":
            self.outer.append((self.whole, self.static))
        elif option == "pop-state" and self.outer:
            self.whole, self.static = self.outer.pop()

    def is_choosy(self, kind: str) -> bool:
        """Return whether the linker takes only what it needs of a file of that kind."""
        return not self.whole if kind == "archive" else self.is_lib


_STATIC, _SHARED = frozenset({"Bstatic", "dn", "non_shared"}), frozenset({"Bdynamic", "dy", "call_shared"})
_SPANS = frozenset({"whole-archive", "no-whole-archive", "start-lib", "end-lib", "push-state", "pop-state"}).union(
    _STATIC, _SHARED
)


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
    items = tuple(apart_from_names(given))
    directories = library_directories(items, link)
    files: list[_File] = []
    span = _Span()
    for i, item in enumerate(items):
        span.read(item.value or "" if item.role is Role.LINKER else item.name)
        named = files_of(item, link, directories, is_static=span.static)
        for path in _followed(named, link, directories):
            kind = elf.kind(path)
            image = elf.open_image(path) if kind == "object" else None
            records, alone = elf.deferred_records(path, image) if kind in ("archive", "object") else ([], frozenset())
            optional = alone if span.is_choosy(kind) else frozenset()
            is_deferred = image is not None and image.is_deferred
            files.append(_File(i, path, path in named, kind, is_deferred, span.whole, tuple(records), optional))
    inputs = [f for f in files if f.is_named and not items[f.index].name]
    # Among the words of an option a deferred object may stay, since it is empty.
    deferred = frozenset(f.index for f in inputs if f.is_deferred)
    holding = [f for f in files if f.records]
    firm = {blob for f in holding for blob in f.records if blob not in f.optional}
    is_readable = not any(f.kind in ("executable", "other") for f in inputs)
    return LinkInputs(
        items=items,
        shared=any(item.name in ("-shared", "--shared") for item in items),
        soname=soname_of(given),
        deferred=deferred,
        kept=frozenset(f.index for f in inputs if f.kind in ("archive", "object", "bitcode")) - deferred,
        objects=_unique(f.path for f in files if f.kind in ("object", "bitcode") and not f.is_deferred),
        archives=_unique(f.path for f in files if f.kind == "archive"),
        libraries=tuple((f.index, f.path) for f in files if f.kind == "shared"),
        blobs=_unique(blob for f in holding for blob in f.records),
        machine=next((elf.machine(f.path) for f in holding), ""),
        stays=_unique(f.path for f in holding if f.index not in deferred),
        records={f.path: f.records for f in holding},
        first=next((f.index for f in holding), len(items)),
        optional=frozenset().union(*(f.optional for f in holding if is_readable)) - firm,
        whole=frozenset(f.path for f in files if f.kind == "archive" and f.is_whole),
        wanted=frozenset(wanted_by(given)),
        linker=tuple(linker_options.split(linker_words(given))),
        found={
            f.index: f.path for f in files if f.is_named and f.kind == "archive" and items[f.index].role is Role.LIBRARY
        },
        by_scripts=frozenset(f.path for f in files if not f.is_named),
        scripts=_unique(f.path for f in files if f.kind == "other" and _is_script(items[f.index], f.path)),
    )


def _unique(found: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))


# These linker options take a name or an output as their value, even if there is a file of that
# name. An earlier build's `libx.so`, for example, lies where the next one says
# `-Wl,-soname,libx.so`.
_NAMED = (
    "-soname --soname -h -e --entry -u --undefined -init -fini -z -m -y --trace-symbol --defsym -Map --Map "
    "--dependency-file --out-implib"
)
_NAMES = frozenset(_NAMED.split())


def apart_from_names(items: Iterable[CommandItem]) -> Iterator[CommandItem]:
    """Yield `items`, in which words for the linker that cannot be inputs lose that role. Words that
    say how the linker takes the inputs behind them stand alone."""
    waiting = False
    for item in items:
        if item.role is not Role.LINKER or not item.value:
            yield item
            continue
        groups: list[tuple[str, list[str]]] = []
        for part in item.value.split(","):
            is_name = waiting or part.partition("=")[0] in _NAMES
            waiting = not waiting and part in _NAMES
            what = "name" if is_name else part if part.lstrip("-") in _SPANS else "input"
            if not groups or groups[-1][0] != what:
                groups.append((what, []))
            groups[-1][1].append(part)
        for what, parts in groups:
            value = ",".join(parts)
            yield CommandItem(
                tuple(item.with_value(value)), item.name, value, Role.FLAG if what == "name" else item.role
            )


def files_of(item: CommandItem, link: LinkCommand, directories: Sequence[str], *, is_static: bool = False) -> list[str]:
    """Return the files that an item of a link command names, as absolute paths. If it `is_static`,
    the linker takes archives only."""
    value = item.value or ""
    if item.role is Role.LIBRARY:
        found = find_library(value, directories, is_static=is_static)
        return [found] if found else []
    if item.name and item.role is not Role.LINKER:
        return []
    names = value.split(",") if item.role is Role.LINKER else [value]
    libraries = (find_library(n[2:], directories, is_static=is_static) for n in names if n.startswith("-l"))
    paths = [link.call.path(name) for name in names if name and not name.startswith("-")]
    return [path for path in (*paths, *libraries) if path and os.path.isfile(path)]


def has_c_blobs(inputs: LinkInputs) -> bool:
    """Return whether a driver of C compiles some blobs, and so links them with fewer libraries."""
    return any(lookup.is_c_driver(blob.call.tool) for blob in inputs.blobs)


def library_directories(items: Sequence[CommandItem], link: LinkCommand) -> list[str]:
    """Return where `-l` looks: directories of -L, of LIBRARY_PATH, and the compiler's own."""
    given = [item.value for item in items if item.role is Role.LIBRARY_DIR and item.value]
    to_linker = linker_options.split(linker_words(items))
    given += [i.value for i in to_linker if i.name.lstrip("-") in ("L", "library-path") and i.value]
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
    if item.role is Role.LIBRARY:
        return True
    return not item.name and not _SOURCE.fullmatch(os.path.splitext(path)[1])


def find_library(name: str, directories: Sequence[str], *, is_static: bool = False) -> str | None:
    """Return the file that `-l name` takes from `directories`, as the linker looks for it."""
    wanted = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"][is_static:]
    candidates = (os.path.join(d, w) for d in directories for w in wanted)
    return next((c for c in candidates if os.path.isfile(c)), None)


def linker_words(items: Sequence[CommandItem]) -> list[str]:
    """Return the words that a driver hands to the linker as they are."""
    words: list[str] = []
    for item in items:
        if item.role is Role.LINKER:
            words += (item.value or "").split(",")
        elif item.name.startswith("-soname") or item.name in ("-z", "-T"):
            words += item.words
    return words


_ASKS = ("-u", "--undefined", "--require-defined", "-e", "--entry", "-init", "-fini")


def wanted_by(items: Iterable[CommandItem]) -> Iterator[str]:
    """Yield the symbols that the options of a link command ask for, and always `main`."""
    yield "main"
    words = [w for i in items for w in ((i.value or "").split(",") if i.role is Role.LINKER else i.words)]
    for word, following in pairwise([*words, ""]):
        if word in _ASKS:
            yield following
        elif word.startswith(tuple(f"{option}=" for option in _ASKS)):
            yield word.partition("=")[2]
        elif word.startswith("-u"):
            yield word[2:]


def soname_of(items: Sequence[CommandItem]) -> str:
    """Return the soname that a link command sets, or an empty string."""
    it = iter(linker_words(items))
    for word in it:
        if word in ("-soname", "--soname", "-h"):
            return next(it, "")
        for lead in ("-soname=", "--soname=", "-h"):
            if word.startswith(lead) and not word.startswith("-hash"):
                return word[len(lead) :]
    return ""


def library_name(output: str) -> str:
    """Return the name by which a library is known: its file name up to `.so`."""
    base = os.path.basename(output)
    return base.partition(".so")[0] or base
