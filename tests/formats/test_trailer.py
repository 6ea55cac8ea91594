"""Tests the last bytes of an entry, by which it is known: docs/cache-format.md has the layout."""

import io
import struct

import pytest

from lazyck.formats.trailer import Trailer, parse, read

KEY = "fedcba98765432100123456789abcdef"
TEXT = "00000000deadbeef"


def trailer(text: int = int(TEXT, 16), magic: bytes = b"LAZYCKEN") -> bytes:
    """Return a trailer whose words between the magic and the key hold what belongs to no key."""
    return magic + b"\xaa" * 32 + struct.pack("<3Q", 0x0123456789ABCDEF, 0xFEDCBA9876543210, text)


def test_a_trailer_tells_the_key_and_the_text_key() -> None:
    assert parse(trailer()) == Trailer(KEY, TEXT)
    assert parse(b"what comes before" + trailer()) == Trailer(KEY, TEXT)
    assert parse(trailer(text=0)) == Trailer(KEY, "")


@pytest.mark.parametrize("data", [b"", trailer()[1:], trailer(magic=b"LAZYCKEM"), trailer() + b"\0"])
def test_other_bytes_are_no_trailer(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize("before", [0, 1, 5000])
def test_a_file_s_trailer_is_its_end(before: int) -> None:
    file = io.BytesIO(b"x" * before + trailer())
    assert read(file) == Trailer(KEY, TEXT)
    assert read(io.BytesIO(b"x" * before)) is None


def test_an_entry_answers_to_its_key_and_to_that_of_its_text_alone() -> None:
    entry = Trailer(KEY, TEXT)
    assert entry.answers_to(KEY)
    assert entry.answers_to("0" * 16 + TEXT)
    assert not entry.answers_to(TEXT + "0" * 16)
    assert not entry.answers_to("0" * 32)
    assert not Trailer(KEY, "").answers_to("0" * 16)
    assert Trailer(KEY, "").answers_to(KEY)
