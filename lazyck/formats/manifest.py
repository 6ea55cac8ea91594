"""The manifest of a lazy library: everything that it knows of its blobs.

Manifest (little endian; section `.lazyck.manifest` of a lazy library, and the file `manifest` of a
bundle). The C++ runtime reads it in place, so that all tables have rows of fixed size:

    manifest := "LAZYCKMF" header blob* symbol* recipe* u32* strings    u32*: the list pool
    S        := u32, offset of a NUL-terminated string in the string pool
    L        := u32, index of a list in the list pool: count:u32, then that many S
    P        := L, of pairs: the first one's two parts, the second one's, ...

`lazyck.abi` lists the columns of the header and of the rows. In the header, `blobs`, `symbols`,
`recipes` and `words` are counts (of u32s in the list pool for `words`), and offsets (`*_at`) count
from the magic. What is not plain about the other columns:

    header  digest          of all that the build decides of the keys of entries, by which an
                            installed pack says what it was made for
            machine         a name of `machines.py`; if empty, the machine of the reader
            private_names   the private names that blobs use and that no stub has
            private_tag     what private names are made with, besides the symbol
            contents        SHA-256 of the bundle's `contents`, which lists the digest of each file
                            (see bundle.py); if empty, the bundle was laid out by hand and is taken
                            as it is
            eager           each source, with the reasons why it is eager (see postbuild/reasons.py)
    symbol  its number is that of its slot; a blob's symbols are adjacent

Words of `compile`, `link`, `arch_flags` and `env` may hold the placeholders of `lazyck.abi`.

`kernel` is empty for a blob with host code. Rows of device code come after these blobs. Their
`kernel` is the name of the host unit, a tab, and a line of the host unit's table, which begins with
the symbol of a kernel, or with `*` for all kernels (units/src/units.h). `units` is empty for what
is compiled whole. Otherwise it is a digest of everything that the key of a part contains besides
the blob's own digest, and the recipes are those of the host unit and of the device code.

History: version 1, the first. 2: machine. 3: private. 4: contents. 5: kernel. 6: units. 7: programs
and headers. 8: cpu. 9: file_name in place of the soname, private_tag. 10: archs of a recipe.
"""

import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lazyck import abi
from lazyck.errors import FormatError

T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """How the blobs of one group are compiled at run time, in words with placeholders (see
    `lazyck.abi`).

    `compile` turns `PH_SOURCE` into the object `PH_OUTPUT`, and `link` turns `PH_INPUT` into the
    `.so` `PH_OUTPUT`. `home` is the toolchain's home that the build found, and `home_env` names the
    variables that may give another one where that does not exist. Both steps run with the
    variables in `env`, a few of lazyck's own, and no others, so that a job's own environment
    cannot leak into an entry whose key does not cover it.

    `toolchain_id` names the compiler. It was made of `programs`, the compiler's first (see
    toolchains/identity.py), and is made again where a blob is compiled. `headers` is the SHA-256 of
    the list of the system's and the compiler's headers that blobs of the toolchain read (see
    bundle.py). Without `programs`, the bundle was laid out by hand, and any compiler is taken.

    `cpu` are the features that the code needs of a CPU beyond what the library itself needs (see
    runtime/src/platform/cpu.h). A CPU that lacks one gets what the next recipe makes instead.

    `archs` are what the sources' own commands put into their fat binaries: `80`, `90a`, and
    `80-virtual` for PTX. The runtime compiles what the GPU runtime would take of these.
    """

    toolchain: str
    toolchain_id: str
    home: str
    home_env: tuple[str, ...]
    compile: tuple[str, ...]
    link: tuple[str, ...]
    arch_flags: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    programs: tuple[str, ...] = ()
    headers: str = ""
    cpu: str = ""
    archs: tuple[str, ...] = ()

    @property
    def code_archs(self) -> tuple[str, ...]:
        """The archs of `archs` with machine code, or those of PTX if there are no others."""
        virtual = tuple(a.removesuffix(abi.ARCH_VIRTUAL) for a in self.archs if a.endswith(abi.ARCH_VIRTUAL))
        return tuple(a for a in self.archs if not a.endswith(abi.ARCH_VIRTUAL)) or virtual

    @property
    def compiler_words(self) -> tuple[str, ...]:
        """Return the compiler and its options, whichever program is given them."""
        by_unit = self.compile[0].startswith(f"{abi.PH_ROOT}/")
        words = self.compile[self.compile.index("--") + 1 :] if by_unit else self.compile
        return words[: words.index(abi.PH_SOURCE) - 1]  # without `-c` and what follows


@dataclass(frozen=True)
class UnitRecipes:
    """How the parts of a blob are compiled: a `digest` that tells them from the parts that other
    compilers make, and the indices of the recipes for its host unit and for its device code."""

    digest: str
    host: int
    device: int


@dataclass(frozen=True)
class BlobRecord:
    """One lazily compiled blob. `name` is unique, and `source` relative to the bundle root.
    `digest` covers all that its compilation reads. `symbols` go through slots. `kernel` says whose
    device code it is (see the grammar), and is empty for a blob with host code. `units` is set if a
    first call need not compile the whole blob."""

    name: str
    source: str
    recipe: int
    digest: str
    symbols: tuple[str, ...]
    kernel: str = ""
    units: UnitRecipes | None = None

    @property
    def is_whole(self) -> bool:
        return self.kernel.partition("\t")[2].startswith("*")

    @property
    def is_kernel(self) -> bool:
        return bool(self.kernel) and not self.is_whole

    @property
    def unit(self) -> str:
        """The name of the device code's host unit, or an empty string for a blob with host code."""
        return self.kernel.partition("\t")[0]


@dataclass(frozen=True)
class Manifest:
    library: str
    file_name: str  # as it was linked; empty for an executable
    cache_name: str
    root: str
    archs: tuple[str, ...]  # those that the whole build was asked for (--gpu-archs)
    recipes: tuple[Recipe, ...]
    blobs: tuple[BlobRecord, ...]
    eager: tuple[tuple[str, str], ...] = ()
    creator: str = ""
    digest: str = ""
    machine: str = ""
    private_names: tuple[str, ...] = ()
    private_tag: str = ""
    contents: str = ""

    def recipes_from(self, number: int) -> tuple[Recipe, ...]:
        """Return a recipe, and those that CPUs take for it that lack what it needs."""
        end = next(i for i, r in enumerate(self.recipes) if i >= number and not r.cpu)
        return self.recipes[number : end + 1]

    @property
    def shelf(self) -> str:
        """The name under which a cache keeps the entries of the library's blobs."""
        return self.library if self.file_name else abi.PROGRAMS

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
# Where a manifest has the offset of `root` in its string pool. Offset 0 is that of an empty string.
ROOT_AT = len(abi.MANIFEST_MAGIC) + 4 * list(abi.MANIFEST_HEADER).index("root")


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

    def row(self, columns: Mapping[str, str], values: Mapping[str, Any]) -> Iterator[int]:
        """Yield the numbers that stand for `values` in these columns."""
        for name, kind in columns.items():
            value = values[name]
            if kind == "S":
                yield self.string(value)
            elif kind == "u32":
                yield value
            else:
                yield self.list(value if kind == "L" else [word for pair in value for word in pair])


def encode(manifest: Manifest) -> bytes:
    pool = _Pool()
    pool.string("")
    tables: dict[str, list[int]] = {"blobs": [], "symbols": [], "recipes": [], "lists": pool.words}
    first = 0
    for i, b in enumerate(manifest.blobs):
        units = b.units or UnitRecipes("", 0, 0)
        parts = {"units": units.digest, "host_recipe": units.host, "device_recipe": units.device}
        own = {**vars(b), "first_symbol": first, "symbol_count": len(b.symbols), **parts}
        tables["blobs"] += pool.row(abi.MANIFEST_BLOB, own)
        first += len(b.symbols)
        for s in b.symbols:
            tables["symbols"] += pool.row(abi.MANIFEST_SYMBOL, {"name": s, "blob": i})
    for r in manifest.recipes:
        tables["recipes"] += pool.row(abi.MANIFEST_RECIPE, vars(r))
    texts = {name: kind for name, kind in abi.MANIFEST_HEADER.items() if kind != "u32"}
    header = dict(zip(texts, pool.row(texts, vars(manifest)), strict=True))
    header |= {"version": abi.MANIFEST_VERSION, "blobs": len(manifest.blobs), "symbols": first}
    header |= {"recipes": len(manifest.recipes), "words": len(pool.words), "strings_size": len(pool.strings)}
    at = len(abi.MANIFEST_MAGIC) + 4 * len(abi.MANIFEST_HEADER)
    for name, table in tables.items():
        header[f"{name}_at"] = at
        at += 4 * len(table)
    header |= {"strings_at": at, "size": at + len(pool.strings)}
    numbers = [header[name] for name in abi.MANIFEST_HEADER]
    for table in tables.values():
        numbers += table
    return abi.MANIFEST_MAGIC + struct.pack(f"<{len(numbers)}I", *numbers) + pool.strings


def decode(data: bytes, where: str) -> Manifest:
    """Decode a manifest. `where` names its file in errors. Raises `FormatError`."""
    return _decode_by(_decode, data, where)


def decode_root(data: bytes, where: str) -> str:
    """Decode only the bundle's place, in constant time. Raises as `decode` does."""
    return _decode_by(_decode_root, data, where)


def _decode_by(decoder: Callable[[bytes, Mapping[str, int]], T], data: bytes, where: str) -> T:
    """Apply `decoder` to a manifest and its header, if that is one of this version, and whole."""
    at = len(abi.MANIFEST_MAGIC)
    if not data.startswith(abi.MANIFEST_MAGIC) or len(data) < at + 8:
        raise FormatError(f"{where}: not a lazyck manifest", "give a lazy library, or the `manifest` of its bundle")
    version, size = struct.unpack_from("<2I", data, at)
    if version != abi.MANIFEST_VERSION:
        raise FormatError(
            f"{where}: manifest version {version}, this lazyck reads version {abi.MANIFEST_VERSION}",
            "use the lazyck that built it, or build it again",
        )
    if size > len(data) or size < at + 4 * len(abi.MANIFEST_HEADER):
        raise FormatError(f"{where}: cut short ({len(data)} of {size} bytes)", "copy or build it again")
    try:
        return decoder(data, {name: number for name, (number,) in _columns(abi.MANIFEST_HEADER, data, at, 1).items()})
    except (struct.error, IndexError, ValueError) as e:
        raise FormatError(f"{where}: damaged manifest ({e})", "copy or build it again") from e


def _columns(names: Collection[str], data: bytes, at: int, count: int) -> dict[str, Sequence[int]]:
    """Return the columns of `count` rows at `at`. Raises `struct.error` if `data` ends before."""
    numbers = struct.unpack_from(f"<{count * len(names)}I", data, at)
    return {name: numbers[i :: len(names)] for i, name in enumerate(names)}


def _decode_root(data: bytes, header: Mapping[str, int]) -> str:
    at = header["strings_at"] + header["root"]
    return os.fsdecode(data[at : data.index(b"\0", at)])


def _decode(data: bytes, header: Mapping[str, int]) -> Manifest:
    word_count, recipe_count = header["words"], header["recipes"]
    strings = data[header["strings_at"] : header["strings_at"] + header["strings_size"]]
    words = struct.unpack_from(f"<{word_count}I", data, header["lists_at"])
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
        return tuple(map(text, words[at + 1 : at + 1 + words[at]]))

    def pairs(at: int) -> tuple[tuple[str, str], ...]:
        flat = texts(at)
        return tuple(zip(flat[::2], flat[1::2], strict=True))

    readers: dict[str, Callable[[int], Any]] = {"S": text, "L": texts, "P": pairs, "u32": int}

    def table(name: str, kinds: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
        numbers = _columns(kinds, data, header[f"{name}_at"], header[name])
        return zip(*(map(readers[kind], numbers[column]) for column, kind in kinds.items()), strict=True)

    recipes = tuple(
        Recipe(**dict(zip(abi.MANIFEST_RECIPE, row, strict=True))) for row in table("recipes", abi.MANIFEST_RECIPE)
    )
    if recipes and recipes[-1].cpu:
        raise ValueError("the last recipe is not for every CPU")
    names = _columns(abi.MANIFEST_SYMBOL, data, header["symbols_at"], header["symbols"])["name"]
    blobs = []
    end = 0
    for i, row in enumerate(table("blobs", abi.MANIFEST_BLOB)):
        name, source, recipe, digest, first, count, kernel, units, host, device = row
        if first != end:
            raise ValueError(f"the symbols of blob {i} do not follow those of the one before")
        end += count
        if end > len(names):
            raise ValueError(f"blob {i} has symbols that the manifest lacks")
        if max(recipe, host, device) >= recipe_count:
            raise ValueError(f"blob {i} names recipe {max(recipe, host, device)} of {recipe_count}")
        made = UnitRecipes(units, host, device) if units else None
        symbols = tuple(map(text, names[first:end]))
        blobs.append(BlobRecord(name, source, recipe, digest, symbols, kernel, made))
    own = {name: readers[kind](header[name]) for name, kind in abi.MANIFEST_HEADER.items() if kind != "u32"}
    return Manifest(**own, recipes=recipes, blobs=tuple(blobs))
