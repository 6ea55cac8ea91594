"""Tests in a browser that four readers of the documentation start at its front page and reach their
answers in three clicks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import REPOSITORY, Once
from support.browser import MISSING, Browser, browser

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed (scripts/docs)"),
    pytest.mark.xdist_group("browser"),
]
# Each reader has the links to click, and a text that the answer contains.
READERS = {
    "ships a lazy wheel": (["Ship a wheel", "Prebuilt variants as wheels"], "--all --wheel dist"),
    "runs 1,000 nodes": (["many machines", "A cold start of many"], "hosts"),
    "debugs a failed compile": (["A variant that fails", "Look at the log, repeat the compile"], ".log"),
    "asks whether it is safe": (["Is it safe?", "SECURITY.md"], "Only your own code is loaded."),
    "asks whether it is the same": (["Is it safe?", "What is compared"], "ahead of time"),
}


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    """Open a page of a headless browser."""
    with browser() as found:
        yield found


def make_site(where: Path) -> Path:
    """Build the site and return its directory."""
    argv = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(where / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return where / "site"


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_finds_the_answer_in_three_clicks(tab: Browser, once: Once, reader: str) -> None:
    clicks, answer = READERS[reader]
    assert len(clicks) <= 3
    site = once("site", make_site)
    page = site / "index.html"
    for text in clicks:
        tab.open(page, 1280)
        address = tab.evaluate(
            "(() => { const links = [...document.querySelectorAll('article a, nav.md-nav--secondary a')];"
            f"const found = links.find(a => a.textContent.trim() === {text!r}); return found ? found.href : ''; }})()"
        )
        assert address.startswith("file://"), f"{page.name} has no link {text!r}"
        page = Path(address.removeprefix("file://").partition("#")[0])
        assert page.is_relative_to(site) and page.is_file(), address
    tab.open(page, 1280)
    assert answer in tab.evaluate("document.querySelector('article').innerText"), page
