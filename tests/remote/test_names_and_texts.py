"""Tests the texts that hosts with different versions of lazyck must write alike: names of objects,
records, and what is signed."""

import base64
import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from lazyck.errors import FormatError, UsageError
from lazyck.remote.entry_name import EntryName, answers_to, contents_name
from lazyck.remote.entry_record import (
    LARGEST_ENTRY,
    LARGEST_RECORD,
    EntryRecord,
    Signature,
    StoredObject,
    decode,
    encode,
    is_base64,
)
from lazyck.remote.sign import KeyRing, is_signed, make_key, read_signer, read_trusted

KEY = "0123456789abcdef" * 2
NAME = "libx/gfx942-rocm7/my-blob-0123456789abcdef.so"
ENTRY = EntryName(KEY, NAME)
RECORD = EntryRecord(ENTRY, "ab" * 32, 5)


def hashed(text: str) -> str:
    return "ac/" + hashlib.sha256(text.encode()).hexdigest()


# -- names -----------------------------------------------------------------------------------------


def test_objects_are_named_by_the_hash_of_a_line_with_their_kind() -> None:
    assert ENTRY.record == hashed(f"lazyck entry 1\n{KEY}\n{NAME}")
    assert ENTRY.lease == hashed(f"lazyck lease 1\n{KEY}\n{NAME}")
    assert contents_name("ab" * 32) == "cas/" + "ab" * 32


def test_the_parts_of_a_name_are_told() -> None:
    assert ENTRY.entry_path.cost_key == ("libx", "my-blob", "gfx942")


@pytest.mark.parametrize("key", ["", KEY[1:], KEY + "0", KEY.upper(), KEY[:-1] + "g", KEY + "\n"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(FormatError, match="32 hexadecimal digits"):
        EntryName(key, NAME)


def test_a_name_of_the_largest_length_is_taken_and_a_longer_part_is_refused() -> None:
    part = "x" * 251
    EntryName(KEY, f"{part}/{part}/{part}-0123456789abcdef.so")
    for name in (f"x{part}/a/b", f"a/x{part}/b", f"a/b/x{part}", "", "a/b/c/d", "/a/b", "-a/b/c", "a/b/.c", "a//b"):
        with pytest.raises(FormatError, match="an entry's name is"):
            EntryName(KEY, f"{name}-0123456789abcdef.so")


@pytest.mark.parametrize("digest", ["", "ab" * 31, "AB" * 32, "ab" * 33, "../" + "a" * 61])
def test_contents_have_no_other_name_than_a_digest(digest: str) -> None:
    with pytest.raises(FormatError, match="64 hexadecimal digits"):
        contents_name(digest)


def test_an_entry_s_name_is_its_place_and_the_key_in_its_trailer(tmp_path: Path) -> None:
    path = tmp_path / "v1" / NAME
    path.parent.mkdir(parents=True)
    low, high = int(KEY[16:], 16), int(KEY[:16], 16)
    path.write_bytes(b"code" + b"LAZYCKEN" + bytes(32) + struct.pack("<3Q", low, high, 0xAB))
    assert EntryName.of_file(tmp_path, path) == ENTRY
    assert answers_to(path, KEY)
    assert answers_to(path, f"{0:016x}{0xAB:016x}")
    assert not answers_to(path, "0" * 32)
    with pytest.raises(FormatError, match="is not an entry of the cache"):
        EntryName.of_file(tmp_path / "other", path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FormatError, match="cut short"):
        EntryName.of_file(tmp_path, path)


# -- records ---------------------------------------------------------------------------------------


def test_a_record_is_the_json_that_others_read() -> None:
    signed = replace(
        RECORD, seconds=1.5, peak_kib=7, signatures=(Signature("k", "s"),), compressed=StoredObject("cd" * 32, 3)
    )
    assert json.loads(encode(signed)) == {
        "lazyck": 1, "key": KEY, "name": NAME, "sha256": "ab" * 32, "size": 5, "seconds": 1.5, "peak_kib": 7,
        "signatures": [{"key": "k", "signature": "s"}], "zstd": {"sha256": "cd" * 32, "size": 3},
    }  # fmt: skip
    assert "zstd" not in json.loads(encode(RECORD))
    assert encode(RECORD).endswith(b"}\n")


def test_what_lies_in_the_store_is_the_compressed_form_if_there_is_one() -> None:
    packed = replace(RECORD, compressed=StoredObject("cd" * 32, 3))
    assert (RECORD.stored, packed.stored) == (StoredObject("ab" * 32, 5), StoredObject("cd" * 32, 3))
    assert decode(encode(packed)) == packed


def test_the_key_the_name_and_the_contents_are_signed() -> None:
    assert RECORD.statement == f"lazyck entry 1\nkey {KEY}\nname {NAME}\nsha256 {'ab' * 32}\nsize 5\n".encode()


def test_each_key_signs_once_and_the_newest_sixteen_stay() -> None:
    old = replace(RECORD, signatures=(Signature("a", "1"), Signature("b", "1")))
    assert old.with_signatures((Signature("a", "2"),)).signatures == (Signature("a", "2"), Signature("b", "1"))
    many = tuple(Signature(str(i), "s") for i in range(16))
    assert old.with_signatures(many).signatures == many


@pytest.mark.parametrize("bad", [[], {"sha256": "ab" * 32}, {"sha256": "x", "size": 1}, 1, {}])
def test_a_record_with_compressed_contents_of_no_sense_is_refused(bad: object) -> None:
    with pytest.raises(FormatError):
        decode(json.dumps(json.loads(encode(RECORD)) | {"zstd": bad}).encode())


def test_the_largest_sizes_are_taken_and_not_one_more() -> None:
    whole = encode(replace(RECORD, size=LARGEST_ENTRY))
    assert decode(whole) == replace(RECORD, size=LARGEST_ENTRY)
    assert decode(whole + b" " * (LARGEST_RECORD - len(whole)))
    with pytest.raises(FormatError, match="too long"):
        decode(whole + b" " * (LARGEST_RECORD + 1 - len(whole)))
    with pytest.raises(FormatError, match="size"):
        decode(encode(replace(RECORD, size=LARGEST_ENTRY + 1)))
    row = {"key": base64.b64encode(b"k" * 32).decode(), "signature": base64.b64encode(b"s" * 64).decode()}
    full = decode(json.dumps(json.loads(encode(RECORD)) | {"signatures": [row] * 16}).encode())
    assert full and full.signatures == (Signature(row["key"], row["signature"]),) * 16


@pytest.mark.parametrize("missing", ["key", "name", "sha256", "size", "lazyck"])
def test_a_record_without_a_member_that_counts_is_refused(missing: str) -> None:
    members = json.loads(encode(RECORD))
    del members[missing]
    with pytest.raises(FormatError):
        decode(json.dumps(members).encode())


def test_a_record_needs_neither_costs_nor_signatures() -> None:
    members = {k: v for k, v in json.loads(encode(RECORD)).items() if k not in ("seconds", "peak_kib", "signatures")}
    assert decode(json.dumps(members | {"more": 1}).encode()) == RECORD


def test_costs_are_kept_to_a_millisecond_and_none_is_beyond_a_million_million() -> None:
    def costs(seconds: object, peak: object) -> tuple[float, int]:
        record = decode(json.dumps(json.loads(encode(RECORD)) | {"seconds": seconds, "peak_kib": peak}).encode())
        assert record
        return record.seconds, record.peak_kib

    assert costs(1.23456, 7) == (1.235, 7)
    assert costs(1e12, 1e12) == (0.0, 0)
    assert costs(0, 0) == (0.0, 0)
    assert costs(999_999_999_999, 5.9) == (999_999_999_999.0, 5)


def test_only_canonical_base64_of_the_right_size_is_taken() -> None:
    good = base64.b64encode(b"k" * 32).decode()
    assert is_base64(good, 32)
    for text in (good[:-1], good + "=", f"{good}\n", good[:-2] + "t=", good.replace("a", "-"), None, "", "A" * 69):
        assert not is_base64(text, 32)
    assert not is_base64(good, 31)


# -- keys ------------------------------------------------------------------------------------------


def test_a_signature_holds_for_its_statement_and_its_key_alone(tmp_path: Path) -> None:
    one, two = make_key(tmp_path / "one"), make_key(tmp_path / "two")
    assert read_signer(tmp_path / "one").public == one.public
    signature = one.sign(RECORD.statement)
    assert is_signed(signature, RECORD.statement)
    assert not is_signed(signature, RECORD.statement + b"\n")
    assert not is_signed(replace(signature, key=two.public), RECORD.statement)
    assert not is_signed(replace(signature, key="AAAA"), RECORD.statement)
    signed = RECORD.with_signatures((signature,))
    assert KeyRing(frozenset({one.public})).believe(signed)
    assert not KeyRing(frozenset({two.public})).believe(signed)
    assert not KeyRing().believe(signed)
    assert not KeyRing(frozenset({one.public})).believe(RECORD)
    assert not KeyRing(frozenset({one.public})).believe(replace(signed, size=6))
    assert KeyRing(frozenset({two.public})).believe(signed.with_signatures((two.sign(RECORD.statement),)))


def test_trusted_keys_are_named_or_read_from_a_file(tmp_path: Path) -> None:
    keys = [make_key(tmp_path / str(i)).public for i in range(3)]
    file = tmp_path / "trusted"
    file.write_text(f"# ours\n{keys[1]} # one\n\n  {keys[2]}\n")
    file.chmod(0o644)
    assert read_trusted(f" {keys[0]} ,, {file}") == frozenset(keys)
    assert read_trusted("") == frozenset()
    file.chmod(0o622)
    with pytest.raises(UsageError, match="others can write it"):
        read_trusted(str(file))
    file.chmod(0o644)
    file.write_text(keys[1][:-1])
    with pytest.raises(UsageError, match=f"{file}: .* is not a public key"):
        read_trusted(str(file))
    with pytest.raises(UsageError, match=r"LAZYCK_TRUST: .* is not a public key"):
        read_trusted(keys[0][:-2] + "B=")  # the right letters, but not what anybody writes
    with pytest.raises(UsageError, match=r"LAZYCK_TRUST: .*nowhere: No such file"):
        read_trusted(str(tmp_path / "nowhere"))


def test_the_largest_file_of_keys_is_read_and_not_one_byte_more(tmp_path: Path) -> None:
    public = make_key(tmp_path / "key").public
    file = tmp_path / "trusted"
    file.write_text(f"{public}\n#".ljust(64 << 10))
    assert read_trusted(str(file)) == {public}
    file.write_text(f"{public}\n#".ljust((64 << 10) + 1))
    with pytest.raises(UsageError, match="not a small regular file"):
        read_trusted(str(file))


def test_a_signer_is_an_absolute_path_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key(tmp_path / "key")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="a relative path is refused"):
        read_signer(Path("key"))
