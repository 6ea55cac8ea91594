"""The two records of lazyck: what the shim saw (`decode_records`), and a lazy library's manifest.

Record (little endian; in the section `.lazyck.record` of a deferred object, and in the shim's link
requests):

    record  := "LZRC" version:u32 size:u32 kind:u8[4] fields     size: of the whole record
    kind    := "COMP" | "LINK"
    fields  := tool toolchain cwd source output prefix argv env    source is empty for a link
    argv    := count:u32 string*         env := count:u32 (string string)*         prefix := u32
    string  := length:u32 byte*          everything else of type string

A section may hold several records, one after the other, since `ld -r` concatenates them.

Manifest (little endian; section `.lazyck.manifest` of a lazy library, and the file `manifest` of a
bundle). The C++ runtime reads it in place, so that all tables have rows of fixed size:

    header  := "LAZYCKMF" version:u32 size:u32
               blobs:u32 symbols:u32 recipes:u32    row counts
               words:u32                            count of u32s in the list pool
               blobs_at:u32 symbols_at:u32 recipes_at:u32 lists_at:u32
               strings_at:u32 strings_size:u32
               library:S soname:S cache_name:S root:S archs:L eager:L creator:S
               digest:S         of all that the build decides of the keys of entries, by which an
                                installed pack says what it was made for
               machine:S        "x86_64" or "aarch64"; if empty, the machine of the reader
               private:L        names without a stub that blobs call by private names
               contents:S       SHA-256 of the bundle's `contents`, which lists the digest of each
                                file (see bundle.py); if empty, the bundle was laid out by hand
                                and is taken as it is
    blob    := name:S source:S recipe:u32 digest:S first_symbol:u32 symbol_count:u32 kernel:S
               units:S host_recipe:u32 device_recipe:u32
    symbol  := name:S blob:u32    row number = slot number; a blob's symbols are adjacent
    recipe  := toolchain:S toolchain_id:S home:S home_env:L compile:L link:L env:L arch_flags:L
               drop_env:L
    S       := u32, offset of a NUL-terminated string in the string pool
    L       := u32, index of a list in the list pool: count:u32, then that many S

Words of `compile`, `link`, `arch_flags` and `env` may hold the placeholders of `_lazyck.abi`. `env`
alternates name and value. `eager` alternates a source and the reasons why it is eager (see
postbuild/reasons.py). Offsets (`*_at`) count from the start of the header.

`kernel` is empty for a blob with host code. Rows of device code come after these blobs. Their
`kernel` is the name of the host unit, a tab, and a line of the host unit's table, which begins with
the symbol of a kernel, or with `*` for all kernels (units/src/units.h). `units` is empty for what
is compiled whole. Otherwise it is a digest of everything that the key of a part contains besides
the blob's own digest, and the recipes are those of the host unit and of the device code.

History: version 1, the first. 2: machine. 3: private. 4: contents. 5: kernel. 6: units.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from _lazyck import abi
from _lazyck.command import CompileCommand, Invocation, LinkCommand
from _lazyck.errors import FormatError

T = TypeVar("T")

# -- records of the shim ---------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes, at: int, end: int, where: str) -> None:
        self.data, self.at, self.end, self.where = data, at, end, where

    def take(self, size: int) -> bytes:
        if self.at + size > self.end:
            raise FormatError(f"{self.where}: a record of the shim is cut short", "run the build again from clean")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def string(self) -> str:
        return os.fsdecode(self.take(self.number()))


def decode_records(data: bytes, where: str) -> list[CompileCommand | LinkCommand]:
    """Decode the records in `data`. `where` names their file in errors. Raises `FormatError`."""
    found: list[CompileCommand | LinkCommand] = []
    at = 0
    while at < len(data):
        if data[at] == 0:  # `ld -r` pads between sections
            at += 1
            continue
        r = _Reader(data, at, len(data), where)
        if r.take(4) != abi.RECORD_MAGIC:
            raise FormatError(f"{where}: not a record of the lazyck shim", "run the build again from clean")
        version = r.number()
        if version != abi.RECORD_VERSION:
            raise FormatError(
                f"{where}: written by another lazyck (record version {version}, this one reads {abi.RECORD_VERSION})",
                "run the build again from clean",
            )
        size = r.number()
        r.end = min(len(data), at + size)
        kind = r.take(4)
        tool, toolchain, cwd, source, output = (r.string() for _ in range(5))
        prefix = r.number()
        argv = tuple(r.string() for _ in range(r.number()))
        env = tuple((r.string(), r.string()) for _ in range(r.number()))
        call = Invocation(tool, toolchain, cwd, argv, prefix, env)
        if kind == b"COMP":
            found.append(CompileCommand(call, source, output))
        elif kind == b"LINK":
            found.append(LinkCommand(call, output))
        else:
            raise FormatError(f"{where}: unknown kind of record {kind!r}")
        at += size
    return found


# -- the manifest of a lazy library ----------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """How the blobs of one group are compiled at run time, in words with placeholders (see
    `_lazyck.abi`).

    `compile` turns `PH_SOURCE` into the object `PH_OUTPUT`, and `link` turns `PH_INPUT` into the
    `.so` `PH_OUTPUT`. `home` is the toolchain's home that the build found, and `home_env` names the
    variables that may give another one where that does not exist. Both steps run without the
    variables in `drop_env` and with those in `env`. Flags in a job's own environment can then not
    leak into an entry whose key does not cover them.
    """

    toolchain: str
    toolchain_id: str
    home: str
    home_env: tuple[str, ...]
    compile: tuple[str, ...]
    link: tuple[str, ...]
    arch_flags: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    drop_env: tuple[str, ...] = ()

    @property
    def compiler_words(self) -> tuple[str, ...]:
        """Return the compiler and its options, whichever program is given them."""
        by_unit = self.compile[0].startswith(f"{abi.PH_ROOT}/")
        words = self.compile[self.compile.index("--") + 1 :] if by_unit else self.compile
        return words[: words.index(abi.PH_SOURCE) - 1]  # without `-c` and what follows


@dataclass(frozen=True)
class Units:
    """How the parts of a blob are compiled: a `digest` that tells them from the parts that other
    compilers make, and the indices of the recipes for its host unit and for its device code."""

    digest: str
    host: int
    device: int


@dataclass(frozen=True)
class BlobRecord:
    """One lazily compiled blob.

    `name` is unique, and `source` is relative to the bundle root. `recipe` is the index of its
    recipe. `digest` covers all that its compilation reads, in hexadecimal. `symbols` are those that
    go through slots. `kernel` says whose device code it is (see the grammar) and is an empty string
    for a blob with host code. `units` is set if a first call need not compile the whole blob.
    """

    name: str
    source: str
    recipe: int
    digest: str
    symbols: tuple[str, ...]
    kernel: str = ""
    units: Units | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the device code of a whole source."""
        return self.kernel.partition("\t")[2].startswith("*")

    @property
    def is_kernel(self) -> bool:
        """Whether it is the device code of one kernel."""
        return bool(self.kernel) and not self.is_whole

    @property
    def unit(self) -> str:
        """The name of the host unit to which the device code belongs. It is an empty string for a
        blob with host code."""
        return self.kernel.partition("\t")[0]


@dataclass(frozen=True)
class Manifest:
    """Everything that a lazy library knows of its blobs."""

    library: str
    soname: str
    cache_name: str
    root: str
    archs: tuple[str, ...]
    recipes: tuple[Recipe, ...]
    blobs: tuple[BlobRecord, ...]
    eager: tuple[tuple[str, str], ...] = ()
    creator: str = ""
    digest: str = ""
    machine: str = ""
    private: tuple[str, ...] = ()
    contents: str = ""

    @property
    def shelf(self) -> str:
        """The name under which a cache keeps the entries of the library's blobs."""
        return self.library if self.soname else abi.PROGRAMS

    @property
    def symbols(self) -> list[tuple[str, int]]:
        """Pairs (symbol, index of its blob) in the order of the slots."""
        return [(symbol, i) for i, blob in enumerate(self.blobs) for symbol in blob.symbols]

    @property
    def functions(self) -> list[str]:
        """The symbols that have stubs. They are those of blobs with host code, which come first."""
        return [symbol for blob in self.blobs if not blob.kernel for symbol in blob.symbols]


# A manifest may spell out this many characters, plus this many times the size of its file.
_MOST_TEXT = 1 << 20
_MOST_SHARING = 256

_HEADER = struct.Struct("<8s23I")
_BLOB = struct.Struct("<10I")
_SYMBOL = struct.Struct("<2I")
_RECIPE = struct.Struct("<9I")


@dataclass
class _Pool:
    strings: bytearray = field(default_factory=bytearray)
    offsets: dict[str, int] = field(default_factory=dict)
    words: list[int] = field(default_factory=list)
    lists: dict[tuple[str, ...], int] = field(default_factory=dict)

    def string(self, text: str) -> int:
        at = self.offsets.get(text)
        if at is None:
            raw = os.fsencode(text)
            if b"\0" in raw:
                raise FormatError(f"a NUL byte in {text!r} cannot be recorded")
            at = self.offsets[text] = len(self.strings)
            self.strings += raw + b"\0"
        return at

    def list(self, texts: Sequence[str]) -> int:
        key = tuple(texts)
        at = self.lists.get(key)
        if at is None:
            at = self.lists[key] = len(self.words)
            self.words += [len(key), *(self.string(t) for t in key)]
        return at


def _flat(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [word for pair in pairs for word in pair]


def encode(manifest: Manifest) -> bytes:
    """Encode the manifest in the bytes that `decode` and the runtime read."""
    pool = _Pool()
    pool.string("")
    blobs, symbols = bytearray(), bytearray()
    first = 0
    for i, b in enumerate(manifest.blobs):
        texts = pool.string(b.name), pool.string(b.source), pool.string(b.digest), pool.string(b.kernel)
        units = (pool.string(b.units.digest), b.units.host, b.units.device) if b.units else (pool.string(""), 0, 0)
        blobs += _BLOB.pack(*texts[:2], b.recipe, texts[2], first, len(b.symbols), texts[3], *units)
        first += len(b.symbols)
        for s in b.symbols:
            symbols += _SYMBOL.pack(pool.string(s), i)
    recipes = b"".join(
        _RECIPE.pack(
            pool.string(r.toolchain),
            pool.string(r.toolchain_id),
            pool.string(r.home),
            pool.list(r.home_env),
            pool.list(r.compile),
            pool.list(r.link),
            pool.list(_flat(r.env)),
            pool.list(r.arch_flags),
            pool.list(r.drop_env),
        )
        for r in manifest.recipes
    )
    names = [pool.string(t) for t in (manifest.library, manifest.soname, manifest.cache_name, manifest.root)]
    names += [pool.list(manifest.archs), pool.list(_flat(manifest.eager))]
    names += [pool.string(manifest.creator), pool.string(manifest.digest), pool.string(manifest.machine)]
    names += [pool.list(manifest.private), pool.string(manifest.contents)]
    lists = struct.pack(f"<{len(pool.words)}I", *pool.words)
    blobs_at = _HEADER.size
    symbols_at = blobs_at + len(blobs)
    recipes_at = symbols_at + len(symbols)
    lists_at = recipes_at + len(recipes)
    strings_at = lists_at + len(lists)
    header = _HEADER.pack(
        abi.MANIFEST_MAGIC,
        abi.MANIFEST_VERSION,
        strings_at + len(pool.strings),
        len(manifest.blobs),
        first,
        len(manifest.recipes),
        len(pool.words),
        blobs_at,
        symbols_at,
        recipes_at,
        lists_at,
        strings_at,
        len(pool.strings),
        *names,
    )
    return b"".join((header, blobs, symbols, recipes, lists, pool.strings))


def decode(data: bytes, where: str) -> Manifest:
    """Decode a manifest. `where` names its file in errors. Raises `FormatError` for anything
    else."""
    return _decode_by(_decode, data, where)


def decode_root(data: bytes, where: str) -> str:
    """Decode only the bundle's place, which costs the same for any number of blobs. Raises as
    `decode` does."""
    return _decode_by(_decode_root, data, where)


def _decode_by(decoder: Callable[[bytes], T], data: bytes, where: str) -> T:
    """Apply `decoder` if the header is a manifest's of this version, and whole."""
    if data[: len(abi.MANIFEST_MAGIC)] != abi.MANIFEST_MAGIC or len(data) < 16:
        raise FormatError(f"{where}: not a lazyck manifest", "give a lazy library, or the `manifest` of its bundle")
    version, size = struct.unpack_from("<2I", data, 8)
    if version != abi.MANIFEST_VERSION:
        raise FormatError(
            f"{where}: manifest version {version}, this lazyck reads version {abi.MANIFEST_VERSION}",
            "use the lazyck that built it, or build it again",
        )
    if size > len(data) or size < _HEADER.size:
        raise FormatError(f"{where}: cut short ({len(data)} of {size} bytes)", "copy or build it again")
    try:
        return decoder(data)
    except (struct.error, IndexError, ValueError) as e:
        raise FormatError(f"{where}: damaged manifest ({e})", "copy or build it again") from e


def _decode_root(data: bytes) -> str:
    h = _HEADER.unpack_from(data)
    at = h[11] + h[16]
    return os.fsdecode(data[at : data.index(b"\0", at)])


def _decode(data: bytes) -> Manifest:
    h = _HEADER.unpack_from(data)
    (blob_count, symbol_count, recipe_count, word_count) = h[3:7]
    (blobs_at, symbols_at, recipes_at, lists_at, strings_at, strings_size) = h[7:13]
    strings = data[strings_at : strings_at + strings_size]
    words = struct.unpack_from(f"<{word_count}I", data, lists_at)
    # Rows may share lists and strings, so that a small file could spell out terabytes.
    left = _MOST_TEXT + _MOST_SHARING * len(data)

    def text(at: int) -> str:
        nonlocal left
        end = strings.index(b"\0", at)
        left -= end - at + 8  # an empty string costs memory too
        if left < 0:
            raise ValueError("it repeats itself without end")
        return os.fsdecode(strings[at:end])

    def texts(at: int) -> tuple[str, ...]:
        if words[at] > word_count - at - 1:
            raise ValueError("a list has no end")
        return tuple(text(w) for w in words[at + 1 : at + 1 + words[at]])

    def pairs(at: int) -> tuple[tuple[str, str], ...]:
        flat = texts(at)
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    recipes = []
    for i in range(recipe_count):
        r = _RECIPE.unpack_from(data, recipes_at + i * _RECIPE.size)
        recipes.append(
            Recipe(
                toolchain=text(r[0]),
                toolchain_id=text(r[1]),
                home=text(r[2]),
                home_env=texts(r[3]),
                compile=texts(r[4]),
                link=texts(r[5]),
                env=pairs(r[6]),
                arch_flags=texts(r[7]),
                drop_env=texts(r[8]),
            )
        )
    blobs = []
    first = 0
    for i in range(blob_count):
        b = _BLOB.unpack_from(data, blobs_at + i * _BLOB.size)
        if b[4] != first:
            raise ValueError(f"the symbols of blob {i} do not follow those of the one before")
        first += b[5]
        if first > symbol_count:
            raise ValueError(f"blob {i} has symbols that the manifest lacks")
        rows = _SYMBOL.iter_unpack(data[symbols_at + b[4] * _SYMBOL.size : symbols_at + (b[4] + b[5]) * _SYMBOL.size])
        for recipe in (b[2], b[8], b[9]):
            if recipe >= recipe_count:
                raise ValueError(f"blob {i} names recipe {recipe} of {recipe_count}")
        units = Units(made_by, b[8], b[9]) if (made_by := text(b[7])) else None
        own = tuple(text(s) for s, _ in rows)
        blobs.append(BlobRecord(text(b[0]), text(b[1]), b[2], text(b[3]), own, text(b[6]), units))
    return Manifest(
        library=text(h[13]),
        soname=text(h[14]),
        cache_name=text(h[15]),
        root=text(h[16]),
        archs=texts(h[17]),
        eager=pairs(h[18]),
        creator=text(h[19]),
        digest=text(h[20]),
        machine=text(h[21]),
        private=texts(h[22]),
        contents=text(h[23]),
        recipes=tuple(recipes),
        blobs=tuple(blobs),
    )
