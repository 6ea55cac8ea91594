"""Test a tier whose contents travel and lie compressed (`compress=zstd`)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from support.driver import ENTRY, Host, entry_bytes, entry_file, python_path

from lazyck.errors import FormatError
from lazyck.remote import Remote
from lazyck.remote.entry_record import EntryRecord, decode
from lazyck.remote.payload import decompressed

zstandard: Any = pytest.importorskip("zstandard", reason="needs lazyck[remote]")

BODY = b"the code" * 50_000


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def push(tier: str, tmp_path: Path) -> Remote:
    remote = Remote.from_environment({"LAZYCK_REMOTE": tier, "LAZYCK_CACHE_DIR": str(tmp_path / "c")})
    assert remote and remote.push(ENTRY, entry_file(tmp_path / "made", body=BODY))
    return remote


def record_in(shared: Path) -> EntryRecord:
    record = decode((shared / ENTRY.record).read_bytes())
    assert record
    return record


def test_contents_lie_compressed_and_arrive_whole(tier: str, tmp_path: Path) -> None:
    url, *attributes = tier.split("|")
    tier = "|".join([url, "trusted", "compress=zstd", *(a for a in attributes if a != "trusted")])
    maker = Host(tmp_path / "maker", tier, LAZYCK_REMOTE_TIMEOUT="10")
    runtime = maker.miss()
    assert runtime.verdict() == "compile"
    maker.make(runtime, body=BODY)
    host = Host(tmp_path / "1", tier, LAZYCK_REMOTE_TIMEOUT="10")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert host.keep(runtime) == entry_bytes(body=BODY)
    if url.startswith("/"):
        record = record_in(Path(url))
        assert record.compressed and record.compressed.size < record.size / 20
        (contents,) = (Path(url) / "cas").iterdir()
        assert contents.stat().st_size == record.compressed.size


def test_a_push_to_a_tier_that_is_called_compressed_later_compresses_what_is_there(
    shared: Path, tmp_path: Path
) -> None:
    push(f"{shared}|trusted", tmp_path)
    assert record_in(shared).compressed is None
    push(f"{shared}|trusted|compress=zstd", tmp_path)
    record = record_in(shared)
    assert record.compressed
    before = {p: p.stat().st_mtime_ns for p in shared.rglob("*") if p.is_file()}
    push(f"{shared}|trusted|compress=zstd", tmp_path)  # another push changes nothing
    assert {p: p.stat().st_mtime_ns for p in shared.rglob("*") if p.is_file()} == before
    # Whoever reads needs no attribute: the record tells.
    assert Host(tmp_path / "1", f"{shared}|trusted").miss().verdict() == "hit"


@pytest.mark.parametrize("lie", ["bomb", "other", "garbage", "cut"])
def test_what_does_not_unpack_to_what_the_record_says_is_refused(lie: str, shared: Path, tmp_path: Path) -> None:
    push(f"{shared}|trusted|compress=zstd", tmp_path)
    path = shared / ENTRY.record
    members = json.loads(path.read_bytes())
    good = (shared / "cas" / members["zstd"]["sha256"]).read_bytes()
    data = {
        "bomb": zstandard.compress(bytes(1 << 30)),
        "other": zstandard.compress(b"x" + entry_bytes(body=BODY)[1:]),
        "garbage": b"not zstd at all" * 100,
        "cut": good[:-20],
    }[lie]
    name = hashlib.sha256(data).hexdigest()
    (shared / "cas" / name).write_bytes(data)
    path.write_text(json.dumps(members | {"zstd": {"sha256": name, "size": len(data)}}))
    host = Host(tmp_path / "1", f"{shared}|trusted|read-only", LAZYCK_REMOTE_TIMEOUT="10")
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    assert "its contents do not match its record" in runtime.of("refused")[0]
    assert not list(runtime.cwd.iterdir())


def test_without_zstandard_the_tier_is_skipped_and_the_line_to_install_it_is_said(shared: Path, tmp_path: Path) -> None:
    push(f"{shared}|trusted|compress=zstd", tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "zstandard.py").write_text("raise ImportError\n")
    host = Host(tmp_path / "1", f"{shared}|trusted")
    runtime = host.miss(env={"PYTHONPATH": f"{hidden}:{python_path()}"})
    assert runtime.verdict() == "compile"
    assert "pip install 'lazyck[remote]'" in runtime.of("skipped")[0]


def test_no_more_is_unpacked_than_was_asked_for() -> None:
    packed = zstandard.compress(bytes(1 << 24))
    assert sum(map(len, decompressed(iter([packed]), 1000))) == 1001


@pytest.mark.parametrize("packed", ["yes", {"sha256": "00", "size": 3}, {"sha256": "0" * 64, "size": 0}])
def test_a_record_whose_compressed_part_makes_no_sense_is_refused(packed: object, shared: Path, tmp_path: Path) -> None:
    push(f"{shared}|trusted|compress=zstd", tmp_path)
    members = json.loads((shared / ENTRY.record).read_bytes())
    with pytest.raises(FormatError):
        decode(json.dumps(members | {"zstd": packed}).encode())
