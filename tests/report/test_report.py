"""Tests `lazyck report`: the figures are right, and the page takes whatever a history says.
test_report_page.py tests the page in a browser."""

import itertools
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import Lazyck
from support.histories import (
    START,
    hostile_history,
    line,
    many_events,
    page_of,
    write_entries,
    write_history,
    write_log,
    write_manifest,
)

from lazyck.errors import UsageError
from lazyck.history.events import Event
from lazyck.report import figures
from lazyck.report.formatting import duration, middle
from lazyck.report.gather import since_time


def report_json(lazyck: Lazyck, cache: Path, *words: str | Path) -> dict[str, Any]:
    """Return the decoded output of `lazyck report --json`."""
    done = lazyck("report", "--cache", cache, "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- figures ---------------------------------------------------------------------------------------
def test_the_sums_are_those_of_the_events(lazyck: Lazyck, tmp_path: Path) -> None:
    rows = [
        line("one", s=10, size=1000, kib=2048),
        line("one", "load", START + 10, 0.001, what="compiled"),
        line("one", "load", START + 20, 0.001, what="cache", pid=200),
        line("one", "load", START + 20, 0.001, what="tier /shared", pid=300),
        line("two", "load", START + 30, 0.001, what="cache", pid=200),
        line("old", "load", START + 30, 0.001, what="cache", pid=200),
        line("two", "wait", START + 30, 4, what="a compile permit"),
        line("two", s=5, failed=True, what="error: no"),
    ]
    write_history(tmp_path, rows)
    write_entries(tmp_path, rows)
    (tmp_path / ".costs").mkdir()
    (tmp_path / ".costs" / "libops").write_text("7.0 100 old gfx942\n")
    s = report_json(lazyck, tmp_path)["summary"]
    assert (s["compiles"], s["compile_seconds"], s["compiled_blobs"]) == (1, 15, 1)
    assert (s["hits"], s["saved_seconds"], s["unknown_hits"]) == (4, 27, 1)
    assert (s["wait_seconds"], s["failures"], s["processes"], s["hosts"]) == (4, 1, 3, 1)
    assert (s["cache_entries"], s["cache_bytes"]) == (1, 1000)


def test_the_blobs_that_took_longest_come_first(lazyck: Lazyck, tmp_path: Path) -> None:
    rows = [line(f"b{i}", s=i, size=10 * i, kib=i) for i in range(1, 6)]
    rows += [
        line("b2", s=8, t=START + 50, size=77),
        line("b1", "load", what="cache"),
        line("b1", "load", what="compiled"),
    ]
    write_history(tmp_path, rows)
    blobs = report_json(lazyck, tmp_path)["blobs"]
    assert [(b["blob"], b["seconds"]) for b in blobs] == [("b2", 10), ("b5", 5), ("b4", 4), ("b3", 3), ("b1", 1)]
    assert (blobs[0]["compiles"], blobs[0]["size"]) == (2, 77)
    assert blobs[4]["loads"] == 2
    assert sum(b["share"] for b in blobs) == pytest.approx(1)


def test_what_costs_a_blob_took_is_known_from_before_the_period(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path, [line("one", s=10), line("one", "load", START + 9000, 0.001, what="cache")])
    since = time.strftime("%Y-%m-%dT%H:%M", time.localtime(START + 6000))
    s = report_json(lazyck, tmp_path, "--since", since)["summary"]
    assert (s["compiles"], s["hits"], s["saved_seconds"]) == (0, 1, 10)


def test_one_library_can_be_chosen(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path, [line("one", s=1), line("two", s=2, library="libother")])
    assert [b["blob"] for b in report_json(lazyck, tmp_path, "--library", "libother")["blobs"]] == ["two"]
    done = lazyck("report", "--cache", tmp_path, "--library", "libnone", "-o", tmp_path / "x.html")
    assert done.returncode == 1
    assert "libops, libother" in done.stderr


def test_the_whole_library_is_extrapolated_from_what_was_compiled(lazyck: Lazyck, tmp_path: Path) -> None:
    names = ["one", "two"]
    write_history(tmp_path, [line("one", s=10), line("two", s=30), line("two", s=5, failed=True), line("else", s=99)])
    manifest = write_manifest(tmp_path / "manifest", "libops", names, 180)
    (found,) = report_json(lazyck, tmp_path, "--manifest", manifest)["coverage"]
    assert (found["blobs"], found["compiled"], found["mean_seconds"]) == (180, 2, 20)
    assert (found["extrapolated_seconds"], found["extrapolated_from"]) == (3600, 2)
    assert lazyck("report", "--cache", tmp_path, "--manifest", manifest, "-o", tmp_path / "p.html").returncode == 0
    text = (tmp_path / "p.html").read_text()
    assert "1.0 core-hours" in text
    assert "extrapolation from 2 blobs" in text
    assert "--manifest LIB" in page_of(tmp_path)  # it says how to get an extrapolation


def test_a_library_that_was_compiled_whole_is_a_measurement(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path, [line("one", s=3600), line("two", s=1800)])
    text = page_of(tmp_path, write_manifest(tmp_path / "manifest", "libops", ["one", "two"], 2))
    assert "The whole library took <strong>1.5 core-hours</strong>" in text
    assert "extrapolation" not in text


def test_failures_of_one_kind_are_one_row(lazyck: Lazyck, tmp_path: Path) -> None:
    rows = [line("one", t=START + i, failed=True, what="x.h:1: error: no") for i in range(3)]
    write_history(tmp_path, [*rows, line("one", t=START + 9, failed=True, what="killed")])
    failures = report_json(lazyck, tmp_path)["failures"]
    assert [(f["what"], f["count"]) for f in failures] == [("killed", 1), ("x.h:1: error: no", 3)]


FAILED_LOG = """$ clang++ -c {0}.cpp
{0}.cpp:3:1: error: <b>no</b> &amp; \x1b[1mno\x1b[0m
[compile step: exit status 1]
[to reproduce: cd "$(mktemp -d)" && clang++ -c '/s/{0}.cpp']
"""


def test_a_failure_comes_with_the_log_that_was_written_then(lazyck: Lazyck, tmp_path: Path) -> None:
    what = "cannot compile blob 'one' for gfx942: old.cpp:3:1: error: no"
    write_history(tmp_path, [line("one", s=5, failed=True, what=what), line("two", failed=True, what="x")])
    write_log(tmp_path, "one", "0", FAILED_LOG.format("older"), START - 900)
    write_log(tmp_path, "one", "a", FAILED_LOG.format("new"), START + 900)
    mine = write_log(tmp_path, "one", "b", FAILED_LOG.format("old"), START + 5)
    write_log(tmp_path, "one", "c", "$ clang++ -c old.cpp\n", START + 5)  # this compile succeeded
    write_log(tmp_path, "one_more", "d", FAILED_LOG.format("other"), START + 5)
    one, two = report_json(lazyck, tmp_path)["failures"]
    assert one["log"]["path"] == str(mine)
    assert one["log"]["command"] == "cd \"$(mktemp -d)\" && clang++ -c '/s/old.cpp'"
    assert one["log"]["end"].splitlines()[0].startswith("old.cpp:3:1: error:")
    assert "command below" in one["hint"]
    assert (two["log"], "lazyck prebuild build" in two["hint"]) == (None, True)
    page = page_of(tmp_path)
    assert page.index("<h2>Failures</h2>") < page.index("<h2>Slowest blobs</h2>")
    assert "old.cpp:3:1: error: &lt;b&gt;no&lt;/b&gt; &amp;amp; \\x1b[1mno\\x1b[0m\n[compile step" in page
    assert "&amp;&amp; clang++ -c &#x27;/s/old.cpp&#x27;" in page
    assert '<p class="what mono">old.cpp:3:1: error: no</p>' in page  # blob and arch stand above this line


def test_what_went_well_later_comes_last_and_says_so(lazyck: Lazyck, tmp_path: Path) -> None:
    rows = [line("one", t=START, failed=True, what="x"), line("two", t=START + 5, failed=True, what="Killed")]
    write_history(tmp_path, [*rows, line("two", t=START + 9), line("one", "wait", t=START + 9)])
    one, two = report_json(lazyck, tmp_path)["failures"]
    assert (one["blob"], one["is_over"], two["blob"], two["is_over"]) == ("one", False, "two", True)
    assert two["hint"] == "A later attempt succeeded: there is nothing to do."


def test_a_log_of_any_size_shows_its_end(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path, [line("one", failed=True, what="x")])
    write_log(tmp_path, "one", "a", ("note: again " * 20 + "\n") * 10_000 + FAILED_LOG.format("one"), START)
    (found,) = report_json(lazyck, tmp_path)["failures"]
    assert found["log"]["end"].splitlines()[-2].startswith("one.cpp:3:1: error")
    assert len(found["log"]["end"]) <= 4000


def test_a_link_in_the_cache_is_not_read_as_a_log(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path, [line("one", failed=True, what="x")])
    log = write_log(tmp_path, "one", "a", FAILED_LOG.format("one"), START)
    log.rename(tmp_path / "secret")
    log.symlink_to(tmp_path / "secret")
    assert report_json(lazyck, tmp_path)["failures"][0]["log"] is None


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("it took longer than 60.0 s (LAZYCK_COMPILE_TIMEOUT) and was killed", "LAZYCK_COMPILE_TIMEOUT"),
        ("clang++: error: unable to execute command: Killed", "LAZYCK_MEM_PER_JOB"),
        ("x.s: No space left on device", "lazyck cache trim --max-size 10G"),
        ("cannot start '/opt/rocm/bin/hipcc': No such file or directory; install that compiler", "Install that"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_999'", "LAZYCK_ARCHS"),
        ("the bundle was changed while it was compiled from: x.h", "install the library again"),
        ("x.cpp:1:1: error: no", "lazyck prebuild build"),
    ],
)
def test_a_failures_hint_is_that_of_its_cause(lazyck: Lazyck, tmp_path: Path, what: str, hint: str) -> None:
    write_history(tmp_path, [line("one", failed=True, what=f"cannot compile blob 'one' for gfx942: {what}")])
    assert hint in report_json(lazyck, tmp_path)["failures"][0]["hint"]


def events(*rows: tuple[float, float, int]) -> list[Event]:
    return [Event("compile", f"b{i}", t, s, pid=pid, size=10) for i, (t, s, pid) in enumerate(rows)]


def test_runs_are_cut_at_long_pauses() -> None:
    found = figures.runs(events((0, 10, 1), (5, 4000, 1), (5000, 1, 2), (9000, 1, 1)))
    assert [(r.start, r.end, r.compiles) for r in found] == [(0, 5001, 3), (9000, 9001, 1)]


def test_many_short_processes_share_lanes_and_never_overlap_there() -> None:
    rows = [(i // 4 * 10.0, 9.0, 1000 + i) for i in range(400)]  # `lazyck prebuild` compiles four at a time
    lanes = figures.lanes(events(*rows))
    assert len(lanes) == 4
    for lane in lanes:
        (row,) = lane.threads
        assert all(a.start + a.seconds <= b.start for a, b in itertools.pairwise(row))
    assert len(figures.lanes(events(*rows[:8]))) == 8


def test_growth_ends_with_the_sum_however_much_it_is_thinned_out() -> None:
    for n in (1, 599, 600, 601, 1250, 5000):
        steps = figures.growth(events(*[(float(i), 1.0, 1) for i in range(n)]))
        assert len(steps) <= 601
        assert steps[-1] == (float(n), 10 * n)


def test_times_since_which_to_report() -> None:
    assert since_time("", 1e9) == 0
    assert [since_time(t, 1e9) for t in ("90m", "2d")] == [1e9 - 5400, 1e9 - 172800]
    assert abs(since_time("2026-01-05", 1e9) - START) < 2 * 86400
    for wrong in ("yesterday", "5y", "-3h", "99999-01-01", "²d"):
        with pytest.raises(UsageError, match="--since"):
            since_time(wrong, 1e9)


def test_words() -> None:
    assert [duration(s) for s in (0, 0.0123, 3.21, 45.67, 200, 7200)] == [
        "0 s", "12 ms", "3.21 s", "45.7 s", "3.3 min", "2.0 h",
    ]  # fmt: skip
    assert middle("x" * 300).startswith("xxx")
    assert len(middle("x" * 300)) <= 160


# -- errors ----------------------------------------------------------------------------------------
def test_a_cache_that_is_not_there_or_a_history_that_is_none_is_a_clear_error(lazyck: Lazyck, tmp_path: Path) -> None:
    cases = {tmp_path / "nothing": "no such cache"}
    (tmp_path / "bad" / ".history").mkdir(parents=True)
    (tmp_path / "bad" / ".history" / "node").write_text("x\ny\n")
    cases[tmp_path / "bad"] = "none of its 2 lines"
    for cache, message in cases.items():
        done = lazyck("report", "--cache", cache, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "lazyck-report.html").exists()


@pytest.mark.parametrize("is_there", [True, False], ids=["a cache without a history", "no cache yet"])
def test_where_nothing_happened_yet_the_page_says_so_and_what_to_do(
    lazyck: Lazyck, tmp_path: Path, is_there: bool
) -> None:
    if is_there:
        (tmp_path / "lazyck-cache").mkdir(mode=0o700)
    done = lazyck("report", cwd=tmp_path)  # conftest sets LAZYCK_CACHE_DIR
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "lazyck-report.html").read_text()
    assert f"Nothing was compiled into the cache <code>{tmp_path}/lazyck-cache</code>" in page
    assert "lazyck prebuild build --manifest LIB --all" in page
    assert "<h2>Timeline</h2>" not in page
    done = lazyck("report", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["summary"]["compiles"] == 0


def test_the_users_own_cache_is_the_default(lazyck: Lazyck, tmp_path: Path) -> None:
    write_history(tmp_path / "lazyck-cache", [line("mine")])  # conftest sets LAZYCK_CACHE_DIR
    done = lazyck("report", cwd=tmp_path)
    assert done.stdout == "lazyck: wrote lazyck-report.html\n"
    assert "mine" in (tmp_path / "lazyck-report.html").read_text()


# -- the page --------------------------------------------------------------------------------------
class Reader(HTMLParser):
    """Parses a page into its elements with their attributes, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._is_script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.scripts[-1] += data


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile_history(tmp_path)
    plain, hostile = tmp_path / "plain", page_of(tmp_path)
    write_history(plain, [line("x", s=1), line("x", "load"), line("x", failed=True)])
    found = Reader(hostile)
    assert {t for t, _ in found.elements} <= {t for t, _ in Reader(page_of(plain)).elements} | {"li"}
    assert not [a for _, attributes in found.elements for a in attributes if a.startswith("on")]
    assert len(found.scripts) == 2
    data = json.loads(found.scripts[0])
    assert "</script><script>alert(1)</script>" in data["words"]
    assert "<" not in found.scripts[0]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2028\ud800-\udfff]", hostile)


def test_the_page_fetches_nothing(tmp_path: Path) -> None:
    write_history(tmp_path, [line("x")])
    page = page_of(tmp_path)
    found = Reader(page)
    policy = next(a["content"] for t, a in found.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not {t for t, _ in found.elements} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [a for _, a in found.elements if {"src", "href", "style", "srcset"} & a.keys()]
    assert set(re.findall(r"https?://[^\"' ]*", page)) <= {"http://www.w3.org/2000/svg"}  # a namespace, not an address


@pytest.mark.slow
def test_a_big_history_makes_a_page_of_bounded_size(tmp_path: Path) -> None:
    write_history(tmp_path, many_events(5000))
    begin = time.monotonic()
    page = page_of(tmp_path)
    assert time.monotonic() - begin < 10
    assert len(page) < 1_500_000
    write_history(tmp_path / "huge", many_events(40_000, 1000))
    page = page_of(tmp_path / "huge")
    assert len(page) < 4_000_000
    assert "of 40,000 events, the shortest, are left out" in page
    rows = [line(f"{i}{'x' * 9000}", t=START + 3600 * i, host="h" * 9000, library="l" * 9000) for i in range(900)]
    write_history(tmp_path / "long", rows)
    assert len(page_of(tmp_path / "long")) < 4_000_000


def test_a_history_of_one_load_alone_makes_a_page(tmp_path: Path) -> None:
    write_history(tmp_path, [line("x", "load", what="cache", s=0, host="", library="", arch="")])
    page = page_of(tmp_path)
    assert "Nothing was compiled" in page
    assert "No entry was published" in page
