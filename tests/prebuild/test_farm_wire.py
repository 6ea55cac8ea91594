"""Tests orders and answers as bytes: what is read is what was written, and anything else is
refused."""

import json
import os
import pickle
import pickletools
import threading
from pathlib import Path
from typing import Any

import pytest

from lazyck.errors import BuildError, FormatError
from lazyck.prebuild.blob_entries import keep_log
from lazyck.prebuild.farm.guard import LoadingRefusedError, describe, refusing_pickles
from lazyck.prebuild.farm.messages import (
    LARGEST_ANSWER,
    CompileOrder,
    CompileResult,
    WorkerQuery,
    WorkerReport,
    decode_message,
    encode_message,
)
from lazyck.prebuild.farm.worker import answer_order, answer_query, stop

RUN, KEY, BUNDLE = "0123456789abcdef", "0" * 32, "a" * 64
MADE = CompileResult("node7", 1, "no\nspace \udcff", "log", (1.5, 2048), "", False, 2.5)
MESSAGES: list[CompileResult | CompileOrder | WorkerReport | WorkerQuery] = [
    WorkerQuery(RUN, bytes(range(256)), {"LAZYCK_TRUST": "/keys"}),
    WorkerReport("node7", "d1gest", {0: "gcc-14", 12: "clang"}, {3: "no toolchain"}),
    CompileOrder(RUN, BUNDLE, "libk", "k1", ("gfx942", "gfx90a"), KEY, {}, "0"),
    MADE,
    CompileResult("node7"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_is_read_back_as_it_was_written(message: Any) -> None:
    data = encode_message(message)
    assert decode_message(type(message), data) == message
    assert json.loads(data)["lazyck-farm"] == 1


def changed(**fields: Any) -> bytes:
    whole = json.loads(encode_message(MADE))
    whole["made"] |= fields
    return json.dumps(whole).encode()


def without(name: str) -> bytes:
    whole = json.loads(encode_message(MADE))
    del whole["made"][name]
    return json.dumps(whole).encode()


TEXT = encode_message(MADE).decode()


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(MADE), MADE, None, "text", 7, ["made"], b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000,
        TEXT.replace('"lazyck-farm":1', '"lazyck-farm":2').encode(),
        TEXT.replace('"lazyck-farm":1', '"lazyck-farm":true').encode(),
        TEXT.replace('"lazyck-farm":1,', "").encode(),
        TEXT.replace('"made"', '"report"').encode(),
        (TEXT[:-1] + ',"more":1}').encode(),
        TEXT.replace('"status":1', '"status":0,"status":1').encode(),
        TEXT.replace('"seconds":2.5', '"seconds":NaN').encode(),
        TEXT.replace('"seconds":2.5', '"seconds":Infinity').encode(),
        TEXT.replace('"seconds":2.5', '"seconds":1e999').encode(),
        TEXT.replace('"seconds":2.5', '"seconds":' + "9" * 10_000).encode(),
        without("host"), changed(more=1), changed(host=None), changed(host="x" * 5000), changed(status=True),
        changed(status=1.0), changed(status=1 << 40), changed(output=["x"]), changed(log="\ud800"), changed(cost=[1]),
        changed(cost=[1.0, -1]), changed(cost=["1", 1]), changed(is_stopped=1), changed(seconds="1"),
        changed(seconds=-1), changed(problem="x" * (300 << 10)),
    ],
    ids=lambda data: str(data)[-40:],
)  # fmt: skip
def test_what_is_no_answer_is_refused(data: object) -> None:
    with pytest.raises(FormatError):
        decode_message(CompileResult, data)


def test_an_answer_longer_than_any_is_not_read() -> None:
    with pytest.raises(FormatError, match="at most"):
        decode_message(CompileResult, b" " * (LARGEST_ANSWER + 1) + encode_message(MADE), LARGEST_ANSWER)


@pytest.mark.parametrize(
    "fields",
    [
        {"run": "x"}, {"bundle": "../x"}, {"library": "../x"}, {"key": "x"}, {"archs": "gfx942"}, {"blob": 1},
        {"settings": {"PATH": "/x"}}, {"settings": {"LAZYCK_TRUST": 1}},
    ],
)  # fmt: skip
def test_an_order_that_no_client_writes_is_refused_by_a_worker(fields: dict[str, Any]) -> None:
    whole = json.loads(encode_message(MESSAGES[2]))
    whole["order"] |= fields
    made = decode_message(CompileResult, answer_order(json.dumps(whole).encode()))
    assert made.problem.startswith("order: ")
    assert decode_message(WorkerReport, answer_query(b"x")).problem.startswith("visit: ")


def test_a_log_of_any_text_that_was_read_can_be_kept(tmp_path: Path) -> None:
    class Entry:
        log = tmp_path / "log"

    keep_log(Entry(), decode_message(CompileResult, changed(log="a\udcffb")).log)  # type: ignore[arg-type]
    assert Entry.log.read_bytes() == b"a\xffb"


@pytest.mark.parametrize("function", [answer_query, answer_order, stop])
def test_workers_find_their_functions_by_name(function: Any) -> None:
    serialize = pytest.importorskip("distributed.protocol.pickle", reason="needs lazyck[farm]")
    words = [w for _, w, _ in pickletools.genops(serialize.dumps(function)) if isinstance(w, str)]
    assert words == ["lazyck.prebuild.farm.worker", function.__name__]


# -- the guard -------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self) -> Any:
        return os.getpid, ()


@pytest.mark.parametrize("load", [pickle.loads, pickle._loads], ids=["C", "Python"])  # type: ignore[attr-defined]
def test_no_pickle_loads_anything_while_the_guard_is_there(load: Any) -> None:
    evil = pickle.dumps(Evil())
    assert load(evil) == os.getpid()
    with refusing_pickles() as guard:
        with pytest.raises(LoadingRefusedError):
            load(evil)
        assert guard.refused == ["posix.getpid"]
        with pytest.raises(BuildError, match=r"posix\.getpid"):
            guard.check()
        assert load(pickle.dumps([1, "a", {"b": b"c"}, bytes])) == [1, "a", {"b": b"c"}, bytes]
        assert repr(load(b"cbuiltins\nValueError\n(Vx\ntR.")) == "ValueError('x')"
    assert load(evil) == os.getpid()


@pytest.mark.parametrize("name", ["eval", "exec", "getattr", "__import__", "open", "SystemExit", "KeyboardInterrupt"])
def test_builtins_that_are_no_exceptions_are_refused(name: str) -> None:
    data = f"cbuiltins\n{name}\n.".encode()
    assert callable(pickle.loads(data))
    with refusing_pickles() as guard, pytest.raises(LoadingRefusedError):
        pickle.loads(data)
    assert guard.refused == [f"builtins.{name}"]


def test_the_guard_is_there_in_all_threads() -> None:
    found: list[object] = []

    def load() -> None:
        try:
            found.append(pickle.loads(pickle.dumps(Evil())))
        except Exception as e:
            found.append(type(e))

    with refusing_pickles():
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    assert found == [LoadingRefusedError]


def test_what_honest_workers_send_beside_is_refused_without_a_word() -> None:
    with refusing_pickles() as guard:
        with pytest.raises(LoadingRefusedError):
            pickle.loads(b"ctblib.pickling_support\nunpickle_traceback\n.")
        guard.check()


def test_a_name_that_is_refused_is_shown_as_text() -> None:
    with refusing_pickles() as guard, pytest.raises(LoadingRefusedError):
        pickle.loads(b"c\x1b[31mx\n\x07y\n.")
    assert guard.refused == ["\\x1b[31mx.\\x07y"]


def test_an_exception_that_was_refused_is_described_without_being_loaded() -> None:
    assert describe(OSError("x\x1b")) == "OSError('x\\x1b')"
    assert describe(Exception(b"\x00nothing")) == "an exception that cannot be shown"
    tblib = pytest.importorskip("tblib.pickling_support", reason="needs lazyck[farm]")
    error = ModuleNotFoundError("No module named 'lazyck'")
    tblib.install(error)
    assert describe(Exception(pickle.dumps(error))) == "ModuleNotFoundError: No module named 'lazyck'"
    assert len(describe(Exception(pickle.dumps(["OddError", "x" * 1000])))) == 300
