"""Tests the decoders of histories, traces and costs: they read what the runtime writes, and other
content does no harm."""

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.histories import START, line, write_history

from lazyck.errors import FormatError
from lazyck.history.costs import read_costs
from lazyck.history.events import Event, decode_event, merge, read_history, read_trace


def test_every_member_is_read() -> None:
    text = (
        '{"t": 1767600000.125, "s": 2.500000, "kind": "compile", "library": "libops", "blob": "a b", "arch": "gfx942", '
        '"pid": 7, "tid": 8, "host": "n", "rank": 3, "failed": true, "what": "no", "kib": 1024, "size": 99}\n'
    )
    want = Event("compile", "a b", 1767600000.125, 2.5, "libops", "gfx942", 7, 8, "n", 3, True, "no", 1024, 99)
    assert decode_event(text.encode()) == want


def test_members_that_say_nothing_may_be_left_out() -> None:
    event = decode_event(b'{"t": 1, "s": 0, "kind": "load", "blob": "x"}', "node")
    assert event == Event("load", "x", 1.0, 0.0, host="node")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"t": 1, "s": 1, "kind": "compile", "blob": "x"',
        b'{"t": NaN, "s": 1, "kind": "compile", "blob": "x"}',
        b'{"t": 1, "s": Infinity, "kind": "compile", "blob": "x"}',
        b'{"t": 1, "s": 1e400, "kind": "compile", "blob": "x"}',
        b'{"t": 1, "s": -1, "kind": "compile", "blob": "x"}',
        b'{"t": true, "s": 1, "kind": "compile", "blob": "x"}',
        b'{"t": "1", "s": 1, "kind": "compile", "blob": "x"}',
        b'{"t": 1, "s": 1, "kind": ["compile"], "blob": "x"}',
        b'{"t": 1, "s": 1, "kind": "explode", "blob": "x"}',
        b'{"t": 1, "s": 1, "kind": "compile", "blob": 5}',
        b'{"t": ' + b"9" * 5000 + b', "s": 1, "kind": "compile", "blob": "x"}',
        b'{"t": 1, "s": 1, "kind": "compile", "blob": "\xff"}',
        b"[" * 60_000,
    ],
)
def test_what_is_no_event_is_passed_over(text: bytes) -> None:
    assert decode_event(text) is None


def test_numbers_of_no_sense_are_unknown() -> None:
    raw = line("x", pid=-1, rank=1e300, kib="many", size=float("inf"))
    event = decode_event(json.dumps(raw).encode())
    assert event is not None
    assert (event.pid, event.rank, event.peak_kib, event.size) == (0, -1, 0, 0)


def test_texts_are_shown_as_text() -> None:
    event = decode_event(json.dumps(line("a\x1b[31m\u202eb\udcff", what="x\ny")).encode())
    assert event is not None
    assert event.blob == "a\\x1b[31m\\xe2\\x80\\xaeb\\xff"
    assert event.what == "x\\x0ay"


def test_files_of_all_hosts_and_moved_ones_are_read_in_order_of_time(tmp_path: Path) -> None:
    write_history(tmp_path, [line("late", t=START + 9)], "b")
    write_history(tmp_path, [line("early", t=START)], "a.1")
    write_history(tmp_path, [line("middle", t=START + 5)], "a")
    found = read_history(tmp_path)
    assert [e.blob for e in found.events] == ["early", "middle", "late"]


def test_bad_cut_and_overlong_lines_are_counted_and_the_others_read(tmp_path: Path) -> None:
    path = write_history(tmp_path, [line("one")])
    with path.open("ab") as f:
        f.write(b"garbage\n" + json.dumps(line("x" * 70_000)).encode() + b"\n")
        f.write(json.dumps(line("two")).encode() + b'\n{"t": 1, "s"')
    found = read_history(tmp_path)
    assert [e.blob for e in found.events] == ["one", "two"]
    assert found.passed_over == 3


def test_no_history_is_empty(tmp_path: Path) -> None:
    assert read_history(tmp_path).events == ()
    assert read_history(tmp_path / "nothing").events == ()


def test_links_pipes_and_directories_are_not_followed_or_waited_for(tmp_path: Path) -> None:
    path = write_history(tmp_path, [line("one")])
    os.mkfifo(path.parent / "pipe")
    (path.parent / "directory").mkdir()
    assert [e.blob for e in read_history(tmp_path).events] == ["one"]
    (path.parent / "link").symlink_to("/dev/zero")
    assert [e.blob for e in read_history(tmp_path).events] == ["one"]


def test_a_huge_line_takes_no_memory(tmp_path: Path) -> None:
    path = write_history(tmp_path, [line("one")])
    with path.open("ab") as f:
        f.truncate(path.stat().st_size + (200 << 20))  # zeros, without an end of line
    with path.open("ab") as f:
        f.write(b"\n" + json.dumps(line("two")).encode() + b"\n")
    tracemalloc.start()
    begin = time.monotonic()
    found = read_history(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [e.blob for e in found.events] == ["two"]
    assert peak < 4 << 20
    assert time.monotonic() - begin < 20


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.dictionaries(st.sampled_from(["t", "s", "kind", "blob", "pid", "rank", "what", "args"]), inner),
).map(lambda raw: json.dumps(raw).encode())))  # fmt: skip
def test_any_bytes_are_an_event_or_none(text: bytes) -> None:
    event = decode_event(text)
    assert event is None or (event.start >= 0 and event.seconds >= 0 and event.blob)


TRACE = """[
{"ph": "M", "name": "process_name", "pid": 7, "tid": 7, "args": {"name": "rank 3, process 7 on node1"}},
{"ph": "X", "name": "one", "pid": 7, "tid": 8, "cat": "compile", "ts": 1767600000123457, "dur": 2500000, """ + (
    '"args": {"library": "libops", "arch": "gfx942", "failed": false, "peak_kib": 5, "size": 6}},\n'
)


def test_a_trace_is_read_with_host_and_rank(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(TRACE + '{"ph": "X", "name"')
    found = read_trace(path)
    (event,) = found.events
    assert found.passed_over == 1
    assert (event.kind, event.blob, event.library, event.arch) == ("compile", "one", "libops", "gfx942")
    assert (event.host, event.rank, event.pid, event.tid) == ("node1", 3, 7, 8)
    assert (round(event.start, 6), event.seconds, event.peak_kib, event.size) == (1767600000.123457, 2.5, 5, 6)
    assert not event.has_failed


def test_an_event_of_a_trace_and_of_a_history_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(TRACE)
    write_history(tmp_path, [line("one", t=1767600000.123, s=2.5, pid=7, tid=8), line("one", t=START + 60)])
    found = merge([read_history(tmp_path), read_trace(tmp_path / "trace.json")])
    assert len(found.events) == 2


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n")
    for path in (tmp_path / "text", tmp_path / "nothing", tmp_path):
        with pytest.raises(FormatError, match=str(path)):
            read_trace(path)


def test_the_newest_cost_of_a_blob_counts_and_those_of_killed_compiles_do_not(tmp_path: Path) -> None:
    (tmp_path / ".costs").mkdir()
    (tmp_path / ".costs" / "libops").write_text(
        "1.5 100 one sm_80\n2.5 100 one sm_80\n4.0 100 one sm_90\n9.0 100 !one sm_80\nx y z\n3.0 7 a gfx9_4_generic\n"
        "nan 1 c sm_80\n-1 2 n sm_80\n1e9 2 m sm_80\n7.0 1 old\n7.0 1 a/b sm_80\n2.0 3 cut sm_80"
    )
    found = read_costs([tmp_path / "nothing", tmp_path])
    assert found.seconds == {
        ("libops", "one", "sm_80"): 2.5, ("libops", "one", "sm_90"): 4.0, ("libops", "a", "gfx9_4_generic"): 3.0,
    }  # fmt: skip
    assert (found.of("libops", "one", "sm_80"), found.of("libops", "one", "sm_100")) == (2.5, 4.0)
    assert found.of("libops", "a", "gfx9-4-generic") == 3.0
    assert found.of("libops", "b") is None
    assert found.of_library("libops") == {"one": 3.25, "a": 3.0}
    assert read_costs([tmp_path], ["libother"]).seconds == {} and read_costs([tmp_path / "nothing"]).mean is None
    older = Event("compile", "one", 1.0, 8.0, "libops", "sm_80")
    assert found.with_events([older]).of("libops", "one", "sm_80") == 8.0
    other = tmp_path / "other" / ".costs"
    other.mkdir(parents=True)
    (other / "libops").write_text("99.0 1 one sm_80\n99.0 1 one sm_70\n")
    both = read_costs([tmp_path, tmp_path / "other"])
    assert (both.of("libops", "one", "sm_80"), both.of("libops", "one", "sm_70")) == (2.5, 99.0)
