"""Tests the manifest and the shim's records: what is written can be read, and other bytes are
refused."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace

import pytest

from _lazyck import abi
from _lazyck.errors import FormatError
from _lazyck.manifest import BlobRecord, Manifest, Recipe, Units, decode, decode_records, decode_root, encode

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
    drop_env=("NVCC_APPEND_FLAGS", "CPATH"),
)
MANIFEST = Manifest(
    library="libx",
    soname="libx.so.1",
    cache_name="lazyck",
    root=ODD,
    archs=("gfx942", "gfx950"),
    recipes=(RECIPE, RECIPE),
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
    full = replace(MANIFEST, machine="x86_64", private_names=("p.lazyck.1",), contents="12" * 32)
    parts = replace(MANIFEST.blobs[0], kernel="one\t*\t\t\t", units=Units("fe", 1, 0))
    data = encode(replace(full, blobs=(parts, *MANIFEST.blobs[1:])))
    assert (abi.MANIFEST_VERSION, hashlib.sha256(data).hexdigest()[:16]) == (6, "586a7a59258261a2")
