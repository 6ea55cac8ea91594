"""A headless Chromium, driven through a pipe by its DevTools protocol: no package is needed but the browser."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), "")
MISSING = "" if CHROMIUM else "no Chromium (Debian: chromium)"

_PATIENCE = 120  # seconds; the machine may be busy


class Browser:
    """One page. `events` are what the browser has told so far: (method, parameters)."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                result: dict[str, Any] = message["result"]
                return result
            if "method" in message:
                self.events.append((message["method"], message.get("params", {})))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], max(0.0, end - time.monotonic()))[0], "the browser is silent"
            piece = os.read(self._answers, 1 << 16)
            assert piece, "the browser is gone"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Show `page` in a window of that size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not self.evaluate("document.readyState === 'complete'"):
            time.sleep(0.05)
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def problems(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, since the page was opened."""
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
        """What was fetched since the page was opened, the page itself too."""
        return [p["request"]["url"] for method, p in self.events if method == "Network.requestWillBeSent"]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write what is shown (or the whole page) as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser for the time of the block."""
    here, there = os.pipe(), os.pipe()  # commands to it; answers from it
    with tempfile.TemporaryDirectory(prefix="lazyck-browser-", ignore_cleanup_errors=True) as home:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--hide-scrollbars", "--disable-background-networking", "--disable-extensions", "--mute-audio"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={home}/data", "about:blank"]
        # the protocol's descriptors are 3 and 4
        script = f'exec "$0" "$@" 3<&{here[0]} 4>&{there[1]}'
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, CHROMIUM, *flags],
            pass_fds=(here[0], there[1]),
            env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(here[0])
        os.close(there[1])
        try:
            yield Browser(here[1], there[0])
        finally:
            os.close(here[1])  # ends it
            os.close(there[0])
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
