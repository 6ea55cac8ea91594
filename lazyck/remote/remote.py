"""The tiers behind the local cache as one: fetches from the nearest one that has an entry, and
pushes to all writable ones."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lazyck import abi
from lazyck.errors import FormatError, RemoteError
from lazyck.remote.backend import UNKNOWN_SIZE
from lazyck.remote.circuit_breaker import CircuitBreaker
from lazyck.remote.entry_name import EntryName, answers_to, contents_name
from lazyck.remote.entry_record import LARGEST_ENTRY, LARGEST_RECORD, EntryRecord, StoredObject, decode, encode
from lazyck.remote.lease import Lease
from lazyck.remote.payload import Payload, compressing, opened
from lazyck.remote.sign import KeyRing, read_signer, read_trusted
from lazyck.remote.tier_client import TierClient, TierDown
from lazyck.remote.tiers import Tier, Times, parse_tiers, read_times
from lazyck.settings.environment import cache_dir

_HINT = f"set {abi.ENV_TRUST} to its builder's public key, or call the tier trusted (`lazyck help remote`)"

_ABSENT = "there are no such contents"


@dataclass(frozen=True)
class Listener:
    """Gets reports of refused entries and skipped tiers. None of them is an error."""

    refused: Callable[[str], None] = lambda _: None
    skipped: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class Fetched:
    """An entry that came from a tier, whole and believed. The nearest tier has the `number` 0."""

    label: str
    number: int
    record: EntryRecord


class Remote:
    """The tiers of `LAZYCK_REMOTE`. One that is down or slow is skipped in bounded time. Threads
    may share the object."""

    def __init__(
        self, tiers: tuple[Tier, ...], keys: KeyRing, times: Times, cache: Path | None, listener: Listener | None = None
    ) -> None:
        breaker = CircuitBreaker(cache, times)
        self.clients = tuple(TierClient(tier, times, breaker) for tier in tiers)
        self.keys = keys
        self.times = times
        self.listener = listener or Listener()
        self._refused: dict[str, list[str]] = {}
        self.refusals = 0  # how often something of a tier was not believed
        # Pairs of a tier's label and the SHA-256 of invalid contents there. An empty label stands
        # for all tiers: the caller refused the contents.
        self._bad: set[tuple[str, str]] = set()

    @classmethod
    def from_environment(
        cls,
        env: Mapping[str, str],
        cache: Path | None = None,
        listener: Listener | None = None,
        remembers: bool = True,
    ) -> "Remote | None":
        """Return the tiers that the environment names, or None if there are none. The cache
        remembers which tiers are down or, if `remembers` is false, only this object does. Raises
        `UsageError`."""
        tiers = parse_tiers(env.get(abi.ENV_REMOTE, ""))
        if not tiers:
            return None
        sign_key = env.get(abi.ENV_SIGN_KEY, "")
        signer = read_signer(Path(sign_key)) if sign_key else None
        # This process trusts its own signatures.
        keys = KeyRing(read_trusted(env.get(abi.ENV_TRUST, "")) | ({signer.public} if signer else set()), signer)
        return cls(tiers, keys, read_times(env), (cache or cache_dir(env)) if remembers else None, listener)

    def fetch(self, entry: EntryName, to: Path) -> Fetched | None:
        """Fetch an entry from the nearest tier that has one to believe. `to` appears whole."""
        for number, client in enumerate(self.clients):
            with self._passing_over():
                record = self.find(client, entry)
                if record is not None and self._fetch_contents(client, record, to):
                    return Fetched(client.label, number, record)
        return None

    def find(self, client: TierClient, entry: EntryName) -> EntryRecord | None:
        """Return the entry's record at a tier, if there is one to believe. Raises `TierDown`."""
        data = client.read(entry.record, LARGEST_RECORD)
        if data is None:
            return None
        try:
            record = decode(data)
        except FormatError as e:
            self._refuse(client, entry, f"its record: {e.message}")
            return None
        if record is None or self._is_bad(client, record.sha256):
            return None
        if record.entry != entry:
            self._refuse(client, entry, "its record is another entry's")
        elif client.tier.is_trusted or self.keys.believe(record):
            return record
        else:
            signed = "is not signed by anyone trusted" if record.signatures else "is not signed"
            self._refuse(client, entry, f"it {signed}; {_HINT}")
        return None

    def refuse(self, fetched: Fetched) -> None:
        """Refuse an invalid entry. It is not fetched again, and a push replaces it."""
        self._bad.add(("", fetched.record.sha256))

    def look_again(self, client: TierClient) -> None:
        """Forget which contents of the tier were invalid, because a push may have replaced them."""
        self._bad = {(label, sha256) for label, sha256 in self._bad if label != client.label}

    def problems_of(self, entry: EntryName) -> list[str]:
        """Return why tiers' versions of the entry were refused."""
        return self._refused.get(entry.name, [])

    def lacking(self, entry: EntryName) -> tuple[TierClient, ...]:
        """Return the writable tiers that answer and lack the entry."""
        found = []
        for client in filter(self.may_push, self.clients):
            with self._passing_over():
                there = self._record_there(client, entry)
                if there is None or not self._is_good(client, there, is_signed=self.keys.signer is not None):
                    found.append(client)
        return tuple(found)

    def push(self, entry: EntryName, path: Path, seconds: float = 0.0, peak_kib: int = 0) -> tuple[str, ...]:
        """Put an entry into every writable tier, that of the leases first. Return the labels of
        those that have it then. Raises `OSError` if the file cannot be read."""
        with opened(path) as contents:
            record = EntryRecord(entry, contents.sha256, contents.size, round(seconds, 3), peak_kib)
            if signer := self.keys.signer:
                record = record.with_signatures((signer.sign(record.statement),))
            clients = [p for p in self.clients if self.may_push(p)]
            return self._push_to(sorted(clients, key=lambda p: p is not self.shared_client()), record, contents)

    def fill(self, fetched: Fetched, path: Path) -> tuple[str, ...]:
        """Put a fetched entry, which is at `path`, into the tiers nearer than its origin."""
        with opened(path) as contents:
            if contents.sha256 != fetched.record.sha256:
                return ()
            nearer = [p for p in self.clients[: fetched.number] if not p.tier.is_read_only]
            believed = self.keys.believe(fetched.record)
            return self._push_to([p for p in nearer if believed or p.tier.is_trusted], fetched.record, contents)

    def may_push(self, client: TierClient) -> bool:
        """Return whether this process may push to the tier, with a key that is trusted."""
        return not client.tier.is_read_only and (client.tier.is_trusted or self.keys.signer is not None)

    def shared_client(self) -> TierClient | None:
        """Return where leases are: the farthest writable tier that is up. Most hosts share it."""
        return next((p for p in reversed(self.clients) if self.may_push(p) and not p.why_down(for_writes=True)), None)

    def lease(self, entry: EntryName) -> Lease | None:
        """Return this process's part in the entry's lease, if a tier takes leases."""
        client = self.shared_client()
        return Lease(client, entry, self.times.lease, socket.gethostname()) if client else None

    def put_contents(self, path: Path) -> str:
        """Put a file into every writable tier. Return its SHA-256, by which `get_contents` finds
        it. Raises `RemoteError` if no tier took it."""
        with opened(path) as contents:
            taken = 0
            for client in (p for p in self.clients if not p.tier.is_read_only):
                with self._passing_over():
                    self._put(client, contents)
                    taken += 1
            if not taken:
                raise RemoteError(f"no remote took {path}", f"check that a tier of {abi.ENV_REMOTE} may be written")
            return contents.sha256

    def get_contents(self, sha256: str, to: Path) -> bool:
        """Get the contents with this digest; `to` appears whole. Return whether a tier has them."""
        name = contents_name(sha256)
        for client in self.clients:
            with self._passing_over():
                size = client.size(name)
                if size is None:
                    continue
                size = LARGEST_ENTRY if size == UNKNOWN_SIZE else size
                if size <= LARGEST_ENTRY and not self._fetch_file(client, StoredObject(sha256, size), to, lambda _: ""):
                    return True
                self._bad.add((client.label, sha256))
                self.listener.refused(f"contents {sha256[:16]} of {client.label}: they do not match their name")
        return False

    @contextlib.contextmanager
    def _passing_over(self) -> Iterator[None]:
        try:
            yield
        except TierDown as e:
            self.listener.skipped(e.message)

    def _refuse(self, client: TierClient, entry: EntryName, why: str) -> None:
        text = f"{entry.name} of {client.label}: {why}"
        self.refusals += 1
        said = self._refused.setdefault(entry.name, [])
        if text not in said:  # a waiting caller looks repeatedly
            said.append(text)
            self.listener.refused(text)

    def _fetch_contents(self, client: TierClient, record: EntryRecord, to: Path) -> bool:
        def problem_of(path: Path) -> str:
            return "" if answers_to(path, record.entry.key_id) else "its contents are an entry for another key"

        problem = self._fetch_file(client, record, to, problem_of)
        if problem and problem != _ABSENT:
            self._bad.add((client.label, record.sha256))
            self._refuse(client, record.entry, problem)
        return not problem

    def _fetch_file(
        self, client: TierClient, what: EntryRecord | StoredObject, to: Path, problem_of: Callable[[Path], str]
    ) -> str:
        """Get contents. Return what is wrong with them, or an empty string."""
        stored, unpacked = what, 0
        if isinstance(what, EntryRecord):
            stored, unpacked = what.stored, what.size if what.compressed else 0
        part = to.with_name(f".{to.name}.{secrets.token_hex(6)}")
        try:
            found = client.fetch(contents_name(stored.sha256), stored.size, part, unpacked)
            if found is None:
                return _ABSENT
            problem = problem_of(part) if found == what.sha256 else "its contents do not match its record"
            if not problem:
                part.chmod(0o600)
                part.replace(to)
            return problem
        finally:
            part.unlink(missing_ok=True)

    def _push_to(self, clients: list[TierClient], record: EntryRecord, contents: Payload) -> tuple[str, ...]:
        has_it = []
        with compressing(contents) as compressed:
            for client in clients:
                with self._passing_over():
                    self._push_one(client, record, contents, compressed)
                    has_it.append(client.label)
        return tuple(has_it)

    def _push_one(
        self, client: TierClient, record: EntryRecord, contents: Payload, compressed: Callable[[], Payload]
    ) -> None:
        there = self._record_there(client, record.entry)
        has_contents = False
        if there and there.sha256 == record.sha256:
            record = there.with_signatures(record.signatures)
            is_as_wanted = bool(there.compressed) == client.tier.is_compressed
            has_contents = is_as_wanted and self._has_contents(client, there)
        elif there and self._is_good(client, there, is_signed=bool(record.signatures)):
            return
        if not has_contents:
            if client.tier.is_compressed:
                contents = compressed()
            stored = StoredObject(contents.sha256, contents.size) if client.tier.is_compressed else None
            record = replace(record, compressed=stored)
            self._put(client, contents, is_bad=self._is_bad(client, record.sha256))
        if there != record:
            client.write(record.entry.record, encode(record))

    def _is_bad(self, client: TierClient, sha256: str) -> bool:
        return not self._bad.isdisjoint({("", sha256), (client.label, sha256)})

    def _has_contents(self, client: TierClient, there: EntryRecord) -> bool:
        size = client.size(contents_name(there.stored.sha256))
        return not self._is_bad(client, there.sha256) and size in (there.stored.size, UNKNOWN_SIZE)

    def _record_there(self, client: TierClient, entry: EntryName) -> EntryRecord | None:
        data = client.read(entry.record, LARGEST_RECORD)
        try:
            there = decode(data) if data is not None else None
        except FormatError:
            return None
        return there if there and there.entry == entry else None

    def _is_good(self, client: TierClient, there: EntryRecord, is_signed: bool) -> bool:
        """Return whether the record may stay: it is believed, and not only ours is signed."""
        stays_unsigned = client.tier.is_trusted and (there.signatures or not is_signed)
        if not self.keys.believe(there) and not stays_unsigned:
            return False
        return self._has_contents(client, there)

    def _put(self, client: TierClient, contents: Payload, *, is_bad: bool = False) -> None:
        name = contents_name(contents.sha256)
        if is_bad or self._is_bad(client, contents.sha256) or client.size(name) not in (contents.size, UNKNOWN_SIZE):
            client.write(name, contents.path, size=contents.size)
