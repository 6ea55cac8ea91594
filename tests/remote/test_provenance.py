"""Tests who an entry says that made it: in-toto's statement with SLSA's provenance in a signed DSSE
envelope, as verifiers of others read it."""

import base64
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from support import Lazyck
from support.bundles import Bundle, build, entries, make_bundle
from support.driver import ENTRY, KEY, NAME, Host, entry_bytes, entry_file

from lazyck.errors import FormatError
from lazyck.remote import EntryName, Listener, Remote
from lazyck.remote.provenance import CompileDetails, decode, encode, read_compile_details, statement_of
from lazyck.remote.sign import make_key, read_signer

Key = tuple[Path, str]
MAKING = CompileDetails(
    "ab" * 32, 1_700_000_000.5, 1_700_000_003.0, "builder 1", "cd" * 32, "ef" * 32, "gcc12-0123456789ab"
)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a shared directory and name it in LAZYCK_REMOTE."""
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("LAZYCK_REMOTE", f"{tmp_path}/shared")
    return tmp_path / "shared"


@pytest.fixture
def bundle(lazyck: Lazyck, tmp_path: Path) -> Bundle:
    """Make a library whose blobs are all in the cache."""
    made = make_bundle(tmp_path / "b", ["one", "two"])
    assert build(lazyck, made, "--all")["status"] == 0
    return made


def origins(
    lazyck: Lazyck, bundle: Bundle, *blobs: str, status: int = 0, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what `lazyck cache provenance` says, by blob."""
    done = lazyck("cache", "provenance", "--manifest", bundle.file, "--json", *blobs, env=env or {})
    assert done.returncode == status, done.stdout + done.stderr
    return {row["blob"]: row for row in json.loads(done.stdout)}


def push(lazyck: Lazyck, key: Path, *words: str | Path) -> None:
    done = lazyck("cache", "push", *words, env={"LAZYCK_SIGN_KEY": str(key)})
    assert done.returncode == 0, done.stderr


def name_of(path: Path) -> EntryName:
    return EntryName.of_file(path.parents[3], path)


def test_what_a_builder_pushes_says_who_made_it_and_how(
    lazyck: Lazyck, bundle: Bundle, shared: Path, key: Key, tmp_path: Path
) -> None:
    push(lazyck, key[0], "--manifest", bundle.file)
    cache = tmp_path / "lazyck-cache"
    for blob, row in origins(lazyck, bundle, env={"LAZYCK_TRUST": key[1]}).items():
        (path,) = cache.glob(f"v1/*/*/{blob}-*.so")
        predicate = row["statement"]["predicate"]
        assert row["signer"] == key[1]
        assert row["statement"]["subject"] == [
            {"name": name_of(path).name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
        ]
        assert predicate["buildDefinition"]["externalParameters"]["blob"] == blob
        compiler = predicate["buildDefinition"]["resolvedDependencies"][1]
        assert compiler["uri"] == "urn:lazyck:compiler:g%2B%2B-test"
        times = predicate["runDetails"]["metadata"]
        assert times["startedOn"] <= times["finishedOn"]
    done = lazyck("cache", "provenance", "--manifest", bundle.file, "one", env={"LAZYCK_TRUST": key[1]})
    assert f"signed by  {key[1]}" in done.stdout


def test_verifiers_of_others_read_it(lazyck: Lazyck, bundle: Bundle, shared: Path, key: Key, tmp_path: Path) -> None:
    dsse = pytest.importorskip("securesystemslib.dsse", reason="no securesystemslib (pip install lazyck[test])")
    signer = pytest.importorskip("securesystemslib.signer")
    in_toto = pytest.importorskip("in_toto_attestation.v1.statement", reason="no in-toto-attestation")
    in_toto_pb = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    descriptor = pytest.importorskip("in_toto_attestation.v1.resource_descriptor")
    json_format = pytest.importorskip("google.protobuf.json_format")
    slsa = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    push(lazyck, key[0])
    for path in entries(tmp_path / "lazyck-cache").values():
        envelope = json.loads((shared / name_of(path).provenance(key[1])).read_bytes())
        read = dsse.Envelope.from_dict(envelope)
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key[1]))
        own = signer.SSlibKey.from_crypto(public, keyid=key[1])
        assert set(read.verify([own], 1)) == {key[1]}
        said = json.loads(read.payload)
        in_toto.Statement.copy_from_pb(json_format.ParseDict(said, in_toto_pb.Statement())).validate()
        # This raises for a member that SLSA does not have, and for a time that is none.
        predicate = json_format.ParseDict(said["predicate"], slsa.Provenance())
        assert predicate.run_details.metadata.finished_on.seconds > 0
        for each in predicate.build_definition.resolved_dependencies:
            descriptor.ResourceDescriptor.copy_from_pb(each).validate()


def test_without_a_key_nothing_is_said(lazyck: Lazyck, bundle: Bundle, shared: Path, tmp_path: Path) -> None:
    trusted = {"LAZYCK_REMOTE": f"{shared}|trusted"}
    assert lazyck("cache", "push", env=trusted).returncode == 0
    assert len(list((shared / "ac").iterdir())) == 2, "records only"
    said = origins(lazyck, bundle, "one", status=1, env=trusted)
    assert "no remote has a provenance signed by a key of LAZYCK_TRUST" in said["one"]["problem"]


def test_a_second_builder_of_an_equal_entry_says_so_beside_the_first(
    lazyck: Lazyck, bundle: Bundle, shared: Path, key: Key, tmp_path: Path
) -> None:
    push(lazyck, key[0])
    contents = sorted((shared / "cas").iterdir())
    second = tmp_path / "second.pem"
    public = make_key(second).public
    push(lazyck, second)
    assert sorted((shared / "cas").iterdir()) == contents
    for signer in (key[1], public):
        said = origins(lazyck, bundle, env={"LAZYCK_TRUST": signer}).values()
        assert [row["signer"] for row in said] == [signer, signer]


def test_only_who_compiled_an_entry_says_that_it_did(
    lazyck: Lazyck, bundle: Bundle, shared: Path, key: Key, tmp_path: Path
) -> None:
    """A machine that has an entry from elsewhere signs the entry, but not that it made it."""
    push(lazyck, key[0])
    second = tmp_path / "second.pem"
    public = make_key(second).public
    elsewhere = {"LAZYCK_CACHE_DIR": str(tmp_path / "elsewhere"), "LAZYCK_TRUST": key[1]}
    assert lazyck("cache", "pull", "--manifest", bundle.file, env=elsewhere).returncode == 0
    again = {**elsewhere, "LAZYCK_SIGN_KEY": str(second), "LAZYCK_TRUST": public}
    assert "2 entries" in lazyck("cache", "push", env=again).stdout
    assert origins(lazyck, bundle, status=1, env={**elsewhere, "LAZYCK_TRUST": public})
    assert {row["signer"] for row in origins(lazyck, bundle, env=elsewhere).values()} == {key[1]}


def test_a_log_of_another_entry_says_nothing_of_this_one(
    lazyck: Lazyck, bundle: Bundle, shared: Path, key: Key, tmp_path: Path
) -> None:
    """An entry that was fetched in place of a damaged one lies beside the log of that one."""
    cache = tmp_path / "lazyck-cache"
    (one,), (two,) = cache.glob("v1/*/*/one-*.log"), cache.glob("v1/*/*/two-*.log")
    shutil.copy(one, two)
    push(lazyck, key[0])
    said = origins(lazyck, bundle, status=1, env={"LAZYCK_TRUST": key[1]})
    assert said["one"]["signer"] and not said["two"]["signer"]
    assert not (shared / name_of(two.with_suffix(".so")).provenance(key[1])).exists()


def test_the_helper_of_a_first_call_tells_it_too(shared: Path, key: Key, tmp_path: Path) -> None:
    host = Host(tmp_path / "host", str(shared), LAZYCK_SIGN_KEY=str(key[0]))
    runtime = host.miss()
    assert runtime.verdict() == "compile"
    digest = hashlib.sha256(entry_bytes()).hexdigest()
    made = {"sha256": digest, "started": 5, "finished": 9.5, "host": "h", "toolchain": "cc-1"}
    (host.directory / "entry.log").write_text(f"$ cc\n[made {json.dumps(made)}]\n")
    host.make(runtime)
    remote = Remote.from_environment({"LAZYCK_REMOTE": str(shared), "LAZYCK_TRUST": key[1]}, tmp_path / "cache")
    assert remote
    found = remote.provenance(ENTRY, digest)
    assert found and found.host == "urn:lazyck:host:h" and found.finished == "1970-01-01T00:00:09Z"
    assert remote.provenance(ENTRY, "0" * 64) is None


def changed(data: bytes, key: Path, how: str) -> bytes:
    """Return an envelope that says something else, or is signed by somebody else."""
    envelope = json.loads(data)
    statement = json.loads(base64.b64decode(envelope["payload"]))
    if how == "payload":
        statement["predicate"]["runDetails"]["builder"]["id"] = "urn:lazyck:host:other"
        envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    elif how == "type":
        envelope["payloadType"] = "application/json"
    elif how == "signature":
        envelope["signatures"][0]["sig"] = "A" * 86 + "=="
    elif how == "no signatures":
        envelope["signatures"] = []
    elif how == "predicate":
        return encode({**statement, "predicateType": "https://example.org/other"}, read_signer(key))
    elif how == "subjects":
        return encode({**statement, "subject": statement["subject"] * 2}, read_signer(key))
    elif how == "no digest":
        return encode({**statement, "subject": [{"name": NAME, "digest": {}}]}, read_signer(key))
    elif how == "entry":
        return encode(statement_of(EntryName(KEY, NAME.replace("blob", "blub")), MAKING), read_signer(key))
    elif how == "key":
        return encode(statement_of(EntryName("f" * 32, NAME), MAKING), read_signer(key))
    elif how == "not JSON":
        return b"["
    return json.dumps(envelope).encode()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("payload", "did not sign it"),
        ("type", "it is not an in-toto statement"),
        ("signature", "did not sign it"),
        ("no signatures", "did not sign it"),
        ("predicate", "it is not SLSA's provenance"),
        ("subjects", "it is about another entry"),
        ("no digest", "it does not have the entry's SHA-256"),
        ("entry", "it is about another entry"),
        ("key", "it is about an entry of another key"),
        ("not JSON", "it is not JSON"),
    ],
)
def test_what_a_tier_changed_is_refused(how: str, why: str, key: Key) -> None:
    good = encode(statement_of(ENTRY, MAKING), read_signer(key[0]))
    assert decode(good, ENTRY, key[1]).host == "urn:lazyck:host:builder%201"
    with pytest.raises(FormatError, match=why):
        decode(changed(good, key[0], how), ENTRY, key[1])


def test_a_tier_that_lies_is_named_and_read_within_bounds(shared: Path, key: Key, tmp_path: Path) -> None:
    refused: list[str] = []
    env = {"LAZYCK_REMOTE": str(shared), "LAZYCK_TRUST": key[1]}
    remote = Remote.from_environment(env, tmp_path / "cache", Listener(refused.append, refused.append))
    assert remote
    place = shared / ENTRY.provenance(key[1])
    place.parent.mkdir()
    place.write_bytes(b"{}")
    assert remote.provenance(ENTRY, MAKING.sha256) is None
    assert "its provenance: it is not an in-toto statement" in refused.pop()
    place.write_bytes(b" " * (1 << 20))
    assert remote.provenance(ENTRY, MAKING.sha256) is None
    assert "more than a record holds" in refused.pop()


@pytest.mark.parametrize(
    "text",
    ["", "[made {}]\n", '[made {"started": "x", "finished": 1}]\n', '[made {"started": -1, "finished": 1}]\n',
     "[made " + "[" * 3000 + "]\n", '[made {"started": 1, "finished": 2}]\nmore\n'],
)  # fmt: skip
def test_logs_that_do_not_say_how_are_passed_over(text: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    with log.open("rb") as f:
        assert read_compile_details(f) is None


def test_an_entry_holds_no_time(lazyck: Lazyck, bundle: Bundle, tmp_path: Path) -> None:
    before = {p.name: p.read_bytes() for p in entries(tmp_path / "lazyck-cache").values()}
    shutil.rmtree(tmp_path / "lazyck-cache")
    assert build(lazyck, bundle, "--all")["status"] == 0
    assert {p.name: p.read_bytes() for p in entries(tmp_path / "lazyck-cache").values()} == before


def test_an_entry_file_is_no_provenance(tmp_path: Path, key: Key) -> None:
    with pytest.raises(FormatError):
        decode(entry_file(tmp_path).read_bytes(), ENTRY, key[1])
