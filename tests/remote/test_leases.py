"""Tests leases: their text, which hosts with different versions of lazyck write alike, and each
step at a store in memory."""

from typing import Any, cast

import pytest

from lazyck.remote import EntryName, lease
from lazyck.remote.lease import Holder, Lease, LeaseState

ENTRY = EntryName("0123456789abcdef" * 2, "libx/gfx942-rocm7/my-blob-0123456789abcdef.so")


def text_of(**changes: str) -> bytes:
    words = {"token": "abc", "host": "node-1", "counter": "4", "seconds": "20.5", "failures": "2"} | changes
    return "".join(f"{w}\n" for w in ("lazyck lease 1", *words.values())).encode()


def test_a_lease_is_the_lines_that_others_read() -> None:
    assert Holder("abc", "node-1", 4, 20.5, 2).encode() == text_of(seconds="20.500")
    assert lease.decode(text_of(), 9.0) == Holder("abc", "node-1", 0, 20.5, 2)


@pytest.mark.parametrize(
    ("told", "meant"), [("0", 0.1), ("0.1", 0.1), ("0.2", 0.2), ("599.5", 599.5), ("600", 600.0), ("9999", 600.0)]
)
def test_a_lease_lasts_neither_for_ever_nor_no_time(told: str, meant: float) -> None:
    assert lease.decode(text_of(seconds=told), 9.0).seconds == meant


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", text_of() + b"\n", text_of()[:-1], text_of(token="A"), text_of(host="a b"), text_of(counter="-1"),
        text_of(failures="x"), text_of(host="h" * 256), text_of(token="t" * 65), text_of(seconds="1e3"),
    ],
)  # fmt: skip
def test_what_is_no_lease_is_one_of_an_unknown_holder(data: bytes) -> None:
    assert lease.decode(data, 9.0) == Holder("unknown", "unknown", 0, 9.0, 0)


class Shelf:
    """A place that holds one lease. With `is_blind` it cannot tell whether a write was first."""

    def __init__(self, data: bytes | None = None, *, is_blind: bool = False, deletes: bool = True) -> None:
        self.data, self.is_blind, self.deletes = data, is_blind, deletes
        self.kept = 0.0

    def read(self, name: str, most: int) -> bytes | None:
        assert (name, most) == (ENTRY.lease, 1000)
        return self.data

    def create(self, name: str, data: bytes, seconds: float) -> bool | None:
        assert name == ENTRY.lease
        if self.data is not None:
            return None if self.is_blind else False
        self.data, self.kept = data, seconds
        return None if self.is_blind else True

    def replace(self, name: str, old: bytes, data: bytes, seconds: float) -> bool | None:
        assert name == ENTRY.lease
        if self.data != old:
            return False
        self.data, self.kept = data, seconds
        return None if self.is_blind else True

    def delete(self, name: str) -> bool:
        assert name == ENTRY.lease
        if self.deletes:
            self.data = None
        return self.deletes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


def lease_at(shelf: Shelf, host: str = "node-2", seconds: float = 20.0) -> Lease:
    return Lease(cast(Any, shelf), ENTRY, seconds, host)


def told(shelf: Shelf) -> list[str]:
    """Return the lines of the lease without its token."""
    assert shelf.data is not None
    head, _, *rest = shelf.data.decode().splitlines()
    assert head == "lazyck lease 1"
    return rest


def test_a_free_lease_is_taken_renewed_and_gone_once_the_entry_is_there(clock: Clock) -> None:
    shelf = Shelf()
    mine = lease_at(shelf)
    assert (mine.look(), mine.is_held, mine.holder) == (LeaseState.FREE, False, "")
    assert mine.take()
    assert mine.is_held
    assert (told(shelf), shelf.kept) == (["node-2", "1", "20.000", "0"], 20.0)
    mine.renew()
    assert told(shelf) == ["node-2", "2", "20.000", "0"]
    mine.renew()
    assert (told(shelf)[1], mine.is_held) == ("3", True)
    mine.release(is_made=True)
    assert (shelf.data, mine.is_held) == (None, False)


def test_who_comes_second_waits_and_sees_the_end(clock: Clock) -> None:
    shelf = Shelf()
    first, second = lease_at(shelf, "node-1"), lease_at(shelf)
    assert first.look() is LeaseState.FREE
    assert second.look() is LeaseState.FREE
    assert first.take()
    assert not second.take()
    assert second.look() is LeaseState.HELD
    assert (second.holder, second.is_held, second.is_done) == ("node-1", False, False)
    first.release(is_made=True)
    assert second.look() is LeaseState.FREE
    assert second.is_done
    assert second.look() is LeaseState.FREE
    assert not second.is_done


def test_a_lease_that_stays_unchanged_for_its_time_is_over(clock: Clock) -> None:
    shelf = Shelf(text_of(seconds="30"))
    mine = lease_at(shelf)
    assert mine.look() is LeaseState.HELD
    clock.now += 30
    assert mine.look() is LeaseState.HELD
    clock.now += 0.1
    assert mine.look() is LeaseState.FREE
    assert mine.take()
    assert told(shelf)[3] == "3"  # its holder ended without an entry, as two before it


def test_a_renewed_lease_is_not_over(clock: Clock) -> None:
    shelf = Shelf(text_of(seconds="30"))
    mine = lease_at(shelf)
    assert mine.look() is LeaseState.HELD
    clock.now += 29
    shelf.data = text_of(seconds="30", counter="5")
    assert mine.look() is LeaseState.HELD
    clock.now += 29
    assert mine.look() is LeaseState.HELD


def test_what_somebody_else_took_meanwhile_is_not_taken(clock: Clock) -> None:
    shelf = Shelf(text_of(token="free"))
    mine = lease_at(shelf)
    assert mine.look() is LeaseState.FREE
    shelf.data = text_of(token="other")
    assert not mine.take()
    assert shelf.data == text_of(token="other")


def test_nobody_waits_for_a_blob_that_failed_three_times(clock: Clock) -> None:
    assert lease_at(Shelf(text_of(failures="2"))).look() is LeaseState.HELD
    assert lease_at(Shelf(text_of(failures="3"))).look() is LeaseState.HOPELESS


def test_who_fails_leaves_the_lease_free_and_counts(clock: Clock) -> None:
    shelf = Shelf()
    mine, other = lease_at(shelf), lease_at(shelf, "node-3")
    assert mine.look() is LeaseState.FREE and mine.take()
    other.look()
    mine.release(is_made=False)
    assert shelf.data and shelf.data.split(b"\n")[1] == b"free"
    assert (told(shelf), shelf.kept) == (["node-2", "0", "600.000", "1"], 600.0)
    assert other.look() is LeaseState.FREE
    assert not other.is_done
    assert other.take()
    assert told(shelf) == ["node-3", "1", "20.000", "1"]


def test_a_store_that_cannot_delete_is_told_that_the_entry_is_there(clock: Clock) -> None:
    shelf = Shelf(deletes=False)
    mine, other = lease_at(shelf), lease_at(shelf)
    assert mine.look() is LeaseState.FREE and mine.take()
    assert other.look() is LeaseState.HELD
    mine.release(is_made=True)
    assert told(shelf)[3] == "0"
    assert other.look() is LeaseState.FREE
    assert other.is_done


def test_a_lease_that_another_took_is_given_up(clock: Clock) -> None:
    shelf = Shelf()
    mine = lease_at(shelf)
    mine.renew()
    mine.release(is_made=False)
    assert shelf.data is None
    assert mine.look() is LeaseState.FREE and mine.take()
    shelf.data = text_of(token="other")
    mine.renew()
    assert not mine.is_held
    mine.release(is_made=False)
    assert shelf.data == text_of(token="other")


def test_a_lease_that_the_store_has_forgotten_is_made_again(clock: Clock) -> None:
    shelf = Shelf()
    mine = lease_at(shelf)
    assert mine.look() is LeaseState.FREE and mine.take()
    shelf.data = None
    mine.renew()
    assert (told(shelf)[:2], mine.is_held) == (["node-2", "2"], True)


def test_who_is_first_at_a_blind_store_is_seen_after_a_while(clock: Clock) -> None:
    shelf = Shelf(is_blind=True)
    first, second = lease_at(shelf, "node-1"), lease_at(shelf)
    assert first.look() is second.look() is LeaseState.FREE
    assert first.take()
    assert clock.now >= 100.15
    assert not second.take()


def test_whoever_has_an_entry_ends_the_lease_that_it_saw(clock: Clock) -> None:
    shelf = Shelf(text_of())
    waiting = lease_at(shelf)
    assert waiting.look() is LeaseState.HELD
    waiting.release(is_made=False)
    assert shelf.data == text_of()
    waiting.release(is_made=True)
    assert shelf.data is None
    unseen = Shelf(text_of())
    lease_at(unseen).release(is_made=True)
    assert unseen.data == text_of()


@pytest.mark.parametrize(("host", "shown"), [("a b\n", "a_b_"), ("", "_"), ("h" * 300, "h" * 255)])
def test_a_host_of_any_name_is_spelled_in_a_lease(clock: Clock, host: str, shown: str) -> None:
    shelf = Shelf()
    mine = lease_at(shelf, host)
    assert mine.look() is LeaseState.FREE and mine.take()
    assert told(shelf)[0] == shown
