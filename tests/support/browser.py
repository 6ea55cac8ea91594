"""Drives a headless Chromium through a pipe by its DevTools protocol. No package is needed besides
the browser."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), "")
MISSING = "" if CHROMIUM else "no Chromium (Debian: chromium)"

_START, _ANSWER, _SIGN_OF_LIFE = 60.0, 30.0, 5.0  # in seconds; long enough for a busy machine
_MOST_STARTS = 6  # after so many starts, another one will not help


class Browser:
    """One page of one browser.

    `open` restarts the browser if it has died or does not answer. `events` are the events that the
    browser has sent so far, as (method, parameters). `pid` is the browser's process, which leads a
    process group.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _start(self) -> None:
        assert self._starts < _MOST_STARTS, f"the browser was started {self._starts} times in vain{self._last_words()}"
        self._starts += 1
        self._buffer, self._number, self._session = b"", 0, ""
        data = self._home / f"data{self._starts}"
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--hide-scrollbars", "--disable-background-networking", "--disable-extensions", "--mute-audio"]
        flags += ["--enable-logging=stderr", "--remote-debugging-pipe", f"--user-data-dir={data}", "about:blank"]
        here, there = os.pipe(), os.pipe()  # commands to the browser; its answers
        # The DevTools protocol uses descriptors 3 and 4.
        script = f'exec "$0" "$@" 3<&{here[0]} 4>&{there[1]}'
        with self._words().open("wb") as words:
            self._process = subprocess.Popen(
                ["/bin/bash", "-c", script, CHROMIUM, *flags],
                pass_fds=(here[0], there[1]),
                env={**os.environ, **dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(self._home))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                start_new_session=True,
            )
        os.close(here[0])
        os.close(there[1])
        self._to, self._answers = here[1], there[0]
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.call("Target.createTarget", _START, url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser, even if it is stopped or hung."""
        if self._process is None:
            return
        os.close(self._to)
        os.close(self._answers)
        self._to = self._answers = -1
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _words(self) -> Path:
        return self._home / f"stderr{self._starts}"

    def _last_words(self) -> str:
        lines = self._words().read_text(errors="replace").splitlines() if self._starts else []
        return "".join(f"\n  its stderr: {line}" for line in lines[-20:])

    def call(self, method: str, patience: float = _ANSWER, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result. Raises `AssertionError` if the command fails or
        takes more than `patience` seconds."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        end = time.monotonic() + patience
        try:
            os.write(self._to, json.dumps(command).encode() + b"\0")
        except OSError:
            raise AssertionError(f"{method}: the browser is gone{self._last_words()}") from None
        while True:
            message = self._next(method, end)
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            if "method" in message:
                self.events.append((message["method"], message.get("params", {})))

    def _next(self, method: str, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            is_there = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0]
            assert is_there, f"{method}: the browser is silent{self._last_words()}"
            piece = os.read(self._answers, 1 << 16)
            assert piece, f"{method}: the browser is gone{self._last_words()}"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Show `page` in a window of `width` × `height` pixels."""
        self._ensure_alive()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        wait_until(
            lambda: self.evaluate("document.readyState === 'complete'"),
            _START,
            said=lambda: f"{page} is not loaded in {_START:.0f} s{self._last_words()}",
        )
        self.settle()

    def _ensure_alive(self) -> None:
        try:
            self.call("Runtime.evaluate", _SIGN_OF_LIFE, expression="1")  # the page's process answers this
        except AssertionError as e:
            warnings.warn(f"another browser is started: {e}", stacklevel=3)
            self.close()
            self._start()

    def settle(self) -> None:
        """Wait until pending changes are drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def evaluate(self, expression: str) -> Any:
        """Evaluate a JavaScript expression and return its value. A promise is awaited."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def problems(self) -> list[str]:
        """Return the console's messages, log entries and exceptions since the page was opened."""
        found = []
        for method, p in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(p["exceptionDetails"].get("exception", p["exceptionDetails"])))
            elif method == "Runtime.consoleAPICalled":
                found.append(f"console.{p['type']}: {p['args']}")
            elif method == "Log.entryAdded":
                found.append(f"{p['entry']['level']}: {p['entry']['text']}")
        return found

    def requests(self) -> list[str]:
        """Return the URLs that were fetched since the page was opened, including the page
        itself."""
        return [p["request"]["url"] for method, p in self.events if method == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a screenshot as PNG: of the whole page, or only of the visible part."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser for the duration of the `with` block."""
    with tempfile.TemporaryDirectory(prefix="lazyck-browser-", ignore_cleanup_errors=True) as home:
        found = Browser(Path(home))
        try:
            yield found
        finally:
            found.close()
