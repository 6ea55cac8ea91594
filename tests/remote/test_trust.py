"""Test who is trusted: signatures, keys, and what is pushed where."""

import hashlib
import json
import shutil
import time
from pathlib import Path

import pytest
from support.driver import ENTRY, KEY, Host, entry_bytes, entry_file

from lazyck.errors import FormatError, UsageError
from lazyck.remote import Listener, Remote
from lazyck.remote.entry_record import EntryRecord, Signature, decode, encode
from lazyck.remote.sign import KeyRing, is_signed, make_key, read_signer, read_trusted

Key = tuple[Path, str]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def put(shared: Path, tmp_path: Path, key: Path | None = None) -> EntryRecord:
    """Let a host with the private key, or without a key, make an entry."""
    env = {"LAZYCK_SIGN_KEY": str(key)} if key else {}
    host = Host(tmp_path / f"maker-{key and key.name}", f"{shared}" + ("" if key else "|trusted"), **env)
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    record = decode((shared / ENTRY.record).read_bytes())
    assert record
    return record


def change(shared: Path, **members: object) -> None:
    """Overwrite some members of the record."""
    path = shared / ENTRY.record
    path.write_text(json.dumps(json.loads(path.read_bytes()) | members))


def test_a_signed_entry_is_believed_by_those_who_trust_its_key(shared: Path, tmp_path: Path, key: Key) -> None:
    put(shared, tmp_path, key[0])
    host = Host(tmp_path / "1", str(shared), LAZYCK_TRUST=key[1])
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert host.keep(runtime) == entry_bytes()
    listed = tmp_path / "keys"
    listed.write_text(f"# the builders\n\n{make_key(tmp_path / 'other').public}  # old\n{key[1]}\n")
    assert Host(tmp_path / "2", str(shared), LAZYCK_TRUST=f"{listed}").miss().verdict() == "hit"


def test_an_unsigned_entry_is_refused_with_what_to_set(shared: Path, tmp_path: Path, key: Key) -> None:
    put(shared, tmp_path)
    runtime = Host(tmp_path / "1", str(shared), LAZYCK_TRUST=key[1]).miss()
    assert runtime.verdict() == "compile"
    assert "it is not signed; set LAZYCK_TRUST" in runtime.of("refused")[0]
    assert Host(tmp_path / "2", f"{shared}|trusted").miss().verdict() == "hit"


def test_without_trusted_keys_a_signed_entry_is_refused_too(shared: Path, tmp_path: Path, key: Key) -> None:
    put(shared, tmp_path, key[0])
    runtime = Host(tmp_path / "1", str(shared)).miss()
    assert runtime.verdict() == "compile"
    assert "not signed by anyone trusted; set LAZYCK_TRUST" in runtime.of("refused")[0]


@pytest.mark.parametrize("what", ["another key", "moved", "contents", "size", "key", "not a signature", "not a point"])
def test_a_wrong_signature_is_refused(what: str, shared: Path, tmp_path: Path, key: Key) -> None:
    record = put(shared, tmp_path, key[0])
    trusted = key[1]
    if what == "another key":
        trusted = make_key(tmp_path / "other").public
    elif what == "moved":  # another entry's signature, over that entry's name
        other = EntryRecord(type(ENTRY)(KEY, ENTRY.name.replace("blob", "blub")), record.sha256, record.size)
        signature = read_signer(key[0]).sign(other.statement)
        change(shared, signatures=[{"key": key[1], "signature": signature.signature}])
    elif what == "contents":
        data = entry_bytes(body=b"evil")
        digest = hashlib.sha256(data).hexdigest()
        (shared / "cas" / digest).write_bytes(data)
        change(shared, sha256=digest, size=len(data))
    elif what == "size":
        change(shared, size=record.size - 1)
    elif what == "key":  # the signature is good, but nobody trusts the key
        signer = make_key(tmp_path / "other")
        change(shared, signatures=[{"key": signer.public, "signature": signer.sign(record.statement).signature}])
    elif what == "not a signature":
        change(shared, signatures=[{"key": key[1], "signature": "A" * 86 + "=="}])
    else:
        trusted = "/" * 42 + "8="
        change(shared, signatures=[{"key": trusted, "signature": record.signatures[0].signature}])
    runtime = Host(tmp_path / "1", str(shared), LAZYCK_TRUST=trusted).miss()
    assert runtime.verdict() == "compile"
    assert len(runtime.of("refused")) == 1
    assert "is not signed by anyone trusted" in runtime.of("refused")[0]
    assert not list(runtime.cwd.iterdir())


def test_what_was_refused_is_replaced_by_a_signed_one(shared: Path, tmp_path: Path, key: Key) -> None:
    put(shared, tmp_path)
    put(shared, tmp_path, key[0])
    assert Host(tmp_path / "1", str(shared), LAZYCK_TRUST=key[1]).miss().verdict() == "hit"


def test_a_signed_record_is_not_replaced_by_an_unsigned_one(shared: Path, tmp_path: Path, key: Key) -> None:
    record = put(shared, tmp_path, key[0])
    host = Host(tmp_path / "1", f"{shared}|trusted")
    remote = Remote.from_environment(host.env)
    assert remote
    remote.push(ENTRY, entry_file(tmp_path / "new", body=b"another"))
    assert decode((shared / ENTRY.record).read_bytes()) == record


def test_a_second_builders_signature_of_the_same_contents_is_added(shared: Path, tmp_path: Path, key: Key) -> None:
    put(shared, tmp_path, key[0])
    other = tmp_path / "other"
    public = make_key(other).public
    remote = Remote.from_environment({"LAZYCK_REMOTE": str(shared), "LAZYCK_SIGN_KEY": str(other)})
    assert remote
    assert [p.label for p in remote.lacking(ENTRY)] == [str(shared)]
    remote.push(ENTRY, entry_file(tmp_path / "again"))
    record = decode((shared / ENTRY.record).read_bytes())
    assert record and {s.key for s in record.signatures} == {key[1], public}
    assert all(is_signed(s, record.statement) for s in record.signatures)
    assert not remote.lacking(ENTRY)


def test_nothing_unsigned_is_pushed_to_a_tier_that_is_not_trusted(shared: Path, tmp_path: Path) -> None:
    host = Host(tmp_path / "1", str(shared))
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    host.make(runtime)
    assert not list(shared.iterdir())


def test_what_came_unsigned_from_a_trusted_tier_does_not_fill_one_that_is_not(shared: Path, tmp_path: Path) -> None:
    put(shared, tmp_path)
    near = tmp_path / "near"
    near.mkdir()
    host = Host(tmp_path / "1", f"{near},{shared}|trusted|read-only")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    host.keep(runtime)
    assert not list(near.iterdir())


@pytest.mark.parametrize(("mode", "message"), [(0o644, "others can read it"), (0o620, "its group can write it")])
def test_a_private_key_that_is_not_private_is_refused(mode: int, message: str, key: Key) -> None:
    assert key[0].stat().st_mode & 0o777 == 0o600
    assert read_signer(key[0]).public == key[1]
    key[0].chmod(mode)
    with pytest.raises(UsageError, match=message):
        read_signer(key[0])


def test_key_files_that_are_none_are_refused(tmp_path: Path, key: Key) -> None:
    for data in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", b"x" * 100_000):
        path = tmp_path / "bad"
        path.write_bytes(data)
        path.chmod(0o600)
        with pytest.raises(UsageError, match="not a"):
            read_signer(path)
        if data:
            with pytest.raises(UsageError, match="not a"):
                read_trusted(str(path))
    with pytest.raises(UsageError, match="neither a public key nor an absolute path"):
        read_trusted("A" + key[1][1:-2])  # one key in 64 begins with a slash, like a path
    with pytest.raises(UsageError, match="is there already"):
        make_key(key[0])


def test_what_is_fetched_for_contents_must_have_their_digest(shared: Path, tmp_path: Path) -> None:
    refused: list[str] = []
    remote = Remote.from_environment({"LAZYCK_REMOTE": str(shared)}, tmp_path, Listener(refused.append))
    assert remote and remote.keys == KeyRing()
    bundle = tmp_path / "bundle.tar"
    bundle.write_bytes(b"bundle" * 1000)
    digest = remote.put_contents(bundle)
    assert remote.get_contents(digest, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == bundle.read_bytes()
    assert not remote.get_contents("0" * 64, tmp_path / "none")
    (shared / "cas" / digest).write_bytes(b"bundle" * 999 + b"bungle")
    assert not remote.get_contents(digest, tmp_path / "false")
    assert not (tmp_path / "false").exists()
    assert len(refused) == 1


def test_a_record_says_the_same_after_a_round_trip() -> None:
    record = EntryRecord(ENTRY, "ab" * 32, 5, 1.5, 7, (Signature("A" * 43 + "=", "A" * 86 + "=="),))
    assert decode(encode(record)) == record
    assert decode(encode(record).replace(b'"lazyck": 1', b'"lazyck": 2')) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 60_000, '{"lazyck": true}', '{"lazyck": 1}', "\xff", "1" * 5000, '{"lazyck": 1.0}',
        " " * 100_000,
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode(text.encode("latin-1"))


@pytest.mark.parametrize(
    "members",
    [
        {"size": 0}, {"size": -1}, {"size": True}, {"size": "5"}, {"size": 1 << 40}, {"size": 5.0},
        {"sha256": "AB" * 32}, {"sha256": "ab" * 32 + "\n"}, {"sha256": None}, {"key": "0" * 31},
        {"name": "../../etc/x-0123456789abcdef.so"}, {"name": "a/b/c"}, {"name": "a/.b/c-0123456789abcdef.so"},
        {"name": f"a/{'b' * 2000}/c-0123456789abcdef.so"}, {"name": "a/b/c-0123456789abcdef.so\n"},
        {"signatures": [{}] * 17}, {"signatures": [{}]}, {"signatures": {}}, {"signatures": [{"key": "A" * 44}]},
        {"signatures": [{"key": "A" * 42 + "B=", "signature": "A" * 86 + "=="}]},
    ],
)  # fmt: skip
def test_a_record_with_a_member_that_makes_no_sense_is_refused(members: dict[str, object]) -> None:
    good = json.loads(encode(EntryRecord(ENTRY, "ab" * 32, 5)))
    assert decode(json.dumps(good).encode())
    with pytest.raises(FormatError):
        decode(json.dumps(good | members).encode())


@pytest.mark.parametrize("figure", ["-1", "NaN", "Infinity", "1e400", "9" * 400, '"x"', "null", "[]", "true"])
def test_figures_that_nothing_depends_on_are_not_known(figure: str) -> None:
    text = encode(EntryRecord(ENTRY, "ab" * 32, 5)).decode().replace('"seconds": 0.0', f'"seconds": {figure}')
    record = decode(text.encode())
    assert record and record.seconds == 0.0


def spoil(tier: Path) -> None:
    """Change a byte of the contents that a tier has."""
    (path,) = (tier / "cas").iterdir()
    path.chmod(0o600)
    data = path.read_bytes()
    path.write_bytes(data[:-70] + bytes([data[-70] ^ 1]) + data[-69:])


def test_a_mirror_with_wrong_contents_does_not_hide_the_right_ones_of_another_tier(
    shared: Path, tmp_path: Path
) -> None:
    put(shared, tmp_path)
    mirror = tmp_path / "mirror"
    shutil.copytree(shared, mirror)
    spoil(mirror)
    host = Host(tmp_path / "1", f"{mirror}|trusted,{shared}|trusted")
    runtime = host.miss()
    assert runtime.verdict() == "hit"
    assert runtime.of("hit") == [f"hit {shared} {len(entry_bytes())}"]
    assert "do not match its record" in runtime.of("refused")[0]
    host.keep(runtime)
    assert Host(tmp_path / "2", f"{mirror}|trusted").miss().verdict() == "hit", "the mirror is not repaired"


def test_wrong_contents_are_replaced_once_and_then_fetched_by_all_who_waited(shared: Path, tmp_path: Path) -> None:
    put(shared, tmp_path)
    spoil(shared)
    first = Host(tmp_path / "0", f"{shared}|trusted")
    holder = first.miss()
    assert holder.verdict() == "compile"
    others = [Host(tmp_path / n, f"{shared}|trusted") for n in "12"]
    waiting = [host.miss() for host in others]
    time.sleep(0.5)  # each of them has seen the wrong contents; nothing tells that it waits
    first.make(holder)
    assert [runtime.verdict() for runtime in waiting] == ["hit", "hit"]


def test_hosts_that_do_not_believe_each_other_do_not_wait_for_one_after_the_other(shared: Path, tmp_path: Path) -> None:
    keys = [tmp_path / f"{n}.pem" for n in range(3)]
    for path in keys:
        make_key(path)
    hosts = [Host(tmp_path / str(n), str(shared), LAZYCK_SIGN_KEY=str(path)) for n, path in enumerate(keys)]
    holder = hosts[0].miss()
    assert holder.verdict() == "compile"
    waiting = [host.miss() for host in hosts[1:]]
    time.sleep(0.5)  # as above
    hosts[0].make(holder)
    assert [runtime.verdict() for runtime in waiting] == ["compile", "compile"], "the second waits for the first"
