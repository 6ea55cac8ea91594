"""Tests the manifest and the shim's records: what is written can be read, and other bytes are
refused."""

import contextlib
import hashlib
import os
import struct
from dataclasses import replace

import pytest

from lazyck import abi
from lazyck.errors import FormatError
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, UnitRecipes, decode, decode_root, encode
from lazyck.formats.record import decode_records
from lazyck.toolchains.command import CompileCommand, Invocation, LinkCommand

ODD = 'a path with spaces/"quotes"/back\\slash/new\nline/\udcff'
RECIPE = Recipe(
    toolchain="rocm",
    toolchain_id="clang19-0123",
    home="/opt/rocm",
    home_env=("ROCM_PATH",),
    compile=("cc", abi.PH_ARCHS, f"-I{abi.PH_ROOT}/{ODD}", "-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT),
    link=("cc", abi.PH_INPUT),
    arch_flags=(f"--offload-arch={abi.PH_ARCH}",),
    env=(("NVCC_APPEND_FLAGS", "-lineinfo"),),
    archs=("gfx942", "gfx950"),
    programs=("cc", f"{abi.PH_TOOLCHAIN}/bin/lld"),
    headers="45" * 32,
)
MANIFEST = Manifest(
    library="libx",
    file_name="libx.so.1",
    cache_name="lazyck",
    root=ODD,
    archs=("gfx942", "gfx950"),
    recipes=(replace(RECIPE, cpu="0f"), RECIPE),
    blobs=(
        BlobRecord("one", ODD, 0, "ab" * 32, ("_Z1av", "_Z1bv")),
        BlobRecord("two", "libx/tree/two.cpp", 1, "cd" * 32, ("c_name",)),
    ),
    eager=(("three.cpp", "DATA\tx"),),
    creator="lazyck test",
    digest="ef",
)


def test_every_field_survives_with_odd_paths() -> None:
    assert decode(encode(MANIFEST), "here") == MANIFEST
    assert decode_root(encode(MANIFEST), "here") == MANIFEST.root


def test_slots_number_the_symbols_of_adjacent_blobs() -> None:
    assert MANIFEST.symbols == [("_Z1av", 0), ("_Z1bv", 0), ("c_name", 1)]


def test_a_manifest_cut_short_anywhere_is_refused_or_read_whole() -> None:
    data = encode(MANIFEST)
    for size in range(len(data)):
        with pytest.raises(FormatError, match="here"):
            decode(data[:size], "here")
        with pytest.raises(FormatError, match="here"):
            decode_root(data[:size], "here")


def test_damaged_bytes_never_raise_anything_but_a_format_error() -> None:
    data = bytearray(encode(MANIFEST))
    for at in range(8, len(data)):
        damaged = bytes(data[:at]) + bytes([data[at] ^ 0xFF]) + bytes(data[at + 1 :])
        for decoder in (decode, decode_root):
            with contextlib.suppress(FormatError):
                decoder(damaged, "here")


def test_recipes_for_lesser_cpus_follow_and_the_last_is_for_all() -> None:
    assert MANIFEST.recipes_from(0) == MANIFEST.recipes and MANIFEST.recipes_from(1) == (RECIPE,)
    with pytest.raises(FormatError, match="not for every CPU"):
        decode(encode(replace(MANIFEST, recipes=MANIFEST.recipes[::-1])), "here")


def test_another_version_is_named() -> None:
    data = encode(MANIFEST)
    with pytest.raises(FormatError, match="version 99"):
        decode(data[:8] + (99).to_bytes(4, "little") + data[12:], "here")


def test_other_bytes_are_no_record() -> None:
    with pytest.raises(FormatError, match="not a record"):
        decode_records(b"hello, world, this is no record", "x.o")


def test_the_bytes_of_a_version_stay_as_they_are() -> None:
    # Libraries that were built with this version of the format are read for ever. Another layout
    # needs another version.
    full = replace(MANIFEST, machine="x86_64", private_names=("lazyck.1",), private_tag="t", contents="12" * 32)
    parts = replace(MANIFEST.blobs[0], kernel="one\t*\t\t\t", units=UnitRecipes("fe", 1, 0))
    data = encode(replace(full, blobs=(parts, *MANIFEST.blobs[1:])))
    assert (abi.MANIFEST_VERSION, hashlib.sha256(data).hexdigest()[:16]) == (10, "63a2686472f86181")


# -- a lazy library's manifest, field by field -----------------------------------------------------

FULL = replace(
    MANIFEST,
    blobs=(
        replace(MANIFEST.blobs[0], units=UnitRecipes("of units", 1, 0)),
        MANIFEST.blobs[1],
        BlobRecord("three", "libx/tree/one.cpp", 1, "ef" * 32, ("_Z6kernelv",), kernel="one\t_Z6kernelv 3"),
        BlobRecord("four", "libx/tree/one.cpp", 0, "01" * 32, ("image",), kernel="one\t* 4"),
    ),
    machine="aarch64",
    private_names=("lazyck.1", "lazyck.2"),
    private_tag="tag",
    contents="23" * 32,
)


def test_fields_of_later_versions_survive() -> None:
    assert decode(encode(FULL), "here") == FULL


def test_the_bytes_are_those_that_the_runtime_reads() -> None:
    """Each word is looked up where the grammar has it, as the runtime does, not by `decode`."""
    data = encode(FULL)
    assert data[:8] == b"LAZYCKMF"
    version, size, blobs, symbols, recipes, words = struct.unpack_from("<6I", data, 8)
    assert (version, size, blobs, symbols, recipes) == (abi.MANIFEST_VERSION, len(data), 4, 5, 2)
    blobs_at, symbols_at, recipes_at, lists_at, strings_at, strings_size = struct.unpack_from("<6I", data, 32)
    assert blobs_at == 104
    assert (symbols_at - blobs_at, recipes_at - symbols_at, lists_at - recipes_at) == (4 * 40, 5 * 8, 2 * 48)
    assert (strings_at - lists_at, strings_at + strings_size) == (4 * words, len(data))

    def string(at: int) -> str:
        begin = strings_at + struct.unpack_from("<I", data, at)[0]
        return os.fsdecode(data[begin : data.index(b"\0", begin)])

    def strings(at: int) -> list[str]:
        begin = lists_at + 4 * struct.unpack_from("<I", data, at)[0]
        return [string(begin + 4 + 4 * i) for i in range(struct.unpack_from("<I", data, begin)[0])]

    header = [string(56 + 4 * i) for i in (0, 1, 2, 3, 6, 7, 8, 10, 11)]
    assert header == ["libx", "libx.so.1", "lazyck", ODD, "lazyck test", "ef", "aarch64", "tag", "23" * 32]
    assert [strings(56 + 4 * i) for i in (4, 5, 9)] == [
        ["gfx942", "gfx950"],
        ["three.cpp", "DATA\tx"],
        ["lazyck.1", "lazyck.2"],
    ]
    first = blobs_at
    assert [string(first + at) for at in (0, 4, 12, 24, 28)] == ["one", ODD, "ab" * 32, "", "of units"]
    assert [struct.unpack_from("<I", data, first + at)[0] for at in (8, 16, 20, 32, 36)] == [0, 0, 2, 1, 0]
    assert string(first + 80 + 24) == "one\t_Z6kernelv 3"
    assert [struct.unpack_from("<I", data, first + 80 + at)[0] for at in (8, 16, 20)] == [1, 3, 1]
    rows = [(string(symbols_at + 8 * i), struct.unpack_from("<I", data, symbols_at + 8 * i + 4)[0]) for i in range(5)]
    assert rows == FULL.symbols
    recipe = recipes_at + 48
    assert [string(at + 40) for at in (recipes_at, recipe)] == ["0f", ""]
    texts = [RECIPE.toolchain, RECIPE.toolchain_id, RECIPE.home, RECIPE.headers]
    assert [string(recipe + at) for at in (0, 4, 8, 36)] == texts
    env = [word for pair in RECIPE.env for word in pair]
    lists = [RECIPE.home_env, RECIPE.compile, RECIPE.link, env, RECIPE.arch_flags]
    lists.append(RECIPE.programs)
    assert [strings(recipe + 12 + 4 * i) for i in range(6)] == [list(words) for words in lists]
    assert strings(recipe + 44) == list(RECIPE.archs)


def test_equal_strings_and_lists_are_written_once() -> None:
    assert len(encode(replace(MANIFEST, recipes=(*MANIFEST.recipes, RECIPE)))) == len(encode(MANIFEST)) + 48


def test_a_nul_byte_cannot_be_recorded() -> None:
    with pytest.raises(FormatError, match="NUL"):
        encode(replace(MANIFEST, creator="a\0b"))


def test_a_blob_says_whose_device_code_it_is() -> None:
    host, other, kernel, whole = FULL.blobs
    assert [b.is_whole for b in FULL.blobs] == [False, False, False, True]
    assert [b.is_kernel for b in FULL.blobs] == [False, False, True, False]
    assert (host.unit, other.unit, kernel.unit, whole.unit) == ("", "", "one", "one")
    assert FULL.functions == ["_Z1av", "_Z1bv", "c_name"]


def test_entries_of_programs_share_a_shelf() -> None:
    assert MANIFEST.shelf == "libx"
    assert replace(MANIFEST, file_name="").shelf == abi.PROGRAMS


def test_the_compiler_and_its_options_are_told_whichever_program_calls_it() -> None:
    words = ("cc", "-O2", "-c", abi.PH_SOURCE, "-o", abi.PH_OUTPUT)
    by_unit = (f"{abi.PH_ROOT}/libx/tree/.lazyck/unit", "kernel", abi.PH_KERNEL, abi.PH_SOURCE, "x.so", "--", *words)
    assert replace(RECIPE, compile=words).compiler_words == ("cc", "-O2")
    assert replace(RECIPE, compile=by_unit).compiler_words == ("cc", "-O2")


def damaged(column: int, value: int, row: int = 0) -> bytes:
    """Return the manifest with one word of a blob's row replaced."""
    data = bytearray(encode(FULL))
    struct.pack_into("<I", data, 104 + 40 * row + 4 * column, value)
    return bytes(data)


@pytest.mark.parametrize("column", [2, 8, 9])
def test_a_blob_with_a_recipe_that_is_not_there_is_refused(column: int) -> None:
    decode(damaged(column, 1), "here")
    with pytest.raises(FormatError, match="blob 0 names recipe 2 of 2"):
        decode(damaged(column, 2), "here")


@pytest.mark.parametrize(
    ("column", "value", "row", "message"),
    [
        (4, 1, 0, "blob 0 do not follow"),
        (4, 1, 1, "blob 1 do not follow"),
        (5, 3, 0, "blob 1 do not follow"),
        (5, 2, 3, "blob 3 has symbols that the manifest lacks"),
    ],
)
def test_symbols_that_are_not_adjacent_or_not_there_are_refused(
    column: int, value: int, row: int, message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        decode(damaged(column, value, row), "here")


def test_a_list_of_pairs_with_half_a_pair_is_refused() -> None:
    data = bytearray(encode(FULL))
    eager, archs = 56 + 4 * 5, 56 + 4 * 4
    assert decode(bytes(data[:eager] + data[archs : archs + 4] + data[eager + 4 :]), "here").eager == (FULL.archs,)
    data[eager : eager + 4] = data[recipe_column(3) : recipe_column(4)]  # `home_env` has one word
    with pytest.raises(FormatError, match="damaged"):
        decode(bytes(data), "here")


def recipe_column(column: int) -> int:
    """Return where a column of the first recipe is in the encoded `FULL`."""
    at: int = struct.unpack_from("<I", encode(FULL), 40)[0]
    return at + 4 * column


# -- records of the shim ---------------------------------------------------------------------------


def string(text: str) -> bytes:
    return struct.pack("<I", len(os.fsencode(text))) + os.fsencode(text)


def record(kind: bytes = b"COMP", version: int = abi.RECORD_VERSION, output: str = "/w/a.o") -> bytes:
    """Return a record as the shim writes it."""
    source = ("/w/a.cpp", output, "5:0000abcd") if kind == b"COMP" else ("", output, "")
    fields = b"".join(map(string, ("hipcc", "rocm", "/w", *source)))
    fields += struct.pack("<I", 2)
    fields += struct.pack("<I", 3) + b"".join(map(string, ("ccache", "hipcc", ODD)))
    fields += struct.pack("<I", 1) + string("CPATH") + string("/include")
    return b"LZRC" + struct.pack("<2I", version, 16 + len(fields)) + kind + fields


CALL = Invocation("hipcc", "rocm", "/w", ("ccache", "hipcc", ODD), 2, (("CPATH", "/include"),))


def test_records_one_after_the_other_are_read_with_every_field() -> None:
    data = record() + b"\0\0\0" + record(b"LINK", output="/w/b.so") + b"\0"
    assert decode_records(data, "x.o") == [
        CompileCommand(CALL, "/w/a.cpp", "/w/a.o", "5:0000abcd"),
        LinkCommand(CALL, "/w/b.so"),
    ]
    assert decode_records(b"", "x.o") == []
    assert decode_records(b"\0", "x.o") == []


def test_a_record_cut_short_anywhere_is_refused() -> None:
    data = record()
    for size in range(1, len(data)):
        with pytest.raises(FormatError, match=r"x\.o: a record of the shim is cut short"):
            decode_records(data[:size], "x.o")


def test_a_record_does_not_read_on_in_the_next_one() -> None:
    data = bytearray(record())
    struct.pack_into("<I", data, 8, len(data) - 4)
    with pytest.raises(FormatError, match="cut short"):
        decode_records(bytes(data) + record(), "x.o")


def test_records_of_another_version_or_kind_are_refused() -> None:
    with pytest.raises(FormatError, match=f"record version {abi.RECORD_VERSION + 1}"):
        decode_records(record(version=abi.RECORD_VERSION + 1), "x.o")
    with pytest.raises(FormatError, match="unknown kind"):
        decode_records(record(b"XXXX"), "x.o")
