"""Compares a lazy library with the one linked ahead of time. The decisions are pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lazyck import abi
from lazyck.check.blob_objects import BlobObject, Defined
from lazyck.postbuild.cxx.mangled import is_private
from lazyck.postbuild.objects.elf import Symbol
from lazyck.postbuild.objects.offered import Offered
from lazyck.postbuild.objects.reveal import private_name

# What can differ, each with a phrase that users read. These make a check fail.
FAILING = {
    "lost": "exported ahead of time, but missing in the lazy library: programs that use it neither link nor load",
    "internal": "exported ahead of time, but internal to the lazy library: programs that use it do not load",
    "undefined": "defined ahead of time, but undefined in the lazy library, which needs it from another one",
    "unreachable": "needed by a lazy blob, which finds it ahead of time only: its first call is an error",
    "added": "exported by the lazy library only: it can take the place of another library's symbol",
    "runtime": "exported by lazyck's runtime: it can take the place of another library's symbol",
    "version": "of another symbol version: programs that were linked with the other library do not find it",
    "type": "of another type",
    "visibility": "of another visibility: a program's own definition of it takes effect in one library only",
    "binding": "of another binding: weak, global or unique",
    "size": "data of another size: a program linked with one library has no room for the other's",
    "alias": "one function under two names ahead of time, but two functions lazily: their addresses differ",
    "copies": "one variable ahead of time, but several lazily: what one part writes, another does not see",
    "hollow": "a stub whose function no blob defines: calling it is an error",
    "versioned": "given a version by its source, which the library of a lazy blob cannot have: calling it fails",
    "start-up": (
        "run or used when the ahead-of-time library is loaded, but lazily when a function of its file is called"
    ),
    "needed-lost": "needed ahead of time only (DT_NEEDED): its symbols and start-up code may be missing",
    "needed-added": "needed by the lazy library only (DT_NEEDED): it must be present wherever that is used",
    "needed-order": "searched in another order: which library's symbol wins may differ",
    "entry": "different in the dynamic section",
    "code": "run when the ahead-of-time library is loaded or unloaded, but not with the lazy one",
    "flag": "a flag for the loader that only one of the two libraries has",
    "version-name": "the name of a symbol version that only one of the two libraries defines",
}
# These are by design and only counted: `docs/check.md` says why no program can tell, or
# `docs/limits.md` says what it costs.
BY_DESIGN = {
    "own": "an entry point of lazyck's own, see lazyck.h",
    "program": "exported by the lazy program only, since its blobs must find it",
    "handle": "the handle of a kernel that only its own blob launches",
    "device": "the compiler's own mark of a file with device code, which is in its blob",
    "vague": "emitted by every file that uses it (inline, instantiated implicitly): nobody lacks it",
    "vague-state": (
        "a variable that every file which uses it has (inline, instantiated implicitly): a program that uses it has "
        "its own"
    ),
    "stub-binding": "weak ahead of time, but its stub is global: the loader does not tell them apart",
    "ifunc": "a function that chooses its code at load time (IFUNC), its stub at the first call",
    "needed-kept": (
        "named by the link, and kept for lazy blobs that may need it; ahead of time nothing does (DT_NEEDED)"
    ),
    "member-kept": "of an archive's member that a lazy blob may need; ahead of time nothing does",
    "needed-runtime": "needed by lazyck's runtime, which is in C++ (DT_NEEDED)",
}

# Symbols that linkers define, and export if a needed library mentions them.
_BY_LINKER = frozenset({"_end", "_edata", "__bss_start", "_fini", "_init"})
_OF_DEVICE_CODE = re.compile(r"__hip_(cuid|gpubin_handle|fatbin)_")
_VARIANT = re.compile(r"(CI|C|D)[0-5]")  # variants of one constructor or destructor
_RUNTIME_NEEDS = re.compile(r"(libstdc\+\+|libgcc_s|libc|libm|libdl|libpthread)\.so\.\d+$")
_LOADER = re.compile(r"ld-linux\b|ld-musl\b|ld64\.so")  # the loader is in every process
_OWN = re.compile(rf"lazyck_|_Z(T[ISV])?N?K?6lazyck|{re.escape(abi.PRIVATE_LEAD)}")


@dataclass(frozen=True)
class Difference:
    """One way in which the lazy library differs. `symbol` is mangled (several are separated by
    blanks), or names another thing that differs. `source` is the blob behind it, or an empty
    string. `ahead` and `lazily` describe the two libraries."""

    kind: str
    symbol: str
    source: str = ""
    ahead: str = ""
    lazily: str = ""

    @property
    def fails(self) -> bool:
        return self.kind in FAILING

    @property
    def name(self) -> str:
        return self.symbol.partition("@")[0]


@dataclass(frozen=True)
class Lazy:
    """The lazy library: what it offers, which of its symbols are stubs, and the `tag` with which
    its private names are made. `kept`
    are libraries, and symbols of archives, that only its blobs may need. It is a program unless it
    is `shared`."""

    offered: Offered
    stubs: frozenset[str]
    tag: str = ""
    kept: frozenset[str] = frozenset()
    shared: bool = True

    def reaches(self, symbol: str) -> bool:
        """Return whether blobs find a symbol of the library, by its own or a private name."""
        return symbol in self.offered.exported or private_name(symbol, self.tag) in self.offered.exported


@dataclass(frozen=True)
class Comparison:
    """The differences, and the number of symbols of each sort in the blobs' objects: `stub`, `real`
    (defined by the lazy library itself), `local` (not visible outside ahead of time either),
    `different`."""

    differences: tuple[Difference, ...]
    symbols: Mapping[str, int]


def compare(
    ahead: Offered, lazy: Lazy, blobs: Sequence[BlobObject], *, whole: bool, vague: frozenset[str] = frozenset()
) -> Comparison:
    """Return the differences. Unless the library was made `whole`, only what compiled blobs define
    is compared. `vague` are symbols that every file which uses them defines anew."""
    defined: dict[str, Defined] = {}
    source_of: dict[str, str] = {}
    for blob in blobs:
        for s in blob.symbols:
            if s.name not in defined or (defined[s.name].binding != "GLOBAL" and s.binding == "GLOBAL"):
                defined[s.name], source_of[s.name] = s, blob.source
    handles = frozenset().union(*(b.handles for b in blobs))
    facts = _Facts(ahead, lazy, defined, handles, vague, whole)
    found = [*facts.exports(), *facts.added(), *_aliases(ahead, lazy, blobs), *_copies(lazy, blobs)]
    own = [b for b in blobs if not b.eager]
    # Versions that a blob's own assembler text gives to its symbols.
    versioned = ((s.name, b.source) for b in own for s in b.symbols if "@" in s.name)
    found += [Difference("versioned", *where, "a version (.symver)", "a blob") for where in versioned]
    needed = ((name, b.source) for b in own for name in sorted(b.needs & (ahead.names - ahead.undefined)))
    # A name of C may come from an archive that each link takes by itself, such as libc's `atexit`.
    apart = ((name, source) for name, source in needed if name.startswith("_Z") and not lazy.reaches(name))
    found += [Difference("unreachable", *where, "defined by the library", "out of reach") for where in apart]
    found += [Difference("start-up", " ".join(sorted(b.start_up)), b.source) for b in own if b.start_up]
    if whole:
        found += [*facts.undefined(), *_dynamic(ahead, lazy)]
    if whole and all(b.is_readable for b in blobs):
        hollow = sorted(lazy.stubs - defined.keys())
        found += [Difference("hollow", name, "", "not defined by any blob", "a stub") for name in hollow]
    named = tuple(replace(d, source=d.source or source_of.get(d.name, "")) for d in dict.fromkeys(found))
    unlike = {name for d in named if d.fails for name in d.name.split(" ")}
    counts = Counter(_sort(s, lazy, unlike) for b in blobs for s in b.symbols)
    return Comparison(named, dict(counts))


def _sort(s: Defined, lazy: Lazy, unlike: set[str]) -> str:
    if s.name in unlike:
        return "different"
    if s.name in lazy.stubs:
        return "stub"
    return "real" if s.name in lazy.offered.names else "local"


@dataclass(frozen=True)
class _Facts:
    """Both libraries, and the definitions in the blobs' objects."""

    ahead: Offered
    lazy: Lazy
    defined: Mapping[str, Defined]
    handles: frozenset[str]
    vague: frozenset[str]
    whole: bool

    def exports(self) -> Iterator[Difference]:
        lazily = self.lazy.offered.exported
        for key, export in self.ahead.exports.items():
            if not self.whole and export.name not in self.defined:
                continue
            if key in self.lazy.offered.exports:
                yield from self._same_name(key, export, self.lazy.offered.exports[key])
            elif export.name in lazily:
                version = key.removeprefix(export.name) or "none"
                yield Difference("version", key, "", version, ", ".join(sorted(lazily[export.name])))
            else:
                yield Difference(self._how_lost(export.name), key, "", described(export), "not exported")

    def _how_lost(self, name: str) -> str:
        if name in self.vague and name not in self.lazy.offered.undefined - self.lazy.offered.taken:
            return "vague-state" if self.defined[name].is_state else "vague"
        if name in self.lazy.offered.names:
            return "internal"
        if name in self.lazy.offered.undefined:
            return "undefined"
        if _OF_DEVICE_CODE.match(name):
            return "device"
        return "handle" if name in self.handles else "lost"

    def _same_name(self, key: str, ahead: Symbol, lazily: Symbol) -> Iterator[Difference]:
        is_stub = lazily.name in self.lazy.stubs
        if ahead.type != lazily.type:
            kind = "ifunc" if is_stub and ahead.type == "IFUNC" else "type"
            yield Difference(kind, key, "", ahead.type, "FUNC (a stub)" if is_stub else lazily.type)
        if ahead.binding != lazily.binding:
            kind = "stub-binding" if is_stub and ahead.binding == "WEAK" else "binding"
            yield Difference(kind, key, "", ahead.binding, lazily.binding)
        if ahead.visibility != lazily.visibility:
            yield Difference("visibility", key, "", ahead.visibility, lazily.visibility)
        if ahead.size != lazily.size and ahead.type in ("OBJECT", "TLS"):
            yield Difference("size", key, "", f"{ahead.size} bytes", f"{lazily.size} bytes")

    def added(self) -> Iterator[Difference]:
        known = self.ahead.exported
        for key, export in self.lazy.offered.exports.items():
            if export.name in _BY_LINKER:
                continue
            if export.name in known:
                if key not in self.ahead.exports and self.whole:
                    version = key.removeprefix(export.name) or "none"
                    yield Difference("version", key, "", ", ".join(sorted(known[export.name])), version)
                continue
            of_blob = self.defined.get(export.name)
            if self.whole:
                is_runtime = of_blob is None and export.name not in self.lazy.stubs
                kind = "own" if _OWN.match(export.name) else "runtime" if is_runtime else "added"
                kind = "member-kept" if export.name in self.lazy.kept else kind
                kind = "device" if is_runtime and _OF_DEVICE_CODE.match(export.name) else kind
                # the name differs from one compile to the next
                kind = "handle" if is_private(export.name) else kind
                kind = kind if self.lazy.shared or kind == "own" else "program"
                yield Difference(kind, key, "", "not exported", described(export))

    def undefined(self) -> Iterator[Difference]:
        """Yield symbols that the lazy library lacks and the other has, if only for itself."""
        for name in sorted(self.lazy.offered.undefined & self.ahead.names - self.ahead.undefined):
            if name not in self.ahead.exported:
                yield Difference("undefined", name, "", "defined, for the library itself", "undefined")


def described(e: Symbol) -> str:
    types = {"FUNC": "function", "OBJECT": "data", "TLS": "thread-local data", "IFUNC": "function (IFUNC)"}
    size = f" of {e.size} bytes" if e.type in ("OBJECT", "TLS") else ""
    return f"{e.binding.lower()} {types.get(e.type, e.type)}{size}, {e.visibility}"


def _aliases(ahead: Offered, lazy: Lazy, blobs: Sequence[BlobObject]) -> Iterator[Difference]:
    """Yield functions of one blob that share an address ahead of time, but not lazily."""
    places = {e.name: (e.section, e.value) for e in lazy.offered.exports.values()}
    for blob in blobs:
        groups: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
        for s in blob.symbols:
            # the place of an IFUNC is that of its resolver
            if s.type == "FUNC" and s.size and s.name in ahead.exported and s.name in places:
                # a constructor has no address in C++, so its variants count as one
                groups[s.place].setdefault(_VARIANT.sub(r"\1", s.name), s.name)
        for names in groups.values():
            if len({places[name] for name in names.values()}) > 1:
                yield Difference("alias", " ".join(sorted(names.values())), blob.source, "one address", "two addresses")


def _copies(lazy: Lazy, blobs: Sequence[BlobObject]) -> Iterator[Difference]:
    """Yield variables that a lazy blob defines for itself while the library has a variable of that
    name, too, which it does not export.

    A variable that only blobs define is shared by all of them: the runtime loads a blob behind the
    others that have any.
    """
    holders: dict[str, list[str]] = defaultdict(list)
    for blob in blobs:
        for s in blob.symbols:
            if s.is_state and not s.is_hidden and not blob.eager and not s.name.startswith("_ZGV"):
                holders[s.name].append(blob.source)
    for name, sources in holders.items():
        if name in lazy.offered.names and not lazy.reaches(name):
            where = ", ".join(["the library", *sources][:4])
            yield Difference("copies", name, sources[0], "one variable", f"one in each of {where}")


def _dynamic(ahead: Offered, lazy: Lazy) -> Iterator[Difference]:
    lazily = lazy.offered
    for name in ahead.needed:
        if name not in lazily.needed and not _LOADER.match(name):
            yield Difference("needed-lost", name)
    for name in lazily.needed:
        if name not in ahead.needed:
            is_kept = "needed-kept" if name in lazy.kept else "needed-added"
            yield Difference("needed-runtime" if _RUNTIME_NEEDS.match(name) else is_kept, name)
    common = [[n for n in one.needed if n in other.needed] for one, other in ((ahead, lazily), (lazily, ahead))]
    if common[0] != common[1]:
        yield Difference("needed-order", "DT_NEEDED", "", " ".join(common[0]), " ".join(common[1]))
    for tag in sorted(ahead.entries.keys() | lazily.entries.keys()):
        before, after = ahead.entries.get(tag), lazily.entries.get(tag)
        if before != after:
            yield Difference("entry", f"DT_{tag}", "", before or "none", after or "none")
    for tag in sorted(ahead.code - lazily.code):
        yield Difference("code", f"DT_{tag}")
    for one, kind in ((ahead.flags ^ lazily.flags, "flag"), (ahead.versions ^ lazily.versions, "version-name")):
        for name in sorted(one):
            in_ahead = name in ahead.flags or name in ahead.versions
            yield Difference(kind, name, "", "set" if in_ahead else "not set", "not set" if in_ahead else "set")
