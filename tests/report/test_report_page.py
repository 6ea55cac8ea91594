"""Tests the page of `lazyck report` in a headless browser: what it shows, how it looks, and what
can be done with it.

Screenshots are kept in the directory that LAZYCK_TEST_SHOTS names.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import REPOSITORY, Lazyck
from support.browser import MISSING, Browser, browser
from support.histories import (
    HOSTILE,
    START,
    hostile_history,
    line,
    many_events,
    page_of,
    ranked_job,
    write_entries,
    write_history,
    write_log,
    write_manifest,
)
from support.ops_library import build_ops, copy_project
from support.shown_sizes import SHOWN

SHOTS = os.environ.get("LAZYCK_TEST_SHOTS", "")


def chromium(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs the browser. One worker runs all these tests, with one browser."""
    skips = pytest.mark.skipif(bool(MISSING), reason=MISSING)
    marked: Callable[..., None] = pytest.mark.xdist_group("browser")(skips(test))
    return marked


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    """Open a page of a headless browser for all tests of this module."""
    with browser() as found:
        yield found


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Return the directory for screenshots."""
    place = Path(SHOTS or tmp_path)
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of two runs of eight ranks, and return its path."""
    cache = tmp_path_factory.mktemp("job")
    every = [row for rows in ranked_job().values() for row in rows]
    for host, rows in ranked_job().items():
        write_history(cache, rows, host)
    write_entries(cache, every)
    manifests = []
    for library, blobs in (("libfmha_fwd", 1347), ("libfmha_bwd", 1424)):
        names = sorted({r["blob"] for r in every if r["library"] == library})
        manifests.append(write_manifest(cache / f"{library}.manifest", library, names, blobs))
    page = cache / "report.html"
    page.write_text(page_of(cache, *manifests))
    return page


# This compares each text with the nearest background that is not transparent, and returns the
# elements whose contrast is below WCAG's 4.5.
FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const paint = (color, below) => { canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const css = (c) => `rgb(${c[0]},${c[1]},${c[2]})`;
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= .04045 ? v / 12.92 :
    ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => e ? paint(getComputedStyle(e).backgroundColor, css(ground(e.parentElement))) : [255, 255, 255];
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || ['SCRIPT', 'STYLE', 'OPTION'].includes(e.tagName)) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const below = ground(e), style = getComputedStyle(e);
    const ink = paint(e instanceof SVGElement ? style.fill : style.color, css(below));
    const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found.push([e.tagName, e.getAttribute('class'), ratio, e.textContent.slice(0, 30)].join(' '));
  }
  return found;
})()"""


@chromium
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420, 360])
def test_the_page_looks_right(tab: Browser, job: Path, shots: Path, width: int, is_dark: bool) -> None:
    tab.open(job, width, dark=is_dark)
    tab.screenshot(shots / f"report-{width}-{'dark' if is_dark else 'light'}.png")
    assert tab.problems() == []
    assert tab.requests() == [job.as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    # No section or card may be wider than its frame.
    wide = (
        "[...document.querySelectorAll('main > section, .cards > div')].filter(e => e.scrollWidth > e.clientWidth + 1)"
    )
    assert tab.evaluate(f"{wide}.map(e => e.textContent)") == []
    assert tab.evaluate(FAINT) == []


@chromium
def test_failures_come_first_and_their_logs_unfold_within_a_phones_width(
    tab: Browser, tmp_path: Path, shots: Path
) -> None:
    write_history(tmp_path, [line("x" * 150, failed=True, what="y" * 300), line("one")])
    log = "z" * 3000 + "\n[to reproduce: c++ " + "/" + "w" * 3000 + "]\n"
    write_log(tmp_path, "x" * 150, "a", log, START)
    page = tmp_path / "report.html"
    page.write_text(page_of(tmp_path))
    tab.open(page, 360)
    assert tab.evaluate("document.querySelector('h2').textContent") == "Failures"
    tab.evaluate("document.querySelector('summary').click()")
    tab.settle()
    assert tab.evaluate("document.querySelector('pre').checkVisibility()")
    tab.screenshot(shots / "report-failures-360.png")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.evaluate(FAINT) == []
    assert tab.problems() == []


@chromium
def test_the_page_of_an_empty_cache_works(tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(page_of(tmp_path))
    tab.open(page, 360)
    assert tab.problems() == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert "Nothing was compiled" in tab.evaluate("document.querySelector('main').innerText")


@chromium
def test_the_first_rows_are_the_slowest_blobs(tab: Browser, job: Path) -> None:
    tab.open(job, 1280)
    seconds: dict[str, float] = {}
    for row in (row for rows in ranked_job().values() for row in rows):
        if row["kind"] == "compile":
            seconds[row["blob"]] = seconds.get(row["blob"], 0) + row["s"]
    slowest = sorted(seconds, key=lambda b: -seconds[b])
    names = "[...document.querySelectorAll('#blobs tbody tr')].map(r => r.cells[0].title)"
    assert tab.evaluate(names)[:3] == slowest[:3]
    shown = "[...document.querySelectorAll('#blobs tbody tr')].filter(r => r.checkVisibility()).length"
    assert tab.evaluate(shown) == 12
    tab.evaluate("document.querySelector('#more').click()")
    assert tab.evaluate(shown) == len(slowest)


@chromium
def test_a_click_on_a_header_sorts_and_another_turns_it_round(tab: Browser, job: Path) -> None:
    tab.open(job, 1280)
    header = "document.querySelectorAll('#blobs th')[6]"
    sizes = "[...document.querySelectorAll('#blobs tbody tr')].map(r => Number(r.cells[6].dataset.value))"
    tab.evaluate(f"{header}.querySelector('button').click()")
    found = tab.evaluate(sizes)
    assert found == sorted(found, reverse=True)
    assert tab.evaluate(f"{header}.ariaSort") == "descending"
    tab.evaluate(f"{header}.querySelector('button').click()")
    assert tab.evaluate(sizes) == sorted(found)
    tab.evaluate("document.querySelector('#blobs th button').click()")
    names = tab.evaluate("[...document.querySelectorAll('#blobs tbody tr')].map(r => r.cells[0].title)")
    assert names == sorted(names)
    assert tab.problems() == []


@chromium
def test_the_theme_follows_the_system_and_the_button(tab: Browser, job: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab.open(job, 1280)
    light = tab.evaluate(ground)
    tab.evaluate("document.querySelector('#theme').click()")
    dark = tab.evaluate(ground)
    assert dark != light
    tab.open(job, 1280, dark=True)
    assert tab.evaluate(ground) == dark
    tab.evaluate("document.querySelector('#theme').click()")
    assert tab.evaluate(ground) == light


BARS = "document.querySelectorAll('#lanes rect').length"


@chromium
def test_the_timeline_has_bars_of_each_kind_and_can_be_moved(tab: Browser, job: Path, shots: Path) -> None:
    tab.open(job, 1280)
    for kind in ("compile", "wait", "load", "failure"):
        assert tab.evaluate(f"document.querySelectorAll('#lanes .{kind}-bar').length") > 0, kind
    assert tab.evaluate("[...document.querySelectorAll('.lane')].filter(l => l.checkVisibility()).length") == 8
    assert "rank 0 · node1 · pid 4000" in tab.evaluate("document.querySelector('.lane').textContent")
    ticks = "[...document.querySelectorAll('#axis text')].map(t => t.textContent).join()"
    whole = tab.evaluate(ticks)
    for button in ("in", "right", "left", "out", "all"):
        tab.evaluate(f"document.querySelector('#go-{button}').click()")
        tab.settle()
        assert (tab.evaluate(ticks) == whole) == (button in ("out", "all")), button
    tab.evaluate("document.querySelector('#axis').scrollIntoView({block: 'center'})")
    tab.settle()
    frame = "(b => [b.left + b.width / 3, b.top + 9])(document.querySelector('#axis').getBoundingClientRect())"
    place = tab.evaluate(frame)
    tab.call("Input.dispatchMouseEvent", type="mouseWheel", x=place[0], y=place[1], deltaX=0, deltaY=-400)
    tab.settle()
    zoomed = tab.evaluate(ticks)
    assert zoomed != whole
    for kind, x in (("mousePressed", 0), ("mouseMoved", 90), ("mouseReleased", 90)):
        tab.call("Input.dispatchMouseEvent", type=kind, x=place[0] + x, y=place[1], button="left", clickCount=1)
    tab.settle()
    assert tab.evaluate(ticks) != zoomed
    # This shows the whole period, with the other run.
    tab.evaluate("(r => { r.value = 0; r.dispatchEvent(new Event('change')); })(document.querySelector('#run'))")
    tab.settle()
    assert tab.evaluate("[...document.querySelectorAll('.lane')].filter(l => l.checkVisibility()).length") == 16
    assert tab.problems() == []


@chromium
@pytest.mark.parametrize("width", [1, 40, 60])
def test_a_page_without_room_stays_usable(tab: Browser, job: Path, width: int) -> None:
    """While a browser takes a screenshot of the whole page, it also lays the page out without any
    width for a moment."""
    tab.open(job, width)
    assert tab.evaluate("document.querySelectorAll('#growth *').length") < 200
    assert tab.evaluate("document.querySelectorAll('#axis *').length") < 20
    assert tab.problems() == []


@chromium
def test_pointing_at_a_bar_says_what_it_is(tab: Browser, job: Path, shots: Path) -> None:
    tab.open(job, 1280)
    tab.evaluate("document.querySelector('#timeline').scrollIntoView({block: 'center'})")
    tab.settle()
    for kind, words in (
        ("compile", ["compiled for gfx942: ", "peak memory", "rank"]),
        ("failure", ["failed", "error:"]),
    ):
        bar = f"document.querySelector('#lanes .{kind}-bar').getBoundingClientRect()"
        box = tab.evaluate(f"(b => [b.left + b.width / 2, b.top + b.height / 2])({bar})")
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        tab.settle()
        tip = tab.evaluate(
            "document.querySelector('#tip').checkVisibility() && document.querySelector('#tip').innerText"
        )
        assert "fmha_" in tip
        assert not [w for w in words if w not in tip], tip
    tab.screenshot(shots / "report-tip.png", whole=False)


@chromium
def test_the_script_shows_sizes_as_the_commands_do(tab: Browser, job: Path) -> None:
    tab.open(job, 1280)
    script = (REPOSITORY / "lazyck" / "report" / "page.js").read_text()
    function = re.search(r"^function bytes\(n\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert function
    assert tab.evaluate(f"{list(SHOWN)}.map({function[0]})") == list(SHOWN.values())
    marks = tab.evaluate("[...document.querySelectorAll('#growth text')].map(e => e.textContent)")
    sizes = [text for text in marks if text.endswith("B")]
    assert len(sizes) >= 3 and sizes[0] == "0 B"
    assert all(re.fullmatch(r"\d+\.[05] [KMG]B|\d+ [KMG]?B", text) for text in sizes), sizes


@chromium
def test_five_thousand_events_of_64_processes_stay_usable(tab: Browser, tmp_path: Path, shots: Path) -> None:
    write_history(tmp_path, many_events(5000, 64))
    page = tmp_path / "report.html"
    page.write_text(page_of(tmp_path))
    begin = time.monotonic()
    tab.open(page, 1280)
    assert tab.evaluate(BARS) > 1000
    for button in ("in", "right", "all", "in"):
        tab.evaluate(f"document.querySelector('#go-{button}').click()")
        tab.settle()
    assert time.monotonic() - begin < 20
    frame = "document.querySelector('#lanes').getBoundingClientRect().height"
    assert tab.evaluate("document.querySelector('#lanes').scrollHeight") > tab.evaluate(frame)
    assert tab.evaluate(frame) < 600  # the sections below can be reached
    assert tab.problems() == []
    tab.screenshot(shots / "report-big.png")


@chromium
def test_hostile_names_run_nothing_in_a_browser(tab: Browser, tmp_path: Path) -> None:
    hostile_history(tmp_path)
    page = tmp_path / "report.html"
    page.write_text(page_of(tmp_path))
    tab.open(page, 420)
    assert tab.problems() == []
    assert tab.requests() == [page.as_uri()]
    assert [e for e, _ in tab.events if e == "Page.javascriptDialogOpening"] == []
    assert tab.evaluate("document.querySelectorAll('main img, main b, main script').length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 420
    assert HOSTILE[0] in tab.evaluate("document.querySelector('#blobs').textContent")


@chromium
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_page_after_the_browser_died_or_hung_gets_another_browser(
    tab: Browser, job: Path, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    tab.open(job, 1280)
    monkeypatch.setattr("support.browser._SIGN_OF_LIFE", 0.5)
    before = tab.pid
    os.kill(before, end)
    with pytest.warns(UserWarning, match="another browser is started: .*the browser is (gone|silent)"):
        tab.open(job, 1280)
    assert tab.pid != before and not Path(f"/proc/{before}").exists()
    assert tab.evaluate(BARS) > 0 and tab.problems() == []


@chromium
def test_a_browser_that_dies_is_noticed_at_once_with_its_last_words(tab: Browser, job: Path) -> None:
    tab.open(job, 1280)
    tab.evaluate("console.log('words before the end')")
    begin = time.monotonic()
    os.kill(tab.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match=r"(?s)Runtime.evaluate: the browser is gone.*words before the end"):
        tab.evaluate("1")
    assert time.monotonic() - begin < 5


# These blobs of tests/projects/ops are made costly. The numbers are the thousands of steps that
# their compiler computes.
COSTLY = {"special_d64_true": 600, "special_d128_false": 500, "special_d32_false": 400}
STEPS = """{ constexpr long steps = [] {
    long n = 0;
    for (int i = 0; i < %d; ++i) for (int j = 0; j < 1000; ++j) n += j & 1;
    return n;
}();
static_assert(steps > 0);
"""

# This returns what can be read without a click or a scroll: headings, sentences, and table rows as
# the texts of their cells.
ON_THE_FIRST_SCREEN = """(() => {
  const seen = (e) => e.checkVisibility() && e.getBoundingClientRect().bottom <= innerHeight;
  return [...document.querySelectorAll('h2, section > p, tbody tr')].filter(seen).map((e) =>
    e.tagName === 'TR' ? [...e.cells].map((c) => c.innerText.trim()) : e.innerText);
})()"""


@pytest.mark.differs("its blobs are costly on purpose")
@chromium
def test_a_newcomer_reads_the_three_costliest_blobs_of_real_runs_off_the_first_screen(
    tab: Browser, lazyck: Lazyck, tmp_path: Path, shots: Path
) -> None:
    project = copy_project(tmp_path)
    for blob, steps in COSTLY.items():
        source = project / "blob" / f"{blob}.cpp"
        source.write_text(source.read_text().replace("{", STEPS % steps, 1))
    ops = build_ops(lazyck, tmp_path)
    runs: list[Path] = []
    for calls in ("special(32, 0), instance('float', 2), special(64, 1)", "special(128, 0), plain(1), special(64, 1)"):
        runs.append(tmp_path / f"run{len(runs)}.profile")
        done = ops.call(f"print({calls})", {"LAZYCK_RECORD": str(runs[-1])})
        assert done.returncode == 0, done.stderr
    page = tmp_path / "report.html"
    assert lazyck("report", "-o", page).returncode == 0
    tab.open(page, 1280)
    tab.screenshot(shots / "report-real.png")
    read = tab.evaluate(ON_THE_FIRST_SCREEN)

    recorded = json.loads(lazyck("profile", "show", "--json", *runs).stdout)["blobs"]
    costliest = sorted(recorded, key=lambda row: -row["seconds"])[:3]
    assert {row["blob"] for row in costliest} == set(COSTLY)  # a busy machine decides their order
    assert read[0] == "Slowest blobs"
    assert re.fullmatch(r"The three slowest took .*, \d\d % of all compile time\.", read[1])
    rows = [row for row in read if isinstance(row, list)]
    assert {row[0] for row in rows[:3]} == set(COSTLY)
    # If two took equal tenths of a second, either may be first.
    seconds = {row["blob"]: row["seconds"] for row in recorded}
    assert [seconds[row[0]] for row in rows[:3]] == [row["seconds"] for row in costliest]
    shown = [float(row[1].removesuffix(" s")) for row in rows[:3]]
    assert shown == pytest.approx([row["seconds"] for row in costliest], abs=0.3)
    assert len(rows) == len(recorded)
